package brooklet;

import java.nio.ByteBuffer;

/**
 * The calls of the native part, {@code src/main/native/brooklet_java.c}. Its callers promise: a handle is not freed during a call
 * that uses it; one thread at a time uses entries, logs, tails and waits; buffers are direct; no argument is null.
 */
final class Native {
    static {
        Library.load();
    }

    private Native() {}

    static native long open(byte[] path, byte[] ring, long[] options);

    static native void close(long store);

    static native void freeStore(long store);

    static native void flush(long store);

    static native void checkpoint(long store);

    static native void info(long store, long[] out);

    static native boolean append(long queue, long store, byte[] key, byte[] payload, int how, long[] out);

    static native boolean commit(
            long queue, long store, byte[] packed, int length, long defer, int how, long[] out);

    static native long newQueue();

    static native void freeQueue(long queue);

    static native void post(long queue, long tag);

    static native int take(long queue, boolean wait, long[] out, BrookletException[] failures);

    static native long read(
            long store, byte[] key, long from, long to, boolean available, boolean reversed, ByteBuffer buffer, long[] out);

    static native boolean fillEntries(long entries, ByteBuffer buffer, long[] out);

    static native byte[] largeEntry(long entries, long[] out);

    static native void freeEntries(long entries);

    static native boolean bounds(long store, byte[] key, boolean must, long[] out);

    static native long scan(long store, byte[] prefix, byte[] from);

    static native boolean fillLogs(long logs, ByteBuffer buffer, long[] out);

    static native void freeLogs(long logs);

    static native long openTail(long store, byte[] key, long from);

    static native boolean fillTail(long tail, long queue, long tag, ByteBuffer buffer, long[] out);

    static native byte[] largeTail(long tail, long[] out);

    static native void freeTail(long tail);

    static native long openWait(long store, byte[] key, long next);

    static native boolean pollWait(long wait, long queue, long tag);

    static native void freeWait(long wait);
}
