/* Plays bindings/vectors/vectors.json in C. The other libraries play the same file.
 *
 *   vectors FILE FOLDER
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "brooklet.h"
#include "json.h"

#define PATIENCE 60000000000ull

/* Where the player is, for messages. */
static const char *case_name, *step_at;

static void fail(const char *why) {
    int name_len = (int)(json_end(case_name) - case_name), step_len = (int)(json_end(step_at) - step_at);
    fprintf(stderr, "%.*s: %.*s: %s\n", name_len, case_name, step_len, step_at, why);
    exit(1);
}

static void hold(bool holds, const char *why) {
    if (!holds) fail(why);
}

typedef struct {
    uint8_t *start;
    size_t len;
} bytes;

/* The bytes that a value stands for: text, hexadecimal digits, or a repeated text. */
static bytes bytes_of(const char *value) {
    const char *text = value, *digits = NULL;
    size_t times = 1;
    if (*value == '{') {
        digits = json_member(value, "hex");
        text = digits != NULL ? digits : json_member(value, "repeat");
        if (digits == NULL) times = (size_t)json_number(json_member(value, "times"));
    }
    size_t len = (size_t)(json_end(text) - text) - 2;
    bytes made = {malloc(len * times + 1), 0};
    if (digits != NULL) {
        for (size_t at = 0; at < len; at += 2) {
            char pair[3] = {text[1 + at], text[2 + at], 0};
            made.start[made.len++] = (uint8_t)strtoul(pair, NULL, 16);
        }
        return made;
    }
    for (size_t time = 0; time < times; time++) memcpy(made.start + time * len, text + 1, len);
    made.len = len * times;
    return made;
}

static bool same(const void *start, size_t len, const char *value) {
    bytes expected = bytes_of(value);
    bool same = len == expected.len && (len == 0 || memcmp(start, expected.start, len) == 0);
    free(expected.start);
    return same;
}

/* Checks the error of a step that fails; otherwise, checks that there is none. */
static bool fails(const char *step, brooklet_status status, brooklet_error **error) {
    static const struct {
        const char *name;
        brooklet_status status;
    } kinds[] = {
        {"invalid", BROOKLET_INVALID}, {"not_found", BROOKLET_NOT_FOUND}, {"conflict", BROOKLET_CONFLICT},
        {"cannot_open", BROOKLET_CANNOT_OPEN}, {"stopped", BROOKLET_STOPPED},
    };
    const char *expected = json_member(step, "error");
    if (expected == NULL) {
        if (status != BROOKLET_OK) fail(brooklet_error_message(*error));
        return false;
    }
    size_t kind = 0;
    while (!json_is(json_member(expected, "kind"), kinds[kind].name)) kind++;
    hold(status == kinds[kind].status, "another error, or none");
    uint64_t number;
    const char *first = json_member(expected, "first"), *next = json_member(expected, "next");
    bool has = brooklet_error_first(*error, &number);
    hold(has == (first != NULL) && (!has || number == json_number(first)), "another first entry in the error");
    has = brooklet_error_next(*error, &number);
    hold(has == (next != NULL) && (!has || number == json_number(next)), "another end in the error");
    brooklet_error_free(*error);
    *error = NULL;
    return true;
}

typedef struct {
    const char *path;
    brooklet_store *store;
    brooklet_tail *tail;
} player;

static brooklet_status open_store(player *p, const char *how, brooklet_error **error) {
    brooklet_tail_free(p->tail);
    brooklet_store_free(p->store);
    p->tail = NULL;
    p->store = NULL;
    brooklet_options *options = brooklet_options_new();
    brooklet_options_ring_size(options, 4 << 20);
    brooklet_options_memory_budget(options, 16 << 20);
    brooklet_options_max_payload(options, 1 << 20);
    brooklet_options_read_only(options, json_member(how, "read_only") != NULL);
    const char *create = json_member(how, "create");
    if (create != NULL) brooklet_options_create(options, json_is(create, "new") ? 2 : 0, NULL);
    brooklet_status status = brooklet_open(p->path, options, &p->store, error);
    brooklet_options_free(options);
    return status;
}

