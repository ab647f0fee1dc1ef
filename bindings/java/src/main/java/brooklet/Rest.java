package brooklet;

import java.nio.ByteBuffer;
import java.util.List;

/** The rest of a read or of a listing: a handle of the C library. The collector frees one that nobody closed. */
abstract class Rest<T> implements Runnable {
    /** 0 once it is freed. */
    private long handle;

    Rest(long handle) {
        this.handle = handle;
    }

    /** Returns the next items, and frees the handle behind the last ones, and after a failure. */
    synchronized List<T> more() {
        if (handle == 0) {
            throw BrookletException.closed("the iterator is closed: begin another one");
        }
        ByteBuffer buffer = Buffers.borrow();
        boolean more = false;
        try {
            long[] out = new long[2];
            boolean filled = fill(handle, buffer, out);
            List<T> items = out[1] == 0 && filled ? List.of(large(handle)) : items(buffer, out[1]);
            // A batch that has no room in the heap is lost, so nothing behind it may follow.
            more = filled;
            return items;
        } finally {
            Buffers.give(buffer);
            if (!more) {
                run();
            }
        }
    }

    synchronized boolean ended() {
        return handle == 0;
    }

    @Override
    public synchronized void run() {
        if (handle != 0) {
            free(handle);
            handle = 0;
        }
    }

    abstract boolean fill(long handle, ByteBuffer buffer, long[] out);

    abstract List<T> items(ByteBuffer buffer, long count);

    /** Returns the next item, which no buffer has room for. */
    abstract T large(long handle);

    abstract void free(long handle);

    static final class OfEntries extends Rest<Entry> {
        OfEntries(long handle) {
            super(handle);
        }

        @Override
        boolean fill(long handle, ByteBuffer buffer, long[] out) {
            return Native.fillEntries(handle, buffer, out);
        }

        @Override
        List<Entry> items(ByteBuffer buffer, long count) {
            return Buffers.entries(buffer, count);
        }

        @Override
        Entry large(long handle) {
            long[] out = new long[1];
            byte[] payload = Native.largeEntry(handle, out);
            return new Entry(out[0], payload);
        }

        @Override
        void free(long handle) {
            Native.freeEntries(handle);
        }
    }

    static final class OfLogs extends Rest<LogInfo> {
        OfLogs(long handle) {
            super(handle);
        }

        @Override
        boolean fill(long handle, ByteBuffer buffer, long[] out) {
            return Native.fillLogs(handle, buffer, out);
        }

        @Override
        List<LogInfo> items(ByteBuffer buffer, long count) {
            return Buffers.logs(buffer, count);
        }

        @Override
        LogInfo large(long handle) {
            throw BrookletException.invalid("a key is larger than a buffer");
        }

        @Override
        void free(long handle) {
            Native.freeLogs(handle);
        }
    }
}
