/* What the library promises to callers in C: each call, wrong arguments, threads, and a fork. */

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static void writes_and_reads(brooklet_store *store) {
    brooklet_error *error = NULL;
    uint64_t seq = 99, first = 99, next = 99;
    ok(brooklet_append_wait(store, KEY("doc/1"), "hello", 5, &seq, &error), &error);
    assert(seq == 0);
    brooklet_ticket *ticket = NULL;
    /* An empty payload, and one with a NUL in it. */
    ok(brooklet_append(store, KEY("doc/1"), NULL, 0, &ticket, &error), &error);
    assert(brooklet_ticket_seq(ticket) == 1);
    ok(brooklet_ticket_wait(ticket, UINT64_MAX, &error), &error);
    assert(brooklet_ticket_is_done(ticket));
    brooklet_ticket_free(ticket);
    ok(brooklet_append_wait(store, KEY("doc/1"), "a\0b", 3, NULL, &error), &error);

    brooklet_entries *entries = NULL;
    brooklet_entry entry;
    ok(brooklet_read(store, KEY("doc/1"), 0, UINT64_MAX, false, &entries, &error), &error);
    ok(brooklet_entries_next(entries, &entry, &error), &error);
    assert(entry.seq == 0 && entry.payload_len == 5 && memcmp(entry.payload, "hello", 5) == 0);
    ok(brooklet_entries_next(entries, &entry, &error), &error);
    assert(entry.seq == 1 && entry.payload_len == 0);
    ok(brooklet_entries_next(entries, &entry, &error), &error);
    assert(entry.seq == 2 && entry.payload_len == 3 && memcmp(entry.payload, "a\0b", 3) == 0);
    assert(brooklet_entries_next(entries, &entry, &error) == BROOKLET_END && error == NULL);
    brooklet_entries_free(entries);

    ok(brooklet_read(store, KEY("doc/1"), 1, UINT64_MAX, false, &entries, &error), &error);
    ok(brooklet_entries_reverse(entries, &error), &error);
    ok(brooklet_entries_next(entries, &entry, &error), &error);
    assert(entry.seq == 2);
    ok(brooklet_entries_next(entries, &entry, &error), &error);
    assert(entry.seq == 1);
    assert(brooklet_entries_next(entries, &entry, &error) == BROOKLET_END && error == NULL);
    brooklet_entries_free(entries);

    refused(brooklet_read(store, KEY("doc/1"), 0, 9, false, &entries, &error), &error, BROOKLET_NOT_FOUND, "doc/1");
    assert(entries == NULL);
    ok(brooklet_read(store, KEY("nobody"), 0, 9, true, &entries, &error), &error);
    assert(brooklet_entries_next(entries, &entry, &error) == BROOKLET_END);
    brooklet_entries_free(entries);

    bool exists = false;
    ok(brooklet_first(store, KEY("doc/1"), &entries, &entry, &error), &error);
    assert(entry.seq == 0);
    assert(brooklet_entries_next(entries, &entry, &error) == BROOKLET_END && error == NULL);
    brooklet_entries_free(entries);
    ok(brooklet_last(store, KEY("doc/1"), &entries, &entry, &error), &error);
    assert(entry.seq == 2);
    brooklet_entries_free(entries);
    assert(brooklet_first(store, KEY("nobody"), &entries, &entry, &error) == BROOKLET_END && entries == NULL);
    assert(brooklet_last(store, KEY("nobody"), &entries, &entry, &error) == BROOKLET_END && entries == NULL);
    ok(brooklet_exists(store, KEY("doc/1"), &exists, &error), &error);
    assert(exists);
    ok(brooklet_exists(store, KEY("nobody"), &exists, &error), &error);
    assert(!exists);
    refused(brooklet_first(store, KEY("doc/1"), NULL, &entry, &error), &error, BROOKLET_INVALID, "NULL");
    refused(brooklet_exists(NULL, KEY("doc/1"), &exists, &error), &error, BROOKLET_INVALID, "store");

    ok(brooklet_trim(store, KEY("doc/1"), 2, &ticket, &error), &error);
    ok(brooklet_ticket_wait(ticket, UINT64_MAX, &error), &error);
    brooklet_ticket_free(ticket);
    ok(brooklet_bounds(store, KEY("doc/1"), &first, &next, &error), &error);
    assert(first == 2 && next == 3);
    brooklet_status status = brooklet_read(store, KEY("doc/1"), 0, UINT64_MAX, false, &entries, &error);
    assert(status == BROOKLET_NOT_FOUND);
    assert(brooklet_error_first(error, &first) && first == 2 && brooklet_error_next(error, &next) && next == 3);
    brooklet_error_free(error);
    error = NULL;

    ok(brooklet_snapshot(store, KEY("doc/1"), "all", 3, &ticket, &error), &error);
    brooklet_ticket_free(ticket);
    ok(brooklet_set_retention(store, KEY("doc/1"), 1, UINT64_MAX, UINT64_MAX, &ticket, &error), &error);
    brooklet_ticket_free(ticket);
    ok(brooklet_append_wait(store, KEY("doc/1"), "more", 4, &seq, &error), &error);
    ok(brooklet_bounds(store, KEY("doc/1"), &first, &next, &error), &error);
    assert(seq == 4 && first == 4 && next == 5);
    ok(brooklet_truncate(store, KEY("doc/1"), 4, &ticket, &error), &error);
    brooklet_ticket_free(ticket);
    ok(brooklet_delete(store, KEY("doc/1"), &ticket, &error), &error);
    /* Readers see it once it is on stable media. */
    ok(brooklet_ticket_wait(ticket, UINT64_MAX, &error), &error);
    brooklet_ticket_free(ticket);
    refused(brooklet_bounds(store, KEY("doc/1"), NULL, NULL, &error), &error, BROOKLET_NOT_FOUND, "doc/1");
}

