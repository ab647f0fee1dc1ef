/* The native part of the Java library: the methods of brooklet.Native, on the C library.
 *
 * Java checks all arguments before a call, keeps handles from being freed during one, and packs and unpacks entries. So this
 * file only passes bytes and numbers on, and turns errors into exceptions. No call holds a part of the heap of Java
 * (GetPrimitiveArrayCritical) while it waits: bytes are copied first. */

#include <jni.h>
#include <stdlib.h>
#include <string.h>

#include "brooklet.h"

/* Bytes of Java of up to this size are copied to the stack. */
#define SMALL 4096

static jclass exceptions;
static jmethodID exception_of;

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *vm, void *reserved) {
    JNIEnv *env = NULL;
    (void)reserved;
    if ((*vm)->GetEnv(vm, (void **)&env, JNI_VERSION_1_8) != JNI_OK) return JNI_ERR;
    jclass found = (*env)->FindClass(env, "brooklet/BrookletException");
    if (found == NULL) return JNI_ERR;
    exceptions = (*env)->NewGlobalRef(env, found);
    (*env)->DeleteLocalRef(env, found);
    if (exceptions == NULL) return JNI_ERR;
    exception_of = (*env)->GetStaticMethodID(env, exceptions, "of", "(I[BJJZ)Lbrooklet/BrookletException;");
    return exception_of == NULL ? JNI_ERR : JNI_VERSION_1_8;
}

static void out_of_memory(JNIEnv *env) {
    jclass type = (*env)->FindClass(env, "java/lang/OutOfMemoryError");
    if (type != NULL) (*env)->ThrowNew(env, type, "brooklet: no native memory for the bytes of a call");
}

/* Returns the exception for an error, and frees the error. NULL if another exception is pending. */
static jobject exception(JNIEnv *env, brooklet_error *error) {
    uint64_t first = UINT64_MAX, next = UINT64_MAX;
    const char *text = brooklet_error_message(error);
    jsize length = (jsize)strlen(text);
    jint status = brooklet_error_status(error);
    jboolean closed = brooklet_error_is_closed(error);
    brooklet_error_first(error, &first);
    brooklet_error_next(error, &next);
    /* Not NewStringUTF: that takes a UTF-8 of its own kind. */
    jbyteArray message = (*env)->NewByteArray(env, length);
    if (message != NULL) (*env)->SetByteArrayRegion(env, message, 0, length, (const jbyte *)text);
    brooklet_error_free(error);
    if (message == NULL || (*env)->ExceptionCheck(env)) return NULL;
    jobject made =
        (*env)->CallStaticObjectMethod(env, exceptions, exception_of, status, message, (jlong)first, (jlong)next, closed);
    (*env)->DeleteLocalRef(env, message);
    return (*env)->ExceptionCheck(env) ? NULL : made;
}

/* Throws the exception for an error, if there is one, and returns whether. */
static int failed(JNIEnv *env, brooklet_error *error) {
    if (error == NULL) return 0;
    jobject thrown = exception(env, error);
    if (thrown != NULL) (*env)->Throw(env, thrown);
    return 1;
}

/* A copy of bytes of Java. */
typedef struct {
    const void *data;
    size_t length;
    void *large;
    uint8_t small[SMALL];
} bytes;

/* Copies bytes; throws and returns 0 if there is no memory. */
static int take(JNIEnv *env, bytes *taken, jbyteArray array, jint length) {
    uint8_t *place = taken->small;
    taken->large = NULL;
    if (length > SMALL) {
        place = taken->large = malloc((size_t)length);
        if (place == NULL) {
            out_of_memory(env);
            return 0;
        }
    }
    (*env)->GetByteArrayRegion(env, array, 0, length, (jbyte *)place);
    taken->data = place;
    taken->length = (size_t)length;
    if (!(*env)->ExceptionCheck(env)) return 1;
    free(taken->large);
    return 0;
}

