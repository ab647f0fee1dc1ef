/* An event loop that appends without waiting, and learns of many acknowledgements at once. */

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "brooklet.h"

enum { WRITES = 10000, AT_ONCE = 256 };

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
    brooklet_queue *queue = NULL;
    must(brooklet_open(path, NULL, &store, &error), error);
    must(brooklet_queue_new(&queue, &error), error);

    for (uint64_t write = 0; write < WRITES; write++) {
        char key[32];
        int len = snprintf(key, sizeof key, "sensor/%" PRIu64, write % 100);
        brooklet_ticket *ticket = NULL;
        must(brooklet_append(store, key, (size_t)len, &write, sizeof write, &ticket, &error), error);
        must(brooklet_ticket_notify(ticket, queue, write, &error), error);
        brooklet_ticket_free(ticket);
    }

    /* The descriptor fits into any event loop. */
    struct pollfd wait = {.fd = brooklet_queue_fd(queue), .events = POLLIN};
    size_t acknowledged = 0, failed = 0;
    while (acknowledged + failed < WRITES && poll(&wait, 1, 60000) > 0) {
        brooklet_completion done[AT_ONCE];
        size_t count = 0;
        must(brooklet_queue_take(queue, done, AT_ONCE, 0, &count, &error), error);
        for (size_t i = 0; i < count; i++) {
            if (done[i].status == BROOKLET_OK) {
                acknowledged++;
            } else {
                failed++;
                fprintf(stderr, "write %" PRIu64 ": %s\n", done[i].tag, brooklet_error_message(done[i].error));
                brooklet_error_free(done[i].error);
            }
        }
    }
    printf("%zu of %d writes acknowledged\n", acknowledged, WRITES);

    brooklet_queue_free(queue);
    must(brooklet_close(store, &error), error);
    brooklet_store_free(store);
    return acknowledged == WRITES ? 0 : 1;
}