static void commits(brooklet_store *store) {
    brooklet_error *error = NULL;
    brooklet_commit *commit = brooklet_commit_new();
    brooklet_ticket *ticket = NULL;
    refused(brooklet_commit_to(commit, store, true, &ticket, &error), &error, BROOKLET_INVALID, "no operation");
    ok(brooklet_commit_expect_absent(commit, KEY("a"), &error), &error);
    ok(brooklet_commit_append(commit, KEY("a"), "1", 1, &error), &error);
    ok(brooklet_commit_append(commit, KEY("b"), "2", 1, &error), &error);
    ok(brooklet_commit_append(commit, KEY("a"), "3", 1, &error), &error);
    ok(brooklet_commit_to(commit, store, false, &ticket, &error), &error);
    size_t count = 0;
    const uint64_t *seqs = brooklet_ticket_seqs(ticket, &count);
    assert(count == 3 && seqs[0] == 0 && seqs[1] == 0 && seqs[2] == 1);
    brooklet_ticket_free(ticket);
    refused(brooklet_commit_to(commit, store, true, &ticket, &error), &error, BROOKLET_CONFLICT, "log a");
    assert(ticket == NULL);

    brooklet_commit_clear(commit);
    ok(brooklet_commit_expect_next(commit, KEY("a"), 7, &error), &error);
    ok(brooklet_commit_snapshot(commit, KEY("a"), "4", 1, &error), &error);
    uint64_t next = 0;
    assert(brooklet_commit_to(commit, store, true, &ticket, &error) == BROOKLET_CONFLICT);
    assert(brooklet_error_next(error, &next) && next == 2);
    brooklet_error_free(error);
    error = NULL;

    brooklet_commit_clear(commit);
    ok(brooklet_commit_trim(commit, KEY("a"), 1, &error), &error);
    ok(brooklet_commit_truncate(commit, KEY("a"), 1, &error), &error);
    ok(brooklet_commit_delete(commit, KEY("b"), &error), &error);
    brooklet_commit_defer(commit, SECOND);
    ok(brooklet_commit_to(commit, store, true, &ticket, &error), &error);
    assert(brooklet_ticket_is_done(ticket));
    assert(brooklet_ticket_seqs(ticket, &count) == NULL && count == 0);
    brooklet_ticket_free(ticket);
    brooklet_commit_clear(commit);
    ok(brooklet_commit_append(commit, KEY("a"), "5", 1, &error), &error);
    brooklet_commit_defer(commit, SECOND);
    brooklet_commit_durable(commit);
    ok(brooklet_commit_to(commit, store, true, &ticket, &error), &error);
    ok(brooklet_ticket_wait(ticket, UINT64_MAX, &error), &error);
    brooklet_ticket_free(ticket);
    ok(brooklet_flush(store, &error), &error);
    brooklet_commit_free(commit);
}