static int take_all(JNIEnv *env, bytes *taken, jbyteArray array) {
    return take(env, taken, array, (*env)->GetArrayLength(env, array));
}

static void drop(bytes *taken) { free(taken->large); }

static void give(JNIEnv *env, jlongArray place, jsize count, const jlong *numbers) {
    (*env)->SetLongArrayRegion(env, place, 0, count, numbers);
}

static jbyteArray array_of(JNIEnv *env, const uint8_t *data, size_t length) {
    jbyteArray made = (*env)->NewByteArray(env, (jsize)length);
    if (made != NULL) (*env)->SetByteArrayRegion(env, made, 0, (jsize)length, (const jbyte *)data);
    return made;
}

#define HANDLE(type, handle) ((type *)(intptr_t)(handle))
#define NATIVE(result, name) JNIEXPORT result JNICALL Java_brooklet_Native_##name

/* The options are numbers in the order of brooklet.Options.numbers(); a negative one is the default. */
static brooklet_options *options_of(const jlong *given, brooklet_error **error) {
    brooklet_options *options = brooklet_options_new();
    brooklet_options_create(options, (uint32_t)given[0], error);
    if (given[1] >= 0) brooklet_options_ring_size(options, (uint64_t)given[1]);
    if (given[2] >= 0) brooklet_options_memory_budget(options, (size_t)given[2]);
    if (given[3] >= 0) brooklet_options_cache_budget(options, (size_t)given[3]);
    if (given[4] >= 0) brooklet_options_max_payload(options, (size_t)given[4]);
    if (given[5] >= 0) brooklet_options_permissions(options, (uint32_t)given[5]);
    if (given[6] >= 0) brooklet_options_linger(options, (uint64_t)given[6]);
    brooklet_options_read_only(options, given[7] != 0);
    brooklet_options_beside_writer(options, given[8] != 0);
    if (given[9] >= 0) brooklet_options_capacity(options, (uint64_t)given[9]);
    return options;
}

/* `ring` is null if the ring has no file of its own. */
NATIVE(jlong, open)(JNIEnv *env, jclass type, jbyteArray path, jbyteArray ring, jlongArray given) {
    (void)type;
    jlong numbers[10];
    bytes name, place;
    (*env)->GetLongArrayRegion(env, given, 0, 10, numbers);
    if ((*env)->ExceptionCheck(env) || !take_all(env, &name, path)) return 0;
    if (ring != NULL && !take_all(env, &place, ring)) {
        drop(&name);
        return 0;
    }
    brooklet_error *error = NULL;
    brooklet_store *store = NULL;
    brooklet_options *options = options_of(numbers, &error);
    if (error == NULL && ring != NULL) brooklet_options_ring_at(options, place.data, &error);
    if (error == NULL) brooklet_open(name.data, options, &store, &error);
    brooklet_options_free(options);
    if (ring != NULL) drop(&place);
    drop(&name);
    failed(env, error);
    return (jlong)(intptr_t)store;
}

NATIVE(void, close)(JNIEnv *env, jclass type, jlong store) {
    (void)type;
    brooklet_error *error = NULL;
    brooklet_close(HANDLE(brooklet_store, store), &error);
    failed(env, error);
}

NATIVE(void, freeStore)(JNIEnv *env, jclass type, jlong store) {
    (void)env, (void)type;
    brooklet_store_free(HANDLE(brooklet_store, store));
}

NATIVE(void, flush)(JNIEnv *env, jclass type, jlong store) {
    (void)type;
    brooklet_error *error = NULL;
    brooklet_flush(HANDLE(brooklet_store, store), &error);
    failed(env, error);
}

NATIVE(void, checkpoint)(JNIEnv *env, jclass type, jlong store) {
    (void)type;
    brooklet_error *error = NULL;
    brooklet_checkpoint(HANDLE(brooklet_store, store), &error);
    failed(env, error);
}

