/* Waits without a thread: numbers that a log reaches, keeps or drops again, and the end of a store. */

#include "check.h"

/* Takes the completion of a wait. */
static void notified(brooklet_queue *queue, uint64_t tag) {
    brooklet_error *error = NULL;
    brooklet_completion one;
    size_t count = 0;
    ok(brooklet_queue_take(queue, &one, 1, 60 * SECOND, &count, &error), &error);
    assert(count == 1 && one.tag == tag && one.status == BROOKLET_OK && one.error == NULL);
}

static void pending(brooklet_wait *wait, brooklet_queue *queue, uint64_t tag) {
    brooklet_error *error = NULL;
    assert(brooklet_wait_poll(wait, queue, tag, &error) == BROOKLET_TIMEOUT && error == NULL);
}

/* Later calls return the same. */
static void reached(brooklet_wait *wait, brooklet_queue *queue) {
    brooklet_error *error = NULL;
    for (int i = 0; i < 2; i++) ok(brooklet_wait_poll(wait, queue, 1, &error), &error);
    brooklet_wait_free(wait);
}

static void numbers_that_stay(brooklet_store *store, brooklet_queue *queue) {
    brooklet_error *error = NULL;
    brooklet_wait *wait = NULL;
    ok(brooklet_wait_open(store, KEY("doc"), 2, &wait, &error), &error);
    pending(wait, queue, 5);
    ok(brooklet_append_wait(store, KEY("doc"), "a", 1, NULL, &error), &error);
    notified(queue, 5);
    pending(wait, queue, 6);
    ok(brooklet_append_wait(store, KEY("doc"), "b", 1, NULL, &error), &error);
    notified(queue, 6);
    reached(wait, queue);
    /* What is there already, and what comes before the first look. */
    for (uint64_t next = 0; next < 3; next++) {
        ok(brooklet_wait_open(store, KEY("doc"), next, &wait, &error), &error);
        reached(wait, queue);
    }
    ok(brooklet_wait_open(store, KEY("doc"), 3, &wait, &error), &error);
    ok(brooklet_append_wait(store, KEY("doc"), "c", 1, NULL, &error), &error);
    reached(wait, queue);
    ok(brooklet_wait_open(store, KEY("doc"), 99, &wait, &error), &error);
    pending(wait, queue, 7);
    brooklet_wait_free(wait);
    brooklet_wait_free(NULL);
}

/* One commit reaches the number, and drops the entry again. */
static void numbers_that_go(brooklet_store *store, brooklet_queue *queue) {
    for (int how = 0; how < 3; how++) {
        brooklet_error *error = NULL;
        brooklet_wait *wait = NULL;
        brooklet_ticket *ticket = NULL;
        brooklet_commit *commit = brooklet_commit_new();
        const char key[1] = {(char)('0' + how)};
        ok(brooklet_wait_open(store, key, 1, 1, &wait, &error), &error);
        pending(wait, queue, 8);
        ok(brooklet_commit_append(commit, key, 1, "x", 1, &error), &error);
        if (how == 0) ok(brooklet_commit_trim(commit, key, 1, 1, &error), &error);
        if (how == 1) ok(brooklet_commit_truncate(commit, key, 1, 0, &error), &error);
        if (how == 2) ok(brooklet_commit_delete(commit, key, 1, &error), &error);
        ok(brooklet_commit_to(commit, store, true, &ticket, &error), &error);
        ok(brooklet_ticket_wait(ticket, UINT64_MAX, &error), &error);
        notified(queue, 8);
        reached(wait, queue);
        brooklet_ticket_free(ticket);
        brooklet_commit_free(commit);
    }
}

static void wrong_calls(brooklet_store *store, brooklet_queue *queue) {
    brooklet_error *error = NULL;
    brooklet_wait *wait = NULL;
    refused(brooklet_wait_open(NULL, KEY("doc"), 1, &wait, &error), &error, BROOKLET_INVALID, "store is NULL");
    refused(brooklet_wait_open(store, NULL, 3, 1, &wait, &error), &error, BROOKLET_INVALID, "NULL");
    refused(brooklet_wait_open(store, "", 0, 1, &wait, &error), &error, BROOKLET_INVALID, "key");
    refused(brooklet_wait_open(store, KEY("doc"), 1, NULL, &error), &error, BROOKLET_INVALID, "new handle");
    assert(wait == NULL);
    refused(brooklet_wait_poll(NULL, queue, 1, &error), &error, BROOKLET_INVALID, "wait is NULL");
    ok(brooklet_wait_open(store, KEY("doc"), 99, &wait, &error), &error);
    refused(brooklet_wait_poll(wait, NULL, 1, &error), &error, BROOKLET_INVALID, "queue is NULL");
    brooklet_wait_free(wait);
}

static void the_end_of_a_store(brooklet_store *store, brooklet_queue *queue) {
    brooklet_error *error = NULL;
    brooklet_wait *wait = NULL, *late = NULL;
    ok(brooklet_wait_open(store, KEY("doc"), 99, &wait, &error), &error);
    pending(wait, queue, 9);
    ok(brooklet_close(store, &error), &error);
    notified(queue, 9);
    for (int i = 0; i < 2; i++) {
        refused(brooklet_wait_poll(wait, queue, 9, &error), &error, BROOKLET_STOPPED, "closed");
    }
    refused(brooklet_wait_open(store, KEY("doc"), 1, &late, &error), &error, BROOKLET_STOPPED, "closed");
    assert(late == NULL);
    brooklet_store_free(store);
    refused(brooklet_wait_poll(wait, queue, 9, &error), &error, BROOKLET_STOPPED, "closed");
    brooklet_wait_free(wait);
}

int main(int argc, char **argv) {
    assert(argc == 2);
    brooklet_error *error = NULL;
    brooklet_store *store = opened(argv[1]);
    brooklet_queue *queue = NULL;
    ok(brooklet_queue_new(&queue, &error), &error);
    numbers_that_stay(store, queue);
    numbers_that_go(store, queue);
    wrong_calls(store, queue);
    the_end_of_a_store(store, queue);
    brooklet_queue_free(queue);
    printf("all waits hold\n");
    return 0;
}