static void scans(brooklet_store *store) {
    brooklet_error *error = NULL;
    char key[32];
    for (int i = 0; i < 5; i++) {
        int len = snprintf(key, sizeof key, "scan/%d", i);
        ok(brooklet_append_wait(store, key, (size_t)len, "x", 1, NULL, &error), &error);
    }
    brooklet_logs *logs = NULL;
    brooklet_log log;
    ok(brooklet_scan(store, KEY("scan/"), KEY("scan/2"), &logs, &error), &error);
    for (int i = 2; i < 5; i++) {
        snprintf(key, sizeof key, "scan/%d", i);
        ok(brooklet_logs_next(logs, &log, &error), &error);
        assert(log.key_len == 6 && memcmp(log.key, key, 6) == 0 && log.first == 0 && log.next == 1);
    }
    assert(brooklet_logs_next(logs, &log, &error) == BROOKLET_END);
    brooklet_logs_free(logs);
}

static void tails(brooklet_store *store) {
    brooklet_error *error = NULL;
    brooklet_tail *tail = NULL;
    brooklet_tail_event event;
    brooklet_ticket *ticket = NULL;
    ok(brooklet_tail_open(store, KEY("tail"), 0, &tail, &error), &error);
    assert(brooklet_tail_next(tail, 0, &event, &error) == BROOKLET_TIMEOUT && error == NULL);
    assert(brooklet_tail_next(tail, 1000000, &event, &error) == BROOKLET_TIMEOUT && error == NULL);
    assert(brooklet_wait_for(store, KEY("tail"), 1, 1000000, &error) == BROOKLET_TIMEOUT);
    for (int i = 0; i < 3; i++) {
        ok(brooklet_append_wait(store, KEY("tail"), "entry", 5, NULL, &error), &error);
    }
    ok(brooklet_wait_for(store, KEY("tail"), 3, 0, &error), &error);
    ok(brooklet_tail_next(tail, UINT64_MAX, &event, &error), &error);
    assert(event.kind == BROOKLET_TAIL_ENTRY && event.entry.seq == 0 && event.entry.payload_len == 5);
    ok(brooklet_trim(store, KEY("tail"), 2, &ticket, &error), &error);
    ok(brooklet_ticket_wait(ticket, 60 * SECOND, &error), &error);
    brooklet_ticket_free(ticket);
    /* The tail may hold a view with entry 1 still. */
    do {
        ok(brooklet_tail_next(tail, 60 * SECOND, &event, &error), &error);
        assert(event.kind == BROOKLET_TAIL_ENTRY || (event.kind == BROOKLET_TAIL_TRIMMED && event.to == 2));
    } while (brooklet_tail_position(tail) < 3);
    ok(brooklet_delete(store, KEY("tail"), &ticket, &error), &error);
    brooklet_ticket_free(ticket);
    ok(brooklet_tail_next(tail, 60 * SECOND, &event, &error), &error);
    assert(event.kind == BROOKLET_TAIL_DELETED && brooklet_tail_position(tail) == 0);
    brooklet_tail_free(tail);
}

static void called(void *context, brooklet_status status, const brooklet_error *error) {
    assert(status == BROOKLET_OK && error == NULL);
    assert(write(*(int *)context, "!", 1) == 1);
}

static void completions(brooklet_store *store) {
    enum { WRITES = 1000, AT_ONCE = 64 };
    brooklet_error *error = NULL;
    brooklet_queue *queue = NULL;
    brooklet_ticket *ticket = NULL;
    ok(brooklet_queue_new(&queue, &error), &error);
    struct pollfd wait = {.fd = brooklet_queue_fd(queue), .events = POLLIN};
    assert(poll(&wait, 1, 0) == 0);
    for (uint64_t tag = 0; tag < WRITES; tag++) {
        ok(brooklet_append(store, KEY("queue"), &tag, sizeof tag, &ticket, &error), &error);
        ok(brooklet_ticket_notify(ticket, queue, tag, &error), &error);
        brooklet_ticket_free(ticket);
    }
    char seen[WRITES] = {0};
    for (size_t taken = 0; taken < WRITES;) {
        assert(poll(&wait, 1, 60000) == 1);
        brooklet_completion done[AT_ONCE];
        size_t count = 0;
        ok(brooklet_queue_take(queue, done, AT_ONCE, 0, &count, &error), &error);
        assert(count > 0 && count <= AT_ONCE);
        for (size_t i = 0; i < count; i++) {
            assert(done[i].status == BROOKLET_OK && done[i].error == NULL && !seen[done[i].tag]++);
        }
        taken += count;
    }
    assert(poll(&wait, 1, 0) == 0);
    brooklet_completion one;
    size_t count = 9;
    assert(brooklet_queue_take(queue, &one, 1, 1000000, &count, &error) == BROOKLET_TIMEOUT && count == 0);
    /* A thread that waits within the library. */
    ok(brooklet_append(store, KEY("queue"), "x", 1, &ticket, &error), &error);
    ok(brooklet_ticket_notify(ticket, queue, 7, &error), &error);
    ok(brooklet_queue_take(queue, &one, 1, UINT64_MAX, &count, &error), &error);
    assert(count == 1 && one.tag == 7);
    /* A wake-up without a write. */
    ok(brooklet_queue_post(queue, 9, &error), &error);
    ok(brooklet_queue_take(queue, &one, 1, UINT64_MAX, &count, &error), &error);
    assert(count == 1 && one.tag == 9 && one.writes == 1 && one.status == BROOKLET_OK && one.error == NULL);
    /* A completion that comes after its queue. */
    ok(brooklet_ticket_notify(ticket, queue, 8, &error), &error);
    brooklet_ticket_free(ticket);
    ok(brooklet_append(store, KEY("queue"), "x", 1, &ticket, &error), &error);
    ok(brooklet_ticket_notify(ticket, queue, 9, &error), &error);
    brooklet_queue_free(queue);

    int ends[2];
    char byte;
    assert(pipe(ends) == 0);
    ok(brooklet_ticket_on_done(ticket, called, &ends[1], &error), &error);
    assert(read(ends[0], &byte, 1) == 1 && byte == '!');
    brooklet_ticket_free(ticket);
    close(ends[0]);
    close(ends[1]);
}

