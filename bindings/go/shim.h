// Calls of the C library in the shape that cgo passes at the lowest cost: results come back by value,
// so that nothing escapes to the heap, and bytes are uint8_t, so that cgo does not search them for
// pointers.

#ifndef BROOKLET_SHIM_H
#define BROOKLET_SHIM_H

#include "brooklet.h"

typedef struct {
    brooklet_error *error;
    uint64_t seq;
    uint64_t group;
    size_t count;
    brooklet_status status;
} shim_written;

static inline shim_written shim_append(const brooklet_queue *queue, const brooklet_store *store, const uint8_t *key,
                                       size_t key_len, const uint8_t *payload, size_t payload_len, bool wait) {
    shim_written written = {0};
    written.status = brooklet_queue_append(queue, store, key, key_len, payload, payload_len, wait, &written.seq,
                                           &written.group, &written.error);
    return written;
}

static inline shim_written shim_commit(const brooklet_queue *queue, const brooklet_store *store,
                                       const uint8_t *operations, size_t len, uint64_t defer, bool wait,
                                       uint64_t *seqs, size_t most) {
    shim_written written = {0};
    written.status = brooklet_queue_commit(queue, store, operations, len, defer, wait, seqs, most, &written.count,
                                           &written.group, &written.error);
    return written;
}

static inline shim_written shim_append_wait(const brooklet_store *store, const uint8_t *key, size_t key_len,
                                            const uint8_t *payload, size_t payload_len) {
    shim_written written = {0};
    written.status = brooklet_append_wait(store, key, key_len, payload, payload_len, &written.seq, &written.error);
    return written;
}

static inline shim_written shim_commit_wait(const brooklet_store *store, const uint8_t *operations, size_t len,
                                            uint64_t defer, uint64_t *seqs, size_t most) {
    shim_written written = {0};
    written.status =
        brooklet_commit_wait(store, operations, len, defer, seqs, most, &written.count, &written.error);
    return written;
}

typedef struct {
    brooklet_error *error;
    brooklet_status status;
    bool acknowledged;
} shim_requested;

static inline shim_requested shim_request(const brooklet_queue *queue, uint64_t group) {
    shim_requested requested = {0};
    requested.status = brooklet_queue_request(queue, group, &requested.acknowledged, &requested.error);
    return requested;
}

typedef struct {
    brooklet_error *error;
    void *rest;
    size_t used;
    size_t count;
    brooklet_tail_event event;
    brooklet_status status;
} shim_filled;

static inline shim_filled shim_read(const brooklet_store *store, const uint8_t *key, size_t key_len, uint64_t from,
                                    uint64_t to, bool available, uint8_t *buffer, size_t size) {
    shim_filled filled = {0};
    brooklet_entries *rest = NULL;
    filled.status = brooklet_read_fill(store, key, key_len, from, to, available, buffer, size, &filled.used,
                                       &filled.count, &rest, &filled.error);
    filled.rest = rest;
    return filled;
}

static inline shim_filled shim_entries(brooklet_entries *entries, uint8_t *buffer, size_t size) {
    shim_filled filled = {0};
    filled.status = brooklet_entries_fill(entries, buffer, size, &filled.used, &filled.count, &filled.error);
    return filled;
}

static inline shim_filled shim_logs(brooklet_logs *logs, uint8_t *buffer, size_t size) {
    shim_filled filled = {0};
    filled.status = brooklet_logs_fill(logs, buffer, size, &filled.used, &filled.count, &filled.error);
    return filled;
}

static inline shim_filled shim_tail(brooklet_tail *tail, const brooklet_queue *queue, uint64_t tag, uint8_t *buffer,
                                    size_t size) {
    shim_filled filled = {0};
    filled.status = brooklet_tail_fill(tail, queue, tag, buffer, size, &filled.used, &filled.count, &filled.event,
                                       &filled.error);
    return filled;
}

typedef struct {
    brooklet_error *error;
    brooklet_logs *logs;
    brooklet_status status;
} shim_listing;

static inline shim_listing shim_scan(const brooklet_store *store, const uint8_t *prefix, size_t prefix_len,
                                     const uint8_t *from, size_t from_len) {
    shim_listing listing = {0};
    listing.status = brooklet_scan(store, prefix, prefix_len, from, from_len, &listing.logs, &listing.error);
    return listing;
}

typedef struct {
    brooklet_error *error;
    brooklet_tail *tail;
    brooklet_status status;
} shim_following;

static inline shim_following shim_follow(const brooklet_store *store, const uint8_t *key, size_t key_len,
                                         uint64_t from) {
    shim_following following = {0};
    following.status = brooklet_tail_open(store, key, key_len, from, &following.tail, &following.error);
    return following;
}

typedef struct {
    brooklet_error *error;
    brooklet_wait *wait;
    brooklet_status status;
} shim_awaiting;

static inline shim_awaiting shim_await(const brooklet_store *store, const uint8_t *key, size_t key_len, uint64_t next) {
    shim_awaiting awaiting = {0};
    awaiting.status = brooklet_wait_open(store, key, key_len, next, &awaiting.wait, &awaiting.error);
    return awaiting;
}

typedef struct {
    brooklet_error *error;
    uint64_t first;
    uint64_t next;
    brooklet_status status;
} shim_bounds;

static inline shim_bounds shim_bounds_of(const brooklet_store *store, const uint8_t *key, size_t key_len) {
    shim_bounds bounds = {0};
    bounds.status = brooklet_bounds(store, key, key_len, &bounds.first, &bounds.next, &bounds.error);
    return bounds;
}

#endif