static brooklet_status keep_last(brooklet_commit *commit, bytes key, uint64_t n, brooklet_error **error) {
    brooklet_operation head = {BROOKLET_KEEP_LAST, (uint32_t)key.len, n};
    uint8_t *packed = malloc(sizeof head + key.len);
    memcpy(packed, &head, sizeof head);
    memcpy(packed + sizeof head, key.start, key.len);
    brooklet_status status = brooklet_commit_add(commit, packed, sizeof head + key.len, error);
    free(packed);
    return status;
}

/* Adds an operation to a commit. */
static brooklet_status add(brooklet_commit *commit, const char *operation, brooklet_error **error) {
    const char *name = json_first(operation), *given = json_member(operation, "payload");
    bytes key = bytes_of(json_next(name)), payload = given == NULL ? (bytes){NULL, 0} : bytes_of(given);
    const char *member = json_next(json_next(name));
    uint64_t n = member == NULL || given != NULL ? 0 : json_number(json_next(member));
    brooklet_status status = BROOKLET_INVALID;
    if (json_is(name, "append"))
        status = brooklet_commit_append(commit, key.start, key.len, payload.start, payload.len, error);
    else if (json_is(name, "snapshot"))
        status = brooklet_commit_snapshot(commit, key.start, key.len, payload.start, payload.len, error);
    else if (json_is(name, "trim"))
        status = brooklet_commit_trim(commit, key.start, key.len, n, error);
    else if (json_is(name, "truncate"))
        status = brooklet_commit_truncate(commit, key.start, key.len, n, error);
    else if (json_is(name, "keep_last"))
        status = keep_last(commit, key, n, error);
    else if (json_is(name, "begin_at"))
        status = brooklet_commit_begin_at(commit, key.start, key.len, n, error);
    else if (json_is(name, "delete"))
        status = brooklet_commit_delete(commit, key.start, key.len, error);
    else if (json_is(name, "expect_next"))
        status = brooklet_commit_expect_next(commit, key.start, key.len, n, error);
    else if (json_is(name, "expect_absent"))
        status = brooklet_commit_expect_absent(commit, key.start, key.len, error);
    else
        fail("an unknown operation");
    free(key.start);
    free(payload.start);
    return status;
}

/* Commits operations: those of an array, or one. Checks the numbers of the appended entries. */
static void commit(player *p, const char *step, const char *operations, bool many) {
    brooklet_error *error = NULL;
    brooklet_ticket *ticket = NULL;
    brooklet_commit *commit = brooklet_commit_new();
    brooklet_status status = BROOKLET_OK;
    const char *at = many ? json_first(operations) : operations;
    for (; at != NULL && status == BROOKLET_OK; at = many ? json_next(at) : NULL) status = add(commit, at, &error);
    if (status == BROOKLET_OK) status = brooklet_commit_to(commit, p->store, true, &ticket, &error);
    if (status == BROOKLET_OK) status = brooklet_ticket_wait(ticket, UINT64_MAX, &error);
    brooklet_commit_free(commit);
    if (!fails(step, status, &error)) {
        size_t count, found = 0;
        const uint64_t *seqs = brooklet_ticket_seqs(ticket, &count);
        const char *expected = json_member(step, "seqs");
        for (const char *seq = expected == NULL ? NULL : json_first(expected); seq != NULL; seq = json_next(seq))
            hold(found < count && seqs[found++] == json_number(seq), "another number");
        hold(expected == NULL || found == count, "more numbers");
    }
    brooklet_ticket_free(ticket);
}