/* Adds an operation to packed operations, and returns their new length. */
static size_t pack(char *packed, size_t len, uint32_t kind, const char *key, uint64_t number, const char *payload) {
    brooklet_operation head = {.kind = kind, .key_len = (uint32_t)strlen(key), .number = number};
    memcpy(packed + len, &head, sizeof head);
    memcpy(packed + len + sizeof head, key, head.key_len);
    len += sizeof head + head.key_len;
    if (payload != NULL) memcpy(packed + len, payload, number);
    return payload == NULL ? len : len + number;
}

static void groups(brooklet_store *store) {
    enum { WRITES = 1000 };
    brooklet_error *error = NULL;
    brooklet_queue *queue = NULL;
    ok(brooklet_queue_new(&queue, &error), &error);
    uint64_t expected = 0, seq = 0, group = 0, last = 0, changes = 0;
    for (uint64_t i = 0; i < WRITES; i++) {
        ok(brooklet_queue_append(queue, store, KEY("group"), "x", 1, i % 2 == 0, &seq, &group, &error), &error);
        assert(seq == i && (group == 0 || group >> 63 == 1));
        expected += group != 0;
        changes += group != 0 && group != last;
        last = group;
    }
    char packed[1024];
    const uint64_t limits[3] = {2, UINT64_MAX, UINT64_MAX};
    size_t len = pack(packed, 0, BROOKLET_EXPECT_ABSENT, "packed", 0, NULL);
    len = pack(packed, len, BROOKLET_EXPECT_NEXT, "group", WRITES, NULL);
    len = pack(packed, len, BROOKLET_BEGIN_AT, "packed", 70, NULL);
    len = pack(packed, len, BROOKLET_APPEND, "packed", 5, "seven");
    len = pack(packed, len, BROOKLET_SNAPSHOT, "group", 0, "");
    len = pack(packed, len, BROOKLET_APPEND, "packed", 1, "7");
    uint64_t seqs[3] = {9, 9, 9};
    size_t count = 0;
    ok(brooklet_queue_commit(queue, store, packed, len, UINT64_MAX, true, seqs, 2, &count, &group, &error), &error);
    assert(count == 3 && seqs[0] == 70 && seqs[1] == WRITES && seqs[2] == 9);
    expected += group != 0;
    for (uint64_t ended = 0, completions = 0; ended < expected; completions++) {
        brooklet_completion one;
        ok(brooklet_queue_take(queue, &one, 1, 60 * SECOND, &count, &error), &error);
        assert(one.status == BROOKLET_OK && one.tag >> 63 == 1 && one.writes > 0);
        ended += one.writes;
        assert(ended <= expected && completions <= changes + 1);
    }

    len = pack(packed, 0, BROOKLET_APPEND, "waited", 1, "w");
    seqs[0] = 9;
    ok(brooklet_commit_wait(store, packed, len, UINT64_MAX, seqs, 1, &count, &error), &error);
    assert(count == 1 && seqs[0] == 0);
    ok(brooklet_commit_wait(store, packed, len, UINT64_MAX - 1, seqs, 1, &count, &error), &error);
    assert(count == 1 && seqs[0] == 1);
    refused(brooklet_commit_wait(store, packed, len - 1, UINT64_MAX, NULL, 0, NULL, &error), &error, BROOKLET_INVALID,
            "within an operation");

    /* The other operations, and a deferred commit: no completion follows. */
    len = pack(packed, 0, BROOKLET_TRIM, "packed", 71, NULL);
    len = pack(packed, len, BROOKLET_TRUNCATE, "packed", 71, NULL);
    len = pack(packed, len, BROOKLET_APPEND, "packed", 1, "a");
    len = pack(packed, len, BROOKLET_APPEND, "packed", 1, "b");
    len = pack(packed, len, BROOKLET_KEEP_LAST, "packed", 1, NULL);
    len = pack(packed, len, BROOKLET_DELETE, "group", 0, NULL);
    len = pack(packed, len, BROOKLET_RETAIN, "packed", sizeof limits, (const char *)limits);
    ok(brooklet_queue_commit(queue, store, packed, len, SECOND, false, NULL, 0, NULL, &group, &error), &error);
    assert(group == 0);
    uint64_t first = 0, next = 0;
    ok(brooklet_bounds(store, KEY("packed"), &first, &next, &error), &error);
    assert(first == 72 && next == 73);
    refused(brooklet_bounds(store, KEY("group"), &first, &next, &error), &error, BROOKLET_NOT_FOUND, "group");

    /* Refused: a conflict, which has no effect, a cut operation, an unknown kind, no place. */
    len = pack(packed, 0, BROOKLET_EXPECT_NEXT, "packed", 9, NULL);
    refused(brooklet_queue_commit(queue, store, packed, len, UINT64_MAX, true, NULL, 0, NULL, &group, &error),
            &error, BROOKLET_CONFLICT, "packed");
    refused(brooklet_queue_commit(queue, store, packed, len - 1, UINT64_MAX, true, NULL, 0, NULL, &group, &error),
            &error, BROOKLET_INVALID, "within an operation");
    len = pack(packed, 0, 99, "packed", 0, NULL);
    refused(brooklet_queue_commit(queue, store, packed, len, UINT64_MAX, true, NULL, 0, NULL, &group, &error),
            &error, BROOKLET_INVALID, "unknown kind");
    refused(brooklet_queue_append(queue, NULL, "k", 1, NULL, 0, true, NULL, NULL, &error), &error, BROOKLET_INVALID, "store");
    refused(brooklet_queue_append(NULL, store, "k", 1, NULL, 0, true, NULL, NULL, &error), &error, BROOKLET_INVALID, "queue");

    brooklet_commit *commit = brooklet_commit_new();
    brooklet_ticket *ticket = NULL;
    len = pack(packed, 0, BROOKLET_APPEND, "packed", 1, "c");
    ok(brooklet_commit_begin_at(commit, KEY("packed"), 100, &error), &error);
    ok(brooklet_commit_add(commit, packed, len, &error), &error);
    ok(brooklet_commit_to(commit, store, true, &ticket, &error), &error);
    assert(brooklet_ticket_seq(ticket) == 100);
    brooklet_ticket_free(ticket);
    brooklet_commit_free(commit);

    /* A completion that comes after its queue. */
    ok(brooklet_queue_append(queue, store, KEY("packed"), "x", 1, true, &seq, &group, &error), &error);
    brooklet_queue_free(queue);
}

