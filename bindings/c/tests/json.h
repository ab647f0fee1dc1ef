/* As much of JSON as the vectors need: objects, arrays, texts without escapes, whole numbers, true.
 *
 * A value is a place in the text of the file. Each call scans from there: the file is small.
 */

#ifndef TESTS_JSON_H
#define TESTS_JSON_H

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char *json_start(const char *at) {
    while (isspace((unsigned char)*at) || *at == ',' || *at == ':') at++;
    return at;
}

/* Returns the place behind a value. */
static const char *json_end(const char *at) {
    at = json_start(at);
    if (*at == '"') return strchr(at + 1, '"') + 1;
    if (*at != '{' && *at != '[') return at + strcspn(at, ",]} \n");
    char last = *at == '{' ? '}' : ']';
    for (at = json_start(at + 1); *at != last; at = json_start(at)) at = json_end(at);
    return at + 1;
}

/* Returns the first value of an array or object, or NULL. An object has names and values in turns. */
static const char *json_first(const char *whole) {
    const char *at = json_start(json_start(whole) + 1);
    return *at == ']' || *at == '}' ? NULL : at;
}

/* Returns the value after another one, or NULL. */
static const char *json_next(const char *value) {
    const char *at = json_start(json_end(value));
    return *at == ']' || *at == '}' ? NULL : at;
}

static bool json_is(const char *value, const char *text) {
    size_t len = strlen(text);
    return *value == '"' && strncmp(value + 1, text, len) == 0 && value[1 + len] == '"';
}

/* Returns a member of an object, or NULL. */
static const char *json_member(const char *object, const char *name) {
    for (const char *at = json_first(object); at != NULL; at = json_next(at)) {
        const char *value = json_next(at);
        if (json_is(at, name)) return value;
        at = value;
    }
    return NULL;
}

static uint64_t json_number(const char *value) { return strtoull(value, NULL, 10); }

#endif