/* Plays an operation by the store's own call; where C has none, as a commit. */
static void call(player *p, const char *step, const char *operation) {
    const char *name = json_first(operation), *given = json_member(operation, "payload");
    if (json_is(name, "keep_last") || json_is(name, "begin_at")) {
        commit(p, step, operation, false);
        return;
    }
    bytes key = bytes_of(json_next(name)), payload = given == NULL ? (bytes){NULL, 0} : bytes_of(given);
    const char *member = json_next(json_next(name));
    uint64_t n = member == NULL || given != NULL ? 0 : json_number(json_next(member));
    brooklet_error *error = NULL;
    brooklet_ticket *ticket = NULL;
    brooklet_status status = BROOKLET_INVALID;
    if (json_is(name, "append"))
        status = brooklet_append(p->store, key.start, key.len, payload.start, payload.len, &ticket, &error);
    else if (json_is(name, "snapshot"))
        status = brooklet_snapshot(p->store, key.start, key.len, payload.start, payload.len, &ticket, &error);
    else if (json_is(name, "trim"))
        status = brooklet_trim(p->store, key.start, key.len, n, &ticket, &error);
    else if (json_is(name, "truncate"))
        status = brooklet_truncate(p->store, key.start, key.len, n, &ticket, &error);
    else if (json_is(name, "delete"))
        status = brooklet_delete(p->store, key.start, key.len, &ticket, &error);
    else if (json_is(name, "set_retention"))
        status = brooklet_set_retention(p->store, key.start, key.len, n, UINT64_MAX, UINT64_MAX, &ticket, &error);
    else
        fail("an unknown call");
    if (status == BROOKLET_OK) status = brooklet_ticket_wait(ticket, UINT64_MAX, &error);
    const char *seq = json_member(step, "seq");
    if (!fails(step, status, &error) && seq != NULL)
        hold(brooklet_ticket_seq(ticket) == json_number(seq), "another number");
    brooklet_ticket_free(ticket);
    free(key.start);
    free(payload.start);
}

static bool is_entry(const brooklet_entry *entry, const char *expected) {
    const char *seq = json_first(expected);
    return entry->seq == json_number(seq) && same(entry->payload, entry->payload_len, json_next(seq));
}

static void read_log(player *p, const char *step, const char *log) {
    brooklet_error *error = NULL;
    brooklet_entries *entries = NULL;
    brooklet_entry entry;
    bytes key = bytes_of(log);
    const char *to = json_member(step, "to");
    brooklet_status status = brooklet_read(
        p->store, key.start, key.len, json_number(json_member(step, "from")), to == NULL ? UINT64_MAX : json_number(to),
        json_member(step, "available") != NULL, &entries, &error);
    free(key.start);
    if (fails(step, status, &error)) return;
    for (const char *at = json_first(json_member(step, "entries")); at != NULL; at = json_next(at))
        hold(brooklet_entries_next(entries, &entry, &error) == BROOKLET_OK && is_entry(&entry, at), "another entry");
    hold(brooklet_entries_next(entries, &entry, &error) == BROOKLET_END, "more entries");
    brooklet_entries_free(entries);
}

static void bounds(player *p, const char *step, const char *log) {
    brooklet_error *error = NULL;
    uint64_t first, next;
    bytes key = bytes_of(log);
    brooklet_status status = brooklet_bounds(p->store, key.start, key.len, &first, &next, &error);
    free(key.start);
    if (fails(step, status, &error)) return;
    hold(first == json_number(json_member(step, "first")), "another first entry");
    hold(next == json_number(json_member(step, "next")), "another end");
}

static void scan(player *p, const char *step, const char *of) {
    brooklet_error *error = NULL;
    brooklet_logs *logs = NULL;
    brooklet_log log;
    const char *start = json_member(step, "start");
    bytes prefix = bytes_of(of), from = start == NULL ? (bytes){NULL, 0} : bytes_of(start);
    brooklet_status status = brooklet_scan(p->store, prefix.start, prefix.len, from.start, from.len, &logs, &error);
    free(prefix.start);
    free(from.start);
    if (fails(step, status, &error)) return;
    for (const char *at = json_first(json_member(step, "logs")); at != NULL; at = json_next(at)) {
        hold(brooklet_logs_next(logs, &log, &error) == BROOKLET_OK, "a log is missing");
        const char *key = json_first(at), *first = json_next(key);
        hold(same(log.key, log.key_len, key), "another log");
        hold(log.first == json_number(first) && log.next == json_number(json_next(first)), "other bounds");
    }
    hold(brooklet_logs_next(logs, &log, &error) == BROOKLET_END, "more logs");
    brooklet_logs_free(logs);
}