static void fills(brooklet_store *store) {
    enum { ENTRIES = 100, SIZE = 26 };
    brooklet_error *error = NULL;
    brooklet_entries *entries = NULL;
    char buffer[10 * SIZE], payload[SIZE];
    memset(payload, 'p', sizeof payload);
    memset(buffer, 0, sizeof buffer);
    for (int i = 0; i < ENTRIES; i++) ok(brooklet_append_wait(store, KEY("fill"), payload, 10, NULL, &error), &error);
    ok(brooklet_append_wait(store, KEY("fill"), buffer, sizeof buffer, NULL, &error), &error);
    size_t used = 0, count = 0;
    uint64_t seq = 0;
    brooklet_status status = brooklet_read_fill(store, KEY("fill"), 0, UINT64_MAX, false, buffer, sizeof buffer, &used,
                                                &count, &entries, &error);
    for (; count > 0; status = brooklet_entries_fill(entries, buffer, sizeof buffer, &used, &count, &error)) {
        ok(status, &error);
        assert(count == 10 && used == sizeof buffer && entries != NULL);
        for (size_t i = 0; i < count; i++) {
            brooklet_packed_entry head;
            memcpy(&head, buffer + i * SIZE, sizeof head);
            assert(head.seq == seq++ && head.len == 10 && buffer[i * SIZE + sizeof head] == 'p');
        }
    }
    /* The last entry is larger than the buffer: the call reports what it needs, and loses nothing. */
    brooklet_entry entry;
    assert(seq == ENTRIES && status == BROOKLET_OK && used == sizeof buffer + 16);
    ok(brooklet_entries_next(entries, &entry, &error), &error);
    assert(entry.seq == ENTRIES && entry.payload_len == sizeof buffer);
    assert(brooklet_entries_fill(entries, buffer, sizeof buffer, &used, &count, &error) == BROOKLET_END && count == 0);
    brooklet_entries_free(entries);
    status = brooklet_read_fill(store, KEY("fill"), 3, 5, false, buffer, sizeof buffer, &used, &count, &entries, &error);
    assert(status == BROOKLET_END && count == 2 && used == 2 * SIZE && entries == NULL && error == NULL);
    refused(brooklet_read_fill(store, KEY("none"), 0, 1, false, buffer, sizeof buffer, &used, &count, &entries, &error),
            &error, BROOKLET_NOT_FOUND, "none");
    refused(brooklet_read_fill(store, KEY("fill"), 0, 1, false, NULL, 1, &used, &count, &entries, &error), &error,
            BROOKLET_INVALID, "buffer");

    /* Logs, of which one finds room at a time. */
    brooklet_logs *logs = NULL;
    brooklet_packed_log log;
    uint64_t found = 0;
    ok(brooklet_scan(store, "fil", 3, NULL, 0, &logs, &error), &error);
    assert(brooklet_logs_fill(logs, buffer, 3, &used, &count, &error) == BROOKLET_OK && count == 0 && used == 28);
    while (brooklet_logs_fill(logs, buffer, 30, &used, &count, &error) == BROOKLET_OK || count > 0) {
        memcpy(&log, buffer, sizeof log);
        assert(count == 1 && log.key_len == 4 && log.next == ENTRIES + 1 && memcmp(buffer + sizeof log, "fill", 4) == 0);
        found++;
    }
    assert(found == 1);
    brooklet_logs_free(logs);

    brooklet_info info;
    ok(brooklet_store_info(store, &info, &error), &error);
    assert(info.ring_size >= info.ring_in_use && info.memtable_logs > 0 && !info.stopped);
}

