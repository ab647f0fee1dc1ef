/* What the tests in C share: asserts, checks of errors, a small store. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "brooklet.h"

/* Asserts hold in every build. */
#define assert(holds) \
    ((holds) ? (void)0 : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #holds), exit(1)))

#define SECOND 1000000000ull
#define KEY(text) (text), sizeof(text) - 1

static void ok(brooklet_status status, brooklet_error **error) {
    if (status != BROOKLET_OK) {
        fprintf(stderr, "status %d: %s\n", (int)status, brooklet_error_message(*error));
        exit(1);
    }
    assert(*error == NULL);
}

/* Asserts that a call failed so, with a message that has these words. */
static void refused(brooklet_status status, brooklet_error **error, brooklet_status as, const char *words) {
    if (status != as || brooklet_error_status(*error) != as) {
        fprintf(stderr, "status %d, not %d: %s\n", (int)status, (int)as, brooklet_error_message(*error));
        exit(1);
    }
    if (strstr(brooklet_error_message(*error), words) == NULL) {
        fprintf(stderr, "no \"%s\" in: %s\n", words, brooklet_error_message(*error));
        exit(1);
    }
    brooklet_error_free(*error);
    *error = NULL;
}

static inline brooklet_store *opened(const char *path) {
    brooklet_error *error = NULL;
    brooklet_store *store = NULL;
    brooklet_options *options = brooklet_options_new();
    brooklet_options_ring_size(options, 4 << 20);
    brooklet_options_memory_budget(options, 16 << 20);
    brooklet_options_max_payload(options, 1 << 20);
    ok(brooklet_open(path, options, &store, &error), &error);
    brooklet_options_free(options);
    return store;
}
