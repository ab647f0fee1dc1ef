/* Places for results, in calls that fail. A handle that stays there would be freed again. */

#include "check.h"

/* Where a handle was that is freed. */
static char freed;

/* A call that fails stores NULL in the place of its new handle, whichever argument is wrong. */
#define STORES_NULL(type, call)                   \
    do {                                          \
        type *made = (type *)(void *)&freed;      \
        brooklet_error *error = NULL;             \
        assert((call) > BROOKLET_OK);             \
        assert(error != NULL && made == NULL);    \
        brooklet_error_free(error);               \
    } while (0)

static void handles_of_writes(brooklet_store *store) {
    const char *none = NULL;
    brooklet_commit *commit = brooklet_commit_new();
    STORES_NULL(brooklet_ticket, brooklet_append(NULL, KEY("k"), "x", 1, &made, &error));
    STORES_NULL(brooklet_ticket, brooklet_append(store, none, 5, "x", 1, &made, &error));
    STORES_NULL(brooklet_ticket, brooklet_append(store, KEY("k"), none, 1, &made, &error));
    STORES_NULL(brooklet_ticket, brooklet_append(store, "k", SIZE_MAX, "x", 1, &made, &error));
    STORES_NULL(brooklet_ticket, brooklet_snapshot(NULL, KEY("k"), "x", 1, &made, &error));
    STORES_NULL(brooklet_ticket, brooklet_snapshot(store, none, 5, "x", 1, &made, &error));
    STORES_NULL(brooklet_ticket, brooklet_snapshot(store, KEY("k"), none, 1, &made, &error));
    STORES_NULL(brooklet_ticket, brooklet_trim(NULL, KEY("k"), 0, &made, &error));
    STORES_NULL(brooklet_ticket, brooklet_trim(store, none, 5, 0, &made, &error));
    STORES_NULL(brooklet_ticket, brooklet_truncate(NULL, KEY("k"), 0, &made, &error));
    STORES_NULL(brooklet_ticket, brooklet_truncate(store, none, 5, 0, &made, &error));
    STORES_NULL(brooklet_ticket, brooklet_delete(NULL, KEY("k"), &made, &error));
    STORES_NULL(brooklet_ticket, brooklet_delete(store, none, 5, &made, &error));
    STORES_NULL(brooklet_ticket, brooklet_set_retention(NULL, KEY("k"), 1, 1, 1, &made, &error));
    STORES_NULL(brooklet_ticket, brooklet_set_retention(store, none, 5, 1, 1, 1, &made, &error));
    STORES_NULL(brooklet_ticket, brooklet_commit_to(NULL, store, true, &made, &error));
    STORES_NULL(brooklet_ticket, brooklet_commit_to(commit, NULL, true, &made, &error));
    STORES_NULL(brooklet_ticket, brooklet_commit_to(commit, store, true, &made, &error));
    brooklet_commit_free(commit);
}

static void handles_of_reads(brooklet_store *store) {
    const char *none = NULL;
    char buffer[100];
    brooklet_entry entry;
    STORES_NULL(brooklet_store, brooklet_open(NULL, NULL, &made, &error));
    STORES_NULL(brooklet_entries, brooklet_read(NULL, KEY("k"), 0, 1, true, &made, &error));
    STORES_NULL(brooklet_entries, brooklet_read(store, none, 5, 0, 1, true, &made, &error));
    STORES_NULL(brooklet_entries, brooklet_read(store, KEY("k"), 7, 9, false, &made, &error));
    STORES_NULL(brooklet_entries, brooklet_first(NULL, KEY("k"), &made, &entry, &error));
    STORES_NULL(brooklet_entries, brooklet_last(store, none, 5, &made, &entry, &error));
    STORES_NULL(brooklet_logs, brooklet_scan(NULL, NULL, 0, NULL, 0, &made, &error));
    STORES_NULL(brooklet_logs, brooklet_scan(store, none, 5, NULL, 0, &made, &error));
    STORES_NULL(brooklet_logs, brooklet_scan(store, NULL, 0, none, 5, &made, &error));
    STORES_NULL(brooklet_tail, brooklet_tail_open(NULL, KEY("k"), 0, &made, &error));
    STORES_NULL(brooklet_tail, brooklet_tail_open(store, none, 5, 0, &made, &error));
    STORES_NULL(brooklet_wait, brooklet_wait_open(NULL, KEY("k"), 1, &made, &error));
    STORES_NULL(brooklet_wait, brooklet_wait_open(store, none, 5, 1, &made, &error));
    size_t used, count;
    STORES_NULL(brooklet_entries,
                brooklet_read_fill(NULL, KEY("k"), 0, 1, true, buffer, 100, &used, &count, &made, &error));
    STORES_NULL(brooklet_entries,
                brooklet_read_fill(store, none, 5, 0, 1, true, buffer, 100, &used, &count, &made, &error));
    STORES_NULL(brooklet_entries,
                brooklet_read_fill(store, KEY("k"), 0, 1, true, NULL, 100, &used, &count, &made, &error));
}

/* A commit whose numbers have no place is refused before it is made. */
static void places_of_numbers(brooklet_store *store) {
    brooklet_error *error = NULL;
    brooklet_queue *queue = NULL;
    const brooklet_operation append = {.kind = BROOKLET_APPEND, .key_len = 1, .number = 1};
    char packed[sizeof append + 2];
    memcpy(packed, &append, sizeof append);
    memcpy(packed + sizeof append, "nx", 2);
    ok(brooklet_queue_new(&queue, &error), &error);
    refused(brooklet_commit_wait(store, packed, sizeof packed, UINT64_MAX, NULL, 1, NULL, &error), &error,
            BROOKLET_INVALID, "place for numbers");
    refused(brooklet_queue_commit(queue, store, packed, sizeof packed, UINT64_MAX, true, NULL, 1, NULL, NULL, &error),
            &error, BROOKLET_INVALID, "place for numbers");
    bool exists = true;
    ok(brooklet_flush(store, &error), &error);
    ok(brooklet_exists(store, KEY("n"), &exists, &error), &error);
    assert(!exists);
    brooklet_queue_free(queue);
}

/* A buffer in which a call finds nothing to copy is empty. */
static void counts_of_fills(brooklet_store *store) {
    brooklet_error *error = NULL;
    brooklet_queue *queue = NULL;
    brooklet_tail *tail = NULL;
    brooklet_tail_event event;
    char buffer[100];
    size_t used = 7, count = 7;
    ok(brooklet_queue_new(&queue, &error), &error);
    ok(brooklet_tail_open(store, KEY("none"), 0, &tail, &error), &error);
    assert(brooklet_tail_fill(tail, queue, 1, buffer, sizeof buffer, &used, &count, &event, &error) == BROOKLET_TIMEOUT);
    assert(used == 0 && count == 0);
    used = count = 7;
    refused(brooklet_logs_fill(NULL, buffer, sizeof buffer, &used, &count, &error), &error, BROOKLET_INVALID, "NULL");
    assert(used == 0 && count == 0);
    brooklet_tail_free(tail);
    brooklet_queue_free(queue);
}

int main(int argc, char **argv) {
    assert(argc == 2);
    brooklet_store *store = opened(argv[1]);
    handles_of_writes(store);
    handles_of_reads(store);
    places_of_numbers(store);
    counts_of_fills(store);
    brooklet_store_free(store);
    printf("all places hold\n");
    return 0;
}