NATIVE(void, info)(JNIEnv *env, jclass type, jlong store, jlongArray out) {
    (void)type;
    brooklet_error *error = NULL;
    brooklet_info info;
    brooklet_store_info(HANDLE(brooklet_store, store), &info, &error);
    if (failed(env, error)) return;
    jlong numbers[] = {
        (jlong)info.format,        (jlong)info.epoch, (jlong)info.size,      (jlong)info.heap_free, (jlong)info.ring_size,
        (jlong)info.ring_in_use,   (jlong)info.memtable_logs, (jlong)info.memtable_bytes, (jlong)info.runs,
        (jlong)info.run_bytes,     info.checkpointing, info.compacting,      info.stopped,
    };
    give(env, out, sizeof numbers / sizeof *numbers, numbers);
}

/* How a write waits: the numbers of brooklet.Core.How. */
enum { TRY, WAIT_FOR_ROOM, WAIT_TO_THE_END };

/* Appends. Stores the number of the entry and the tag of its group at `out`; the tag is 0 if the entry is acknowledged. Returns
 * whether the call would have to wait, and may not. */
NATIVE(jboolean, append)(JNIEnv *env, jclass type, jlong queue, jlong store, jbyteArray key, jbyteArray payload, jint how,
                         jlongArray out) {
    (void)type;
    bytes name, content;
    if (!take_all(env, &name, key)) return JNI_FALSE;
    if (!take_all(env, &content, payload)) {
        drop(&name);
        return JNI_FALSE;
    }
    uint64_t seq = 0, group = 0;
    brooklet_error *error = NULL;
    const brooklet_store *opened = HANDLE(brooklet_store, store);
    brooklet_status status =
        how == WAIT_TO_THE_END
            ? brooklet_append_wait(opened, name.data, name.length, content.data, content.length, &seq, &error)
            : brooklet_queue_append(HANDLE(brooklet_queue, queue), opened, name.data, name.length, content.data,
                                    content.length, how == WAIT_FOR_ROOM, &seq, &group, &error);
    drop(&name);
    drop(&content);
    if (status == BROOKLET_BUSY && how == TRY) {
        brooklet_error_free(error);
        return JNI_TRUE;
    }
    if (failed(env, error)) return JNI_FALSE;
    give(env, out, 2, (jlong[]){(jlong)seq, (jlong)group});
    return JNI_FALSE;
}

/* Commits packed operations. Stores the numbers of the entries at `out`, and the tag of the group behind them. Otherwise as
 * `append`. */
NATIVE(jboolean, commit)(JNIEnv *env, jclass type, jlong queue, jlong store, jbyteArray packed, jint length, jlong defer,
                         jint how, jlongArray out) {
    (void)type;
    jsize most = (*env)->GetArrayLength(env, out);
    uint64_t one[2], *numbers = most <= 2 ? one : malloc((size_t)most * sizeof *numbers);
    bytes operations;
    if (numbers == NULL) {
        out_of_memory(env);
        return JNI_FALSE;
    }
    jboolean busy = JNI_FALSE;
    if (take(env, &operations, packed, length)) {
        uint64_t group = 0;
        brooklet_error *error = NULL;
        const brooklet_store *opened = HANDLE(brooklet_store, store);
        /* -1 and -2 become the two bounds that are none. */
        uint64_t bound = (uint64_t)defer;
        brooklet_status status =
            how == WAIT_TO_THE_END
                ? brooklet_commit_wait(opened, operations.data, operations.length, bound, numbers, (size_t)most - 1, NULL, &error)
                : brooklet_queue_commit(HANDLE(brooklet_queue, queue), opened, operations.data, operations.length, bound,
                                        how == WAIT_FOR_ROOM, numbers, (size_t)most - 1, NULL, &group, &error);
        drop(&operations);
        busy = status == BROOKLET_BUSY && how == TRY;
        if (busy) {
            brooklet_error_free(error);
        } else if (!failed(env, error)) {
            numbers[most - 1] = group;
            give(env, out, most, (const jlong *)numbers);
        }
    }
    if (numbers != one) free(numbers);
    return busy;
}

