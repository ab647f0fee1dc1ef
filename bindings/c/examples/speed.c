/* Measures the calls of the C library. `examples/speed.rs` does the same in Rust; `tests/speed` runs both in turns. With the
   word "memory" behind the path, it makes ten million calls, and prints the memory of the process after each fifth of them. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "brooklet.h"

enum { APPENDS = 200000, LOGS = 10000, BYTES = 200, ENTRIES = 1000, READS = 2000 };

static void must(brooklet_status status, brooklet_error *error) {
    if (status > BROOKLET_OK) {
        fprintf(stderr, "%s\n", brooklet_error_message(error));
        exit(1);
    }
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void append(brooklet_store *store, const char *key, const void *payload) {
    brooklet_error *error = NULL;
    brooklet_ticket *ticket = NULL;
    must(brooklet_append(store, key, strlen(key), payload, BYTES, &ticket, &error), error);
    brooklet_ticket_free(ticket);
}

static uint64_t read_log(const brooklet_store *store, const char *key, bool available) {
    brooklet_error *error = NULL;
    brooklet_entries *entries = NULL;
    brooklet_entry entry;
    uint64_t sum = 0;
    must(brooklet_read(store, key, strlen(key), 0, UINT64_MAX, available, &entries, &error), error);
    while (brooklet_entries_next(entries, &entry, &error) == BROOKLET_OK) sum += entry.payload_len;
    brooklet_entries_free(entries);
    return sum;
}

/* Returns the memory of the process in bytes. */
static long resident(void) {
    long total = 0, pages = 0;
    FILE *status = fopen("/proc/self/statm", "r");
    if (status == NULL || fscanf(status, "%ld %ld", &total, &pages) != 2) exit(1);
    fclose(status);
    return pages * sysconf(_SC_PAGESIZE);
}

static void memory(brooklet_store *store) {
    enum { CALLS = 10000000 };
    char payload[BYTES], key[32];
    memset(payload, 'x', sizeof payload);
    for (int i = 1; i <= CALLS; i++) {
        brooklet_error *error = NULL;
        brooklet_ticket *ticket = NULL;
        uint64_t first = 0, next = 0;
        snprintf(key, sizeof key, "log/%d", i / 5 % LOGS);
        switch (i % 5) {
        case 0:
            append(store, key, payload);
            break;
        case 1: {
            brooklet_commit *commit = brooklet_commit_new();
            must(brooklet_commit_append(commit, key, strlen(key), payload, BYTES, &error), error);
            must(brooklet_commit_keep_last(commit, key, strlen(key), 10, &error), error);
            must(brooklet_commit_to(commit, store, true, &ticket, &error), error);
            brooklet_ticket_free(ticket);
            brooklet_commit_free(commit);
            break;
        }
        case 2: /* It fails, and makes an error. */
            brooklet_bounds(store, "none", 4, &first, &next, &error);
            brooklet_error_free(error);
            break;
        default:
            read_log(store, key, true);
        }
        if (i % (CALLS / 5) == 0) printf("bytes of memory after %d calls: %ld\n", i, resident());
    }
}

int main(int argc, char **argv) {
    if (argc != 2 && argc != 3) return 2;
    brooklet_error *error = NULL;
    brooklet_store *store = NULL;
    brooklet_options *options = brooklet_options_new();
    if (argc == 3) {
        /* Little of the store's own, so that growth shows. */
        brooklet_options_ring_size(options, 4 << 20);
        brooklet_options_max_payload(options, 1 << 20);
        brooklet_options_memory_budget(options, 16 << 20);
        brooklet_options_cache_budget(options, 8 << 20);
    }
    must(brooklet_open(argv[1], options, &store, &error), error);
    brooklet_options_free(options);
    if (argc == 3) {
        memory(store);
        must(brooklet_close(store, &error), error);
        brooklet_store_free(store);
        return 0;
    }
    char payload[BYTES], key[32];
    memset(payload, 'x', sizeof payload);

    /* The first round makes the logs, and the ring grows. */
    for (int round = 0; round < 2; round++) {
        double start = seconds();
        for (int i = 0; i < APPENDS; i++) {
            snprintf(key, sizeof key, "log/%d", i % LOGS);
            append(store, key, payload);
        }
        must(brooklet_flush(store, &error), error);
        if (round == 1) printf("appends/s that nobody waits for: %.0f\n", APPENDS / (seconds() - start));
    }

    for (int i = 0; i < ENTRIES; i++) append(store, "one", payload);
    must(brooklet_flush(store, &error), error);
    uint64_t sum = 0;
    double start = seconds();
    for (int i = 0; i < READS; i++) sum += read_log(store, "one", false);
    if (sum != (uint64_t)BYTES * ENTRIES * READS) return 1;
    printf("reads/s of a log of %d entries: %.0f\n", ENTRIES, READS / (seconds() - start));
    must(brooklet_close(store, &error), error);
    brooklet_store_free(store);
    return 0;
}
