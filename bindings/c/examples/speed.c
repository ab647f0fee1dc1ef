/* Measures the calls of the C library. `examples/speed.rs` does the same in Rust; `tests/speed` runs both in turns. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    brooklet_error *error = NULL;
    brooklet_store *store = NULL;
    must(brooklet_open(argv[1], NULL, &store, &error), error);
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
    for (int i = 0; i < READS; i++) {
        brooklet_entries *entries = NULL;
        brooklet_entry entry;
        must(brooklet_read(store, "one", 3, 0, UINT64_MAX, false, &entries, &error), error);
        while (brooklet_entries_next(entries, &entry, &error) == BROOKLET_OK) sum += entry.payload_len;
        brooklet_entries_free(entries);
    }
    if (sum != (uint64_t)BYTES * ENTRIES * READS) return 1;
    printf("reads/s of a log of %d entries: %.0f\n", ENTRIES, READS / (seconds() - start));
    must(brooklet_close(store, &error), error);
    brooklet_store_free(store);
    return 0;
}