NATIVE(jlong, newQueue)(JNIEnv *env, jclass type) {
    (void)type;
    brooklet_error *error = NULL;
    brooklet_queue *queue = NULL;
    brooklet_queue_new(&queue, &error);
    failed(env, error);
    return (jlong)(intptr_t)queue;
}

NATIVE(void, freeQueue)(JNIEnv *env, jclass type, jlong queue) {
    (void)env, (void)type;
    brooklet_queue_free(HANDLE(brooklet_queue, queue));
}

NATIVE(void, post)(JNIEnv *env, jclass type, jlong queue, jlong tag) {
    (void)type;
    brooklet_error *error = NULL;
    brooklet_queue_post(HANDLE(brooklet_queue, queue), (uint64_t)tag, &error);
    failed(env, error);
}

/* Takes completions, and waits for the first if `wait`. Stores pairs of a tag and a number of writes at `out`, and the
 * exceptions of those that failed at `failures`. Returns how many it took. If the heap has no room for such an exception, the
 * number n of its writes is stored as -1 - n: no completion may be lost. */
NATIVE(jint, take)(JNIEnv *env, jclass type, jlong queue, jboolean wait, jlongArray out, jobjectArray failures) {
    (void)type;
    enum { MOST = 64 };
    brooklet_completion taken[MOST];
    jlong numbers[2 * MOST];
    size_t count = 0, most = (size_t)(*env)->GetArrayLength(env, failures);
    brooklet_error *error = NULL;
    brooklet_queue_take(HANDLE(brooklet_queue, queue), taken, most < MOST ? most : MOST, wait ? UINT64_MAX : 0, &count, &error);
    if (failed(env, error)) return 0;
    for (size_t i = 0; i < count; i++) {
        numbers[2 * i] = (jlong)taken[i].tag;
        numbers[2 * i + 1] = (jlong)taken[i].writes;
        if (taken[i].error == NULL) continue;
        jobject failure = exception(env, taken[i].error);
        if (failure == NULL) {
            (*env)->ExceptionClear(env);
            numbers[2 * i + 1] = -1 - numbers[2 * i + 1];
            continue;
        }
        (*env)->SetObjectArrayElement(env, failures, (jsize)i, failure);
        (*env)->DeleteLocalRef(env, failure);
    }
    give(env, out, (jsize)(2 * count), numbers);
    return (jint)count;
}

/* Where a buffer of Java is, and how large it is. */
static void *place_of(JNIEnv *env, jobject buffer, size_t *size) {
    *size = (size_t)(*env)->GetDirectBufferCapacity(env, buffer);
    return (*env)->GetDirectBufferAddress(env, buffer);
}

/* Reads the first entries into a buffer. Stores the bytes and the number of the entries at `out`. Returns a handle for the
 * rest, or 0 if all was read. */
NATIVE(jlong, read)(JNIEnv *env, jclass type, jlong store, jbyteArray key, jlong from, jlong to, jboolean available,
                    jboolean reversed, jobject buffer, jlongArray out) {
    (void)type;
    bytes name;
    if (!take_all(env, &name, key)) return 0;
    size_t size, used = 0, count = 0;
    void *place = place_of(env, buffer, &size);
    brooklet_error *error = NULL;
    brooklet_entries *rest = NULL;
    const brooklet_store *opened = HANDLE(brooklet_store, store);
    uint64_t end = to < 0 ? UINT64_MAX : (uint64_t)to;
    if (!reversed) {
        brooklet_read_fill(opened, name.data, name.length, (uint64_t)from, end, available, place, size, &used, &count, &rest,
                           &error);
    } else {
        brooklet_read(opened, name.data, name.length, (uint64_t)from, end, available, &rest, &error);
        if (error == NULL) brooklet_entries_reverse(rest, &error);
        if (error == NULL && brooklet_entries_fill(rest, place, size, &used, &count, &error) == BROOKLET_END) {
            brooklet_entries_free(rest);
            rest = NULL;
        }
    }
    drop(&name);
    if (failed(env, error)) {
        brooklet_entries_free(rest);
        return 0;
    }
    give(env, out, 2, (jlong[]){(jlong)used, (jlong)count});
    return (jlong)(intptr_t)rest;
}

