/* Appends by several threads, and prints each entry once it is acknowledged: `kill write STORE`. The
 * program is killed in mid-flight. `kill check STORE` then reads the printed lines, and finds each
 * entry in the store. */

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "brooklet.h"

enum { THREADS = 8, LOGS = 50 };

static brooklet_store *store;

static void must(brooklet_status status, brooklet_error *error) {
    if (status > BROOKLET_OK) {
        fprintf(stderr, "status %d: %s\n", (int)status, brooklet_error_message(error));
        exit(1);
    }
}

/* The payload of write `write` of a thread. */
static int payload(char *text, size_t size, unsigned thread, uint64_t write) {
    return snprintf(text, size, "thread %u, write %" PRIu64 ", and some more", thread, write);
}

static void *writes(void *argument) {
    unsigned thread = (unsigned)(uintptr_t)argument;
    brooklet_error *error = NULL;
    for (uint64_t number = 0;; number++) {
        char key[32], text[96], line[160];
        int key_len = snprintf(key, sizeof key, "log/%" PRIu64, (number * THREADS + thread) % LOGS);
        int len = payload(text, sizeof text, thread, number);
        uint64_t seq = 0;
        must(brooklet_append_wait(store, key, (size_t)key_len, text, (size_t)len, &seq, &error), error);
        int told = snprintf(line, sizeof line, "%s %" PRIu64 " %u %" PRIu64 "\n", key, seq, thread, number);
        /* One call a line: a kill may cut the last one. */
        if (write(STDOUT_FILENO, line, (size_t)told) != told) exit(1);
    }
    return NULL;
}

static int check(void) {
    char key[32], text[96];
    uint64_t seq, number, found = 0;
    unsigned thread;
    while (scanf("%31s %" SCNu64 " %u %" SCNu64, key, &seq, &thread, &number) == 4) {
        brooklet_error *error = NULL;
        brooklet_entries *entries = NULL;
        brooklet_entry entry;
        must(brooklet_read(store, key, strlen(key), seq, seq + 1, false, &entries, &error), error);
        must(brooklet_entries_next(entries, &entry, &error), error);
        int len = payload(text, sizeof text, thread, number);
        if (entry.seq != seq || entry.payload_len != (size_t)len || memcmp(entry.payload, text, (size_t)len) != 0) {
            fprintf(stderr, "entry %" PRIu64 " of %s is not the one that was acknowledged\n", seq, key);
            return 1;
        }
        brooklet_entries_free(entries);
        found++;
    }
    printf("%" PRIu64 " acknowledged entries found\n", found);
    return found > 0 ? 0 : 1;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    brooklet_error *error = NULL;
    must(brooklet_open(argv[2], NULL, &store, &error), error);
    if (strcmp(argv[1], "check") == 0) {
        int code = check();
        brooklet_store_free(store);
        return code;
    }
    pthread_t thread;
    for (uintptr_t i = 1; i < THREADS; i++) {
        if (pthread_create(&thread, NULL, writes, (void *)i) != 0) return 1;
    }
    writes((void *)0);
    return 0;
}
