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
    size_t used, count;
    STORES_NULL(brooklet_entries,
                brooklet_read_fill(NULL, KEY("k"), 0, 1, true, buffer, 100, &used, &count, &made, &error));
    STORES_NULL(brooklet_entries,
                brooklet_read_fill(store, none, 5, 0, 1, true, buffer, 100, &used, &count, &made, &error));
    STORES_NULL(brooklet_entries,
                brooklet_read_fill(store, KEY("k"), 0, 1, true, NULL, 100, &used, &count, &made, &error));
}

int main(int argc, char **argv) {
    assert(argc == 2);
    brooklet_store *store = opened(argv[1]);
    handles_of_writes(store);
    handles_of_reads(store);
    brooklet_store_free(store);
    printf("all places hold\n");
    return 0;
}