/* Reads more entries. Returns whether more may follow. */
NATIVE(jboolean, fillEntries)(JNIEnv *env, jclass type, jlong entries, jobject buffer, jlongArray out) {
    (void)type;
    size_t size, used = 0, count = 0;
    void *place = place_of(env, buffer, &size);
    brooklet_error *error = NULL;
    brooklet_status status = brooklet_entries_fill(HANDLE(brooklet_entries, entries), place, size, &used, &count, &error);
    if (failed(env, error)) return JNI_FALSE;
    give(env, out, 2, (jlong[]){(jlong)used, (jlong)count});
    return status != BROOKLET_END;
}

/* Returns the payload of the next entry, which no buffer has room for, and stores its number at `out`. */
NATIVE(jbyteArray, largeEntry)(JNIEnv *env, jclass type, jlong entries, jlongArray out) {
    (void)type;
    brooklet_entry entry = {0};
    brooklet_error *error = NULL;
    brooklet_status status = brooklet_entries_next(HANDLE(brooklet_entries, entries), &entry, &error);
    if (failed(env, error) || status != BROOKLET_OK) return NULL;
    give(env, out, 1, (jlong[]){(jlong)entry.seq});
    return array_of(env, entry.payload, entry.payload_len);
}

NATIVE(void, freeEntries)(JNIEnv *env, jclass type, jlong entries) {
    (void)env, (void)type;
    brooklet_entries_free(HANDLE(brooklet_entries, entries));
}

/* Stores the bounds of a log at `out`. Returns whether there is the log; with `must`, a missing log is an exception. */
NATIVE(jboolean, bounds)(JNIEnv *env, jclass type, jlong store, jbyteArray key, jboolean must, jlongArray out) {
    (void)type;
    bytes name;
    if (!take_all(env, &name, key)) return JNI_FALSE;
    uint64_t first = 0, next = 0;
    brooklet_error *error = NULL;
    brooklet_status status =
        brooklet_bounds(HANDLE(brooklet_store, store), name.data, name.length, &first, &next, &error);
    drop(&name);
    if (status == BROOKLET_NOT_FOUND && !must) {
        brooklet_error_free(error);
        return JNI_FALSE;
    }
    if (failed(env, error)) return JNI_FALSE;
    give(env, out, 2, (jlong[]){(jlong)first, (jlong)next});
    return JNI_TRUE;
}

NATIVE(jlong, scan)(JNIEnv *env, jclass type, jlong store, jbyteArray prefix, jbyteArray from) {
    (void)type;
    bytes begin, place;
    if (!take_all(env, &begin, prefix)) return 0;
    if (!take_all(env, &place, from)) {
        drop(&begin);
        return 0;
    }
    brooklet_logs *logs = NULL;
    brooklet_error *error = NULL;
    brooklet_scan(HANDLE(brooklet_store, store), begin.data, begin.length, place.data, place.length, &logs, &error);
    drop(&begin);
    drop(&place);
    failed(env, error);
    return (jlong)(intptr_t)logs;
}

/* Lists more logs. Returns whether more may follow. */
NATIVE(jboolean, fillLogs)(JNIEnv *env, jclass type, jlong logs, jobject buffer, jlongArray out) {
    (void)type;
    size_t size, used = 0, count = 0;
    void *place = place_of(env, buffer, &size);
    brooklet_error *error = NULL;
    brooklet_status status = brooklet_logs_fill(HANDLE(brooklet_logs, logs), place, size, &used, &count, &error);
    if (failed(env, error)) return JNI_FALSE;
    give(env, out, 2, (jlong[]){(jlong)used, (jlong)count});
    return status != BROOKLET_END;
}