static void tail_fills(brooklet_store *store) {
    brooklet_error *error = NULL;
    brooklet_queue *queue = NULL;
    brooklet_tail *tail = NULL;
    brooklet_tail_event event;
    brooklet_completion one;
    char buffer[60];
    size_t used = 0, count = 0, taken = 0;
    ok(brooklet_queue_new(&queue, &error), &error);
    ok(brooklet_tail_open(store, KEY("filled"), 0, &tail, &error), &error);
    for (uint64_t i = 0, tag = 5; i < 4;) {
        brooklet_status status =
            brooklet_tail_fill(tail, queue, tag, buffer, sizeof buffer, &used, &count, &event, &error);
        if (status == BROOKLET_TIMEOUT) {
            if (i == 0) {
                for (int n = 0; n < 4; n++) ok(brooklet_append_wait(store, KEY("filled"), "entry", 5, NULL, &error), &error);
            }
            ok(brooklet_queue_take(queue, &one, 1, 60 * SECOND, &taken, &error), &error);
            assert(one.tag == tag++);
            continue;
        }
        ok(status, &error);
        assert(event.kind == BROOKLET_TAIL_ENTRY && count > 0 && count <= 2 && used == count * 21);
        i += count;
        assert(brooklet_tail_position(tail) == i);
    }
    ok(brooklet_append_wait(store, KEY("filled"), "larger than the buffer, which then is as it was", 45, NULL, &error), &error);
    while (brooklet_tail_fill(tail, queue, 0, buffer, sizeof buffer, &used, &count, &event, &error) == BROOKLET_TIMEOUT) {
        ok(brooklet_queue_take(queue, &one, 1, 60 * SECOND, &taken, &error), &error);
    }
    assert(count == 0 && used == 61 && brooklet_tail_position(tail) == 4);
    ok(brooklet_tail_next(tail, 0, &event, &error), &error);
    assert(event.kind == BROOKLET_TAIL_ENTRY && event.entry.seq == 4 && event.entry.payload_len == 45);
    brooklet_ticket *ticket = NULL;
    ok(brooklet_delete(store, KEY("filled"), &ticket, &error), &error);
    ok(brooklet_ticket_wait(ticket, UINT64_MAX, &error), &error);
    brooklet_ticket_free(ticket);
    while (brooklet_tail_fill(tail, queue, 0, buffer, sizeof buffer, &used, &count, &event, &error) == BROOKLET_TIMEOUT) {
        ok(brooklet_queue_take(queue, &one, 1, 60 * SECOND, &taken, &error), &error);
    }
    assert(count == 0 && event.kind == BROOKLET_TAIL_DELETED);
    refused(brooklet_tail_fill(tail, NULL, 0, buffer, 1, &used, &count, &event, &error), &error, BROOKLET_INVALID, "queue");
    brooklet_tail_free(tail);
    brooklet_queue_free(queue);
}