static void tail(player *p, const char *step, const char *log) {
    brooklet_error *error = NULL;
    brooklet_tail_free(p->tail);
    p->tail = NULL;
    bytes key = bytes_of(log);
    uint64_t from = json_number(json_member(step, "from"));
    brooklet_status status = brooklet_tail_open(p->store, key.start, key.len, from, &p->tail, &error);
    free(key.start);
    fails(step, status, &error);
}

static void event(player *p, const char *step, const char *expected) {
    brooklet_error *error = NULL;
    brooklet_tail_event event;
    if (fails(step, brooklet_tail_next(p->tail, PATIENCE, &event, &error), &error)) return;
    const char *kind = json_first(expected), *value = json_next(kind);
    if (json_is(kind, "entry"))
        hold(event.kind == BROOKLET_TAIL_ENTRY && is_entry(&event.entry, value), "another event");
    else if (json_is(kind, "trimmed")) {
        const char *from = json_first(value);
        hold(event.kind == BROOKLET_TAIL_TRIMMED, "another event");
        hold(event.from == json_number(from) && event.to == json_number(json_next(from)), "another gap");
    } else if (json_is(kind, "truncated"))
        hold(event.kind == BROOKLET_TAIL_TRUNCATED && event.from == json_number(value), "another event");
    else
        hold(event.kind == BROOKLET_TAIL_DELETED, "another event");
}

static void play(player *p, const char *step) {
    brooklet_error *error = NULL;
    const char *name = json_first(step), *value = json_next(name);
    if (json_is(name, "reopen")) fails(step, open_store(p, value, &error), &error);
    else if (json_is(name, "call")) call(p, step, value);
    else if (json_is(name, "commit")) commit(p, step, value, true);
    else if (json_is(name, "read")) read_log(p, step, value);
    else if (json_is(name, "bounds")) bounds(p, step, value);
    else if (json_is(name, "scan")) scan(p, step, value);
    else if (json_is(name, "tail")) tail(p, step, value);
    else if (json_is(name, "event")) event(p, step, value);
    else if (json_is(name, "flush")) fails(step, brooklet_flush(p->store, &error), &error);
    else if (json_is(name, "checkpoint")) fails(step, brooklet_checkpoint(p->store, &error), &error);
    else if (json_is(name, "close")) fails(step, brooklet_close(p->store, &error), &error);
    else fail("an unknown step");
}

/* Returns the text of a file. */
static char *text_of(const char *path) {
    FILE *file = fopen(path, "rb");
    char *text = calloc(1 << 20, 1);
    if (file == NULL || text == NULL || fread(text, 1, (1 << 20) - 1, file) == 0) {
        perror(path);
        exit(1);
    }
    fclose(file);
    return text;
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    char *text = text_of(arguments[1]), path[4096];
    int cases = 0;
    for (const char *at = json_first(text); at != NULL; at = json_next(at)) {
        snprintf(path, sizeof path, "%s/vectors-%d.brooklet", arguments[2], cases++);
        player p = {path, NULL, NULL};
        brooklet_error *error = NULL;
        case_name = json_member(at, "name");
        step_at = at;
        if (open_store(&p, "{}", &error) != BROOKLET_OK) fail(brooklet_error_message(error));
        for (const char *step = json_first(json_member(at, "steps")); step != NULL; step = json_next(step)) {
            step_at = step;
            play(&p, step);
        }
        brooklet_tail_free(p.tail);
        brooklet_store_free(p.store);
    }
    free(text);
    printf("%d cases of the vectors hold\n", cases);
    return cases > 10 ? 0 : 1;
}