NATIVE(void, freeLogs)(JNIEnv *env, jclass type, jlong logs) {
    (void)env, (void)type;
    brooklet_logs_free(HANDLE(brooklet_logs, logs));
}

NATIVE(jlong, openTail)(JNIEnv *env, jclass type, jlong store, jbyteArray key, jlong from) {
    (void)type;
    bytes name;
    if (!take_all(env, &name, key)) return 0;
    brooklet_tail *tail = NULL;
    brooklet_error *error = NULL;
    brooklet_tail_open(HANDLE(brooklet_store, store), name.data, name.length, (uint64_t)from, &tail, &error);
    drop(&name);
    failed(env, error);
    return (jlong)(intptr_t)tail;
}

/* Copies the next entries of a tail into a buffer. Stores at `out`: the bytes and the number of the entries; the kind of the
 * event behind them, and its two numbers. Returns whether there was anything: otherwise the queue gets `tag`. */
NATIVE(jboolean, fillTail)(JNIEnv *env, jclass type, jlong tail, jlong queue, jlong tag, jobject buffer, jlongArray out) {
    (void)type;
    size_t size, used = 0, count = 0;
    void *place = place_of(env, buffer, &size);
    brooklet_tail_event event = {0};
    brooklet_error *error = NULL;
    brooklet_status status = brooklet_tail_fill(HANDLE(brooklet_tail, tail), HANDLE(brooklet_queue, queue), (uint64_t)tag, place,
                                                size, &used, &count, &event, &error);
    if (failed(env, error) || status == BROOKLET_TIMEOUT) return JNI_FALSE;
    give(env, out, 5, (jlong[]){(jlong)used, (jlong)count, event.kind, (jlong)event.from, (jlong)event.to});
    return JNI_TRUE;
}

/* Returns the payload of the next entry of a tail, which no buffer has room for, and stores its number at `out`. */
NATIVE(jbyteArray, largeTail)(JNIEnv *env, jclass type, jlong tail, jlongArray out) {
    (void)type;
    brooklet_tail_event event = {0};
    brooklet_error *error = NULL;
    brooklet_status status = brooklet_tail_next(HANDLE(brooklet_tail, tail), 0, &event, &error);
    if (failed(env, error) || status != BROOKLET_OK) return NULL;
    give(env, out, 1, (jlong[]){(jlong)event.entry.seq});
    return array_of(env, event.entry.payload, event.entry.payload_len);
}

NATIVE(void, freeTail)(JNIEnv *env, jclass type, jlong tail) {
    (void)env, (void)type;
    brooklet_tail_free(HANDLE(brooklet_tail, tail));
}

NATIVE(jlong, openWait)(JNIEnv *env, jclass type, jlong store, jbyteArray key, jlong next) {
    (void)type;
    bytes name;
    if (!take_all(env, &name, key)) return 0;
    brooklet_wait *wait = NULL;
    brooklet_error *error = NULL;
    brooklet_wait_open(HANDLE(brooklet_store, store), name.data, name.length, (uint64_t)next, &wait, &error);
    drop(&name);
    failed(env, error);
    return (jlong)(intptr_t)wait;
}

/* Returns whether a log has reached the number of a wait: otherwise the queue gets `tag`. */
NATIVE(jboolean, pollWait)(JNIEnv *env, jclass type, jlong wait, jlong queue, jlong tag) {
    (void)type;
    brooklet_error *error = NULL;
    brooklet_status status =
        brooklet_wait_poll(HANDLE(brooklet_wait, wait), HANDLE(brooklet_queue, queue), (uint64_t)tag, &error);
    failed(env, error);
    return status == BROOKLET_OK;
}

NATIVE(void, freeWait)(JNIEnv *env, jclass type, jlong wait) {
    (void)env, (void)type;
    brooklet_wait_free(HANDLE(brooklet_wait, wait));
}