static void wrong_arguments(brooklet_store *store) {
    brooklet_error *error = NULL;
    brooklet_ticket *ticket = NULL;
    brooklet_entries *entries = NULL;
    brooklet_entry entry;
    brooklet_store *other = NULL;
    size_t count;
    brooklet_completion one;
    refused(brooklet_open(NULL, NULL, &other, &error), &error, BROOKLET_INVALID, "path is NULL");
    refused(brooklet_open("/nowhere/at/all", NULL, &other, &error), &error, BROOKLET_IO, "/nowhere");
    refused(brooklet_open("/tmp", NULL, NULL, &error), &error, BROOKLET_INVALID, "place");
    refused(brooklet_flush(NULL, &error), &error, BROOKLET_INVALID, "store is NULL");
    refused(brooklet_append_wait(store, NULL, 0, "x", 1, NULL, &error), &error, BROOKLET_INVALID, "a key of 0 bytes");
    refused(brooklet_append_wait(store, NULL, 5, "x", 1, NULL, &error), &error, BROOKLET_INVALID, "NULL");
    refused(brooklet_append_wait(store, KEY("k"), "x", SIZE_MAX, NULL, &error), &error, BROOKLET_INVALID, "length");
    refused(brooklet_append(store, KEY("k"), "x", 1, NULL, &error), &error, BROOKLET_INVALID, "place");
    static char large[(1 << 20) + 1];
    refused(brooklet_append_wait(store, KEY("k"), large, sizeof large, NULL, &error), &error, BROOKLET_INVALID, "max_payload");
    refused(brooklet_append_wait(store, large, 1025, "x", 1, NULL, &error), &error, BROOKLET_INVALID, "1025 bytes");
    refused(brooklet_ticket_wait(NULL, 0, &error), &error, BROOKLET_INVALID, "ticket is NULL");
    refused(brooklet_ticket_on_done(NULL, NULL, NULL, &error), &error, BROOKLET_INVALID, "callback is NULL");
    refused(brooklet_entries_next(entries, &entry, &error), &error, BROOKLET_INVALID, "entries are NULL");
    refused(brooklet_entries_reverse(NULL, &error), &error, BROOKLET_INVALID, "entries are NULL");
    refused(brooklet_queue_post(NULL, 0, &error), &error, BROOKLET_INVALID, "queue is NULL");
    refused(brooklet_queue_take(NULL, &one, 1, 0, &count, &error), &error, BROOKLET_INVALID, "queue is NULL");
    refused(brooklet_commit_append(NULL, KEY("k"), "x", 1, &error), &error, BROOKLET_INVALID, "commit is NULL");
    refused(brooklet_options_create(NULL, 9, &error), &error, BROOKLET_INVALID, "none of 0, 1 and 2");
    assert(brooklet_ticket_seq(NULL) == 0 && brooklet_ticket_is_done(NULL) && brooklet_queue_fd(NULL) == -1);
    /* Nobody asks for the error. */
    assert(brooklet_flush(NULL, NULL) == BROOKLET_INVALID);
    assert(strcmp(brooklet_error_message(NULL), "") == 0 && !brooklet_error_next(NULL, NULL));
    brooklet_store_free(NULL);
    brooklet_ticket_free(ticket);
    brooklet_entries_free(NULL);
    brooklet_logs_free(NULL);
    brooklet_tail_free(NULL);
    brooklet_queue_free(NULL);
    brooklet_commit_free(NULL);
    brooklet_options_free(NULL);
    brooklet_error_free(NULL);
}

