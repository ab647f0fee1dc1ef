/* Options that each opening of a store has to know. */

#include <unistd.h>

#include "check.h"

/* A ring in a file of its own, and a capacity: each opening has to know them. */
static void a_ring_apart(const char *path) {
    char own[512], ring[512];
    snprintf(own, sizeof own, "%s.apart", path);
    snprintf(ring, sizeof ring, "%s.ring", path);
    brooklet_error *error = NULL;
    brooklet_store *store = NULL;
    brooklet_options *options = brooklet_options_new();
    brooklet_options_ring_size(options, 4 << 20);
    brooklet_options_max_payload(options, 1 << 20);
    brooklet_options_capacity(options, 64 << 20);
    refused(brooklet_options_ring_at(options, NULL, &error), &error, BROOKLET_INVALID, "NULL");
    refused(brooklet_options_ring_at(NULL, ring, &error), &error, BROOKLET_INVALID, "options are NULL");
    ok(brooklet_options_ring_at(options, ring, &error), &error);
    ok(brooklet_open(own, options, &store, &error), &error);
    ok(brooklet_close(store, &error), &error);
    brooklet_store_free(store);
    assert(access(ring, F_OK) == 0);
    refused(brooklet_open(own, NULL, &store, &error), &error, BROOKLET_CANNOT_OPEN, "ring");
    brooklet_options_capacity(options, 32 << 20);
    refused(brooklet_open(own, options, &store, &error), &error, BROOKLET_CANNOT_OPEN, "capacity");
    brooklet_options_free(options);
    assert(unlink(own) == 0 && unlink(ring) == 0);
}

int main(int argc, char **argv) {
    assert(argc == 2);
    a_ring_apart(argv[1]);
    return 0;
}
