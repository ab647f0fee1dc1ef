/* Appends to a log, reads it back, and commits to two logs at once. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "brooklet.h"

/* Ends the program if a call failed. */
static void must(brooklet_status status, brooklet_error *error) {
    if (status > BROOKLET_OK) {
        fprintf(stderr, "%s\n", brooklet_error_message(error));
        brooklet_error_free(error);
        exit(1);
    }
}

int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : "documents.brooklet";
    brooklet_error *error = NULL;
    brooklet_store *store = NULL;
    must(brooklet_open(path, NULL, &store, &error), error);

    /* Returns once the entry is on stable media. */
    uint64_t seq = 0;
    must(brooklet_append_wait(store, "doc/7", 5, "insert 'h' at 0", 15, &seq, &error), error);

    /* Many logs, one atomic commit; only if nobody appended to the document meanwhile. */
    brooklet_commit *commit = brooklet_commit_new();
    brooklet_ticket *ticket = NULL;
    must(brooklet_commit_expect_next(commit, "doc/7", 5, seq + 1, &error), error);
    must(brooklet_commit_append(commit, "doc/7", 5, "insert 'i' at 1", 15, &error), error);
    must(brooklet_commit_append(commit, "feed", 4, "doc 7 changed", 13, &error), error);
    must(brooklet_commit_to(commit, store, true, &ticket, &error), error);
    must(brooklet_ticket_wait(ticket, UINT64_MAX, &error), error);
    brooklet_ticket_free(ticket);
    brooklet_commit_free(commit);

    brooklet_entries *entries = NULL;
    brooklet_entry entry;
    brooklet_status status;
    must(brooklet_read(store, "doc/7", 5, 0, UINT64_MAX, false, &entries, &error), error);
    while ((status = brooklet_entries_next(entries, &entry, &error)) == BROOKLET_OK) {
        printf("%" PRIu64 ": %.*s\n", entry.seq, (int)entry.payload_len, (const char *)entry.payload);
    }
    must(status, error);
    brooklet_entries_free(entries);

    must(brooklet_close(store, &error), error);
    brooklet_store_free(store);
    return 0;
}