static void commits_that_keep(brooklet_store *store) {
    brooklet_error *error = NULL;
    brooklet_ticket *ticket = NULL;
    brooklet_commit *commit = brooklet_commit_new();
    uint64_t first = 0, next = 0;
    for (int i = 0; i < 5; i++) ok(brooklet_commit_append(commit, KEY("kept"), "x", 1, &error), &error);
    ok(brooklet_commit_keep_last(commit, KEY("kept"), 2, &error), &error);
    ok(brooklet_commit_to(commit, store, true, &ticket, &error), &error);
    ok(brooklet_ticket_wait(ticket, UINT64_MAX, &error), &error);
    brooklet_ticket_free(ticket);
    ok(brooklet_bounds(store, KEY("kept"), &first, &next, &error), &error);
    assert(first == 3 && next == 5);
    brooklet_commit_clear(commit);
    ok(brooklet_commit_set_retention(commit, KEY("kept"), 1, UINT64_MAX, UINT64_MAX, &error), &error);
    ok(brooklet_commit_to(commit, store, true, &ticket, &error), &error);
    ok(brooklet_ticket_wait(ticket, UINT64_MAX, &error), &error);
    brooklet_ticket_free(ticket);
    ok(brooklet_append_wait(store, KEY("kept"), "y", 1, NULL, &error), &error);
    ok(brooklet_bounds(store, KEY("kept"), &first, &next, &error), &error);
    assert(first == 5 && next == 6);
    brooklet_commit_free(commit);
}

enum { THREADS = 16, EACH = 200 };

static void *appends(void *store) {
    brooklet_error *error = NULL;
    for (int i = 0; i < EACH; i++) {
        ok(brooklet_append_wait(store, KEY("shared"), "entry", 5, NULL, &error), &error);
    }
    return NULL;
}

static void threads(brooklet_store *store) {
    pthread_t all[THREADS];
    for (int i = 0; i < THREADS; i++) assert(pthread_create(&all[i], NULL, appends, store) == 0);
    for (int i = 0; i < THREADS; i++) assert(pthread_join(all[i], NULL) == 0);
    brooklet_error *error = NULL;
    uint64_t next = 0;
    ok(brooklet_bounds(store, KEY("shared"), NULL, &next, &error), &error);
    assert(next == THREADS * EACH);
}

static void forks(brooklet_store *store) {
    pid_t child = fork();
    if (child == 0) {
        brooklet_error *error = NULL;
        refused(brooklet_append_wait(store, KEY("child"), "x", 1, NULL, &error), &error, BROOKLET_STOPPED, "fork");
        brooklet_store_free(store);
        _exit(0);
    }
    int status = 1;
    assert(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    brooklet_error *error = NULL;
    ok(brooklet_append_wait(store, KEY("parent"), "x", 1, NULL, &error), &error);
}

int main(int argc, char **argv) {
    assert(argc == 2 || argc == 3);
    brooklet_store *store = opened(argv[1]);
    brooklet_error *error = NULL;
    writes_and_reads(store);
    commits(store);
    commits_that_keep(store);
    scans(store);
    tails(store);
    completions(store);
    groups(store);
    fills(store);
    tail_fills(store);
    wrong_arguments(store);
    threads(store);
    ok(brooklet_checkpoint(store, &error), &error);
    /* A child frees nothing that its parent's threads may hold: valgrind calls that a leak. */
    if (argc == 2) forks(store);

    brooklet_store *second = NULL;
    refused(brooklet_open(argv[1], NULL, &second, &error), &error, BROOKLET_CANNOT_OPEN, "open already");
    brooklet_ticket *ticket = NULL;
    brooklet_tail *tail = NULL;
    ok(brooklet_append(store, KEY("last"), "x", 1, &ticket, &error), &error);
    ok(brooklet_tail_open(store, KEY("last"), 1, &tail, &error), &error);
    ok(brooklet_close(store, &error), &error);
    ok(brooklet_close(store, &error), &error);
    assert(!brooklet_error_is_closed(NULL));
    brooklet_flush(NULL, &error);
    assert(!brooklet_error_is_closed(error));
    brooklet_error_free(error);
    brooklet_append_wait(store, KEY("k"), "x", 1, NULL, &error);
    assert(brooklet_error_is_closed(error));
    brooklet_error_free(error);
    refused(brooklet_append_wait(store, KEY("k"), "x", 1, NULL, &error), &error, BROOKLET_STOPPED, "closed");
    brooklet_tail_event event;
    refused(brooklet_tail_next(tail, UINT64_MAX, &event, &error), &error, BROOKLET_STOPPED, "closed");
    /* Handles may outlive their store. */
    brooklet_store_free(store);
    ok(brooklet_ticket_wait(ticket, UINT64_MAX, &error), &error);
    brooklet_ticket_free(ticket);
    brooklet_tail_free(tail);

    store = opened(argv[1]);
    uint64_t next = 0;
    ok(brooklet_bounds(store, KEY("last"), NULL, &next, &error), &error);
    assert(next == 1);
    brooklet_store_free(store);
    printf("all calls of the C library hold\n");
    return 0;
}
