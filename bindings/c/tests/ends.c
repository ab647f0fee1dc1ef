/* How things end: writes and tails of a store that fails, and queues in a child of a fork. */

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* Has the kernel refuse further writes to files, or allow them again. */
static void refuse_writes(bool refuse) {
    struct rlimit limit;
    assert(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = refuse ? 1 : limit.rlim_max;
    assert(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

static void writes_that_fail(brooklet_store *store) {
    brooklet_error *error = NULL;
    brooklet_ticket *ticket = NULL;
    refuse_writes(true);
    ok(brooklet_append(store, KEY("doc"), "x", 1, &ticket, &error), &error);
    refused(brooklet_ticket_wait(ticket, UINT64_MAX, &error), &error, BROOKLET_STOPPED, "stopped");
    refuse_writes(false);
    assert(brooklet_ticket_is_done(ticket));
    brooklet_ticket_free(ticket);
}

/* The first call after the end of the store returns the error, and each later one the end. */
static void tails_that_fail(const char *path) {
    enum { KINDS = 4 };
    static const uint64_t timeouts[KINDS] = {0, 1000000, SECOND, UINT64_MAX};
    brooklet_error *error = NULL;
    brooklet_store *store = opened(path);
    brooklet_queue *queue = NULL;
    brooklet_tail *tails[KINDS], *filled = NULL;
    brooklet_tail_event event;
    ok(brooklet_queue_new(&queue, &error), &error);
    ok(brooklet_tail_open(store, KEY("doc"), 0, &filled, &error), &error);
    for (int i = 0; i < KINDS; i++) ok(brooklet_tail_open(store, KEY("doc"), 0, &tails[i], &error), &error);
    ok(brooklet_close(store, &error), &error);
    char buffer[100];
    size_t used, count;
    for (int i = 0; i < KINDS; i++) {
        refused(brooklet_tail_next(tails[i], timeouts[i], &event, &error), &error, BROOKLET_STOPPED, "closed");
        for (int j = 0; j < KINDS; j++) {
            assert(brooklet_tail_next(tails[i], timeouts[j], &event, &error) == BROOKLET_END && error == NULL);
        }
        brooklet_tail_free(tails[i]);
    }
    refused(brooklet_tail_fill(filled, queue, 1, buffer, sizeof buffer, &used, &count, &event, &error), &error,
            BROOKLET_STOPPED, "closed");
    assert(brooklet_tail_fill(filled, queue, 1, buffer, sizeof buffer, &used, &count, &event, &error) == BROOKLET_END);
    assert(error == NULL);
    brooklet_tail_free(filled);
    brooklet_queue_free(queue);
    brooklet_store_free(store);
}

/* A child shares the pipe of its parent's queue: it is refused, and takes nothing. */
static void queues_and_forks(const char *path) {
    brooklet_error *error = NULL;
    brooklet_store *store = opened(path);
    brooklet_queue *queue = NULL;
    brooklet_ticket *ticket = NULL;
    brooklet_wait *reaches = NULL;
    brooklet_completion one;
    size_t count = 0;
    ok(brooklet_queue_new(&queue, &error), &error);
    ok(brooklet_wait_open(store, KEY("none"), 1, &reaches, &error), &error);
    ok(brooklet_append(store, KEY("doc"), "x", 1, &ticket, &error), &error);
    ok(brooklet_ticket_notify(ticket, queue, 7, &error), &error);
    struct pollfd wait = {.fd = brooklet_queue_fd(queue), .events = POLLIN};
    assert(poll(&wait, 1, 60000) == 1);
    char other[1024];
    assert(snprintf(other, sizeof other, "%s.child", path) < (int)sizeof other);
    pid_t child = fork();
    if (child == 0) {
        /* A child that hangs fails the test. */
        alarm(60);
        refused(brooklet_queue_take(queue, &one, 1, 0, &count, &error), &error, BROOKLET_STOPPED, "fork");
        refused(brooklet_queue_post(queue, 9, &error), &error, BROOKLET_STOPPED, "fork");
        refused(brooklet_ticket_notify(ticket, queue, 9, &error), &error, BROOKLET_STOPPED, "fork");
        assert(brooklet_queue_fd(queue) == -1 && brooklet_ticket_is_done(ticket));
#ifndef __SANITIZE_ADDRESS__
        /* A store of the child's own does not write by the queue either. Not under ASan: a thread of the parent may have held
         * a lock of its allocator at the fork, and the threads of this store would wait for that lock. */
        brooklet_store *opened_here = opened(other);
        refused(brooklet_queue_append(queue, opened_here, KEY("doc"), "x", 1, true, NULL, NULL, &error), &error,
                BROOKLET_STOPPED, "fork");
        uint64_t seqs[1];
        brooklet_operation head = {.kind = BROOKLET_APPEND, .key_len = 3, .number = 1};
        char packed[sizeof head + 4];
        memcpy(packed, &head, sizeof head);
        memcpy(packed + sizeof head, "docx", 4);
        refused(brooklet_queue_commit(queue, opened_here, packed, sizeof packed, UINT64_MAX, true, seqs, 1, NULL, NULL, &error),
                &error, BROOKLET_STOPPED, "fork");
        bool exists = true;
        ok(brooklet_exists(opened_here, KEY("doc"), &exists, &error), &error);
        assert(!exists);
        brooklet_store_free(opened_here);
#endif
        /* One of the child's own. */
        brooklet_queue *own = NULL;
        ok(brooklet_queue_new(&own, &error), &error);
        ok(brooklet_queue_post(own, 3, &error), &error);
        ok(brooklet_queue_take(own, &one, 1, 0, &count, &error), &error);
        assert(one.tag == 3);
        refused(brooklet_wait_poll(reaches, queue, 9, &error), &error, BROOKLET_STOPPED, "fork");
        refused(brooklet_wait_poll(reaches, own, 9, &error), &error, BROOKLET_STOPPED, "fork");
        brooklet_wait_free(reaches);
        brooklet_queue_free(own);
        brooklet_queue_free(queue);
        _exit(0);
    }
    int status = 1;
    assert(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    assert(poll(&wait, 1, 0) == 1);
    ok(brooklet_queue_take(queue, &one, 1, 0, &count, &error), &error);
    assert(count == 1 && one.tag == 7 && poll(&wait, 1, 0) == 0);
    brooklet_wait_free(reaches);
    brooklet_ticket_free(ticket);
    brooklet_queue_free(queue);
    brooklet_store_free(store);
}

/* Groups of a queue on request: none completes before, one that is under way does once, and failures are found. */
static void requests(const char *path) {
    brooklet_error *error = NULL;
    brooklet_store *store = opened(path);
    brooklet_queue *queue = NULL;
    brooklet_completion one;
    uint64_t group = 0;
    size_t count = 0;
    bool acknowledged = false;
    ok(brooklet_queue_new(&queue, &error), &error);
    brooklet_queue_on_request(queue);
    brooklet_queue_on_request(NULL);
    for (int i = 0; i < 100; i++) {
        ok(brooklet_queue_append(queue, store, KEY("doc"), "x", 1, true, NULL, &group, &error), &error);
    }
    ok(brooklet_flush(store, &error), &error);
    if (group != 0) {
        ok(brooklet_queue_request(queue, group, &acknowledged, &error), &error);
        assert(acknowledged);
    }
    ok(brooklet_queue_request(queue, 0, NULL, &error), &error);
    /* Nobody may take a tag of no write for that of an acknowledged one. */
    static const uint64_t unknown[] = {1, UINT64_C(1) << 63, UINT64_MAX};
    for (int i = 0; i < 3; i++) {
        refused(brooklet_queue_request(queue, unknown[i], &acknowledged, &error), &error, BROOKLET_INVALID, "tag");
    }
    assert(brooklet_queue_take(queue, &one, 1, 0, &count, &error) == BROOKLET_TIMEOUT && count == 0);
    do {
        ok(brooklet_queue_append(queue, store, KEY("doc"), "x", 1, true, NULL, &group, &error), &error);
        acknowledged = group == 0;
        if (group != 0) ok(brooklet_queue_request(queue, group, &acknowledged, &error), &error);
    } while (acknowledged);
    ok(brooklet_queue_take(queue, &one, 1, 60 * SECOND, &count, &error), &error);
    assert(count == 1 && one.tag == group && one.status == BROOKLET_OK && one.writes == 1);

    refuse_writes(true);
    ok(brooklet_queue_append(queue, store, KEY("doc"), "x", 1, true, NULL, &group, &error), &error);
    refused(brooklet_flush(store, &error), &error, BROOKLET_STOPPED, "stopped");
    refuse_writes(false);
    for (int i = 0; i < 2; i++) {
        refused(brooklet_queue_request(queue, group, &acknowledged, &error), &error, BROOKLET_STOPPED, "stopped");
    }
    brooklet_store_free(store);
    ok(brooklet_queue_request(queue, 0, NULL, &error), &error);
    ok(brooklet_queue_take(queue, &one, 1, 60 * SECOND, &count, &error), &error);
    assert(count == 1 && one.tag == group && one.status == BROOKLET_STOPPED);
    brooklet_error_free(one.error);
    refused(brooklet_queue_request(NULL, group, NULL, &error), &error, BROOKLET_INVALID, "queue");
    brooklet_queue_free(queue);
}

/* A queue that completes all its groups knows of none whether it is acknowledged. */
static void requests_of_no_use(const char *path) {
    brooklet_error *error = NULL;
    brooklet_store *store = opened(path);
    brooklet_queue *queue = NULL;
    brooklet_completion one;
    uint64_t group = 0;
    size_t count = 0;
    bool acknowledged = false;
    ok(brooklet_queue_new(&queue, &error), &error);
    while (group == 0) {
        ok(brooklet_queue_append(queue, store, KEY("doc"), "x", 1, true, NULL, &group, &error), &error);
    }
    /* Too late. */
    brooklet_queue_on_request(queue);
    refused(brooklet_queue_request(queue, group, &acknowledged, &error), &error, BROOKLET_INVALID, "request");
    refused(brooklet_queue_request(queue, 0, NULL, &error), &error, BROOKLET_INVALID, "request");
    assert(!acknowledged);
    ok(brooklet_queue_take(queue, &one, 1, 60 * SECOND, &count, &error), &error);
    assert(count == 1 && one.tag == group && one.status == BROOKLET_OK);
    brooklet_queue_free(queue);
    brooklet_store_free(store);
}

int main(int argc, char **argv) {
    assert(argc == 2);
    signal(SIGXFSZ, SIG_IGN);
    tails_that_fail(argv[1]);
    queues_and_forks(argv[1]);
    brooklet_store *store = opened(argv[1]);
    writes_that_fail(store);
    brooklet_store_free(store);
    char other[1024];
    assert(snprintf(other, sizeof other, "%s.requests", argv[1]) < (int)sizeof other);
    requests(other);
    assert(snprintf(other, sizeof other, "%s.of_no_use", argv[1]) < (int)sizeof other);
    requests_of_no_use(other);
    printf("all ends hold\n");
    return 0;
}
