package brooklet;

import java.nio.ByteBuffer;
import java.nio.charset.Charset;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/**
 * The handles of a store. They are freed by the last call that uses them, once the store is being closed. A core outlives its
 * {@link Store} while calls use it.
 *
 * <p>Each core has one thread, for all writes and tails: it takes completions and passes them on.
 */
final class Core {
    /** The bit of {@code calls} that is set once the store is being closed. */
    private static final long CLOSED = 1L << 62;

    /** The tag of the completion that ends the thread. */
    private static final long STOP = 0;

    /**
     * The most threads that wait for the device within the C library. Such a thread writes to the device itself, which is the
     * fastest way for a few writers; no interrupt ends its wait. The others wait in Java.
     */
    private static final int MOST_DRIVING = 4;

    /** How long a thread waits for room in the heap before it tries again: 1 ms in nanoseconds. */
    static final long PAUSE = 1_000_000;

    /** How long the thread that takes notices waits for one at once: 20 ms in nanoseconds. */
    private static final long LOOK = 20_000_000;

    /** The failure of writes, where the heap has no room for a report of it. It is made before. */
    private static final BrookletException UNREPORTED =
            BrookletException.stopped("a write failed, and the heap had no room for the report: open the store again");

    /** How a write waits. */
    enum How {
        /** Not at all. */
        TRY,
        /** For room. */
        FOR_ROOM,
        /** Until it is acknowledged. */
        TO_THE_END
    }

    private final long store;
    private final long queue;
    /** How many calls use the handles. */
    private final AtomicLong calls = new AtomicLong();

    private final CountDownLatch freed = new CountDownLatch(1);
    private final AtomicBoolean closing = new AtomicBoolean();

    /** A place for each thread that waits for the device. */
    final Semaphore driving = new Semaphore(MOST_DRIVING);

    /** Makes the calls that may wait for long. */
    final Patience patience = new Patience();

    final Executor executor;
    final Acks acks;
    final Notices notices = new Notices();

    /** The thread that takes completions. */
    private volatile Thread completions;

    private Core(long queue, byte[] path, Options options) {
        this.queue = queue;
        this.executor = options.executor();
        this.acks = new Acks(executor);
        this.store = Native.open(path, options.ring(), options.numbers());
    }

    static Core open(byte[] path, Options options) {
        long queue = Native.newQueue();
        Core core;
        try {
            core = new Core(queue, path, options);
        } catch (Throwable e) {
            Native.freeQueue(queue);
            throw e;
        }
        try {
            Thread thread = new Thread(null, core::takeCompletions, "brooklet completions", 0, false);
            thread.setContextClassLoader(null);
            thread.setDaemon(true);
            core.completions = thread;
            thread.start();
        } catch (Throwable e) {
            Native.freeStore(core.store);
            Native.freeQueue(queue);
            throw e;
        }
        return core;
    }

    /** Returns a path as in C: in the encoding of the system, with a zero byte at the end. */
    static byte[] text(Path path) {
        byte[] text = path.toString().getBytes(Charset.forName(System.getProperty("sun.jnu.encoding", "UTF-8")));
        return Arrays.copyOf(text, text.length + 1);
    }

    /**
     * Runs code of the user on an executor, or, if that one throws instead, on another one. Never throws: the caller may be the
     * thread that ends all writes. An exception, but for that of a refusal, goes to the handler of uncaught exceptions.
     */
    static void run(Executor executor, Runnable code) {
        AtomicBoolean begun = new AtomicBoolean();
        Runnable once = () -> {
            if (begun.compareAndSet(false, true)) {
                code.run();
            }
        };
        try {
            executor.execute(once);
        } catch (RejectedExecutionException e) {
            ForkJoinPool.commonPool().execute(once);
        } catch (Throwable e) {
            // An executor that runs code at once throws what the code throws.
            ForkJoinPool.commonPool().execute(once);
            uncaught(e);
        }
    }

    private static void uncaught(Throwable failure) {
        Thread thread = Thread.currentThread();
        try {
            thread.getUncaughtExceptionHandler().uncaughtException(thread, failure);
        } catch (Throwable e) {
            // As the JVM does with the exceptions of handlers.
        }
    }

    /** Lets the caller use the handles until it calls {@link #release}. */
    void acquire() {
        if ((calls.incrementAndGet() & CLOSED) != 0) {
            release();
            throw closed();
        }
    }

    /** Returns whether the store is closed, or is being closed. */
    boolean isClosed() {
        return (calls.get() & CLOSED) != 0;
    }

    /**
     * Returns how long this thread may wait for a notice at once, in nanoseconds. The thread that takes the notices runs code of
     * the user if the executor runs it at once. It gets no notice while it waits, and so it looks again.
     */
    long longestWait() {
        return Thread.currentThread() == completions ? LOOK : Long.MAX_VALUE;
    }

    static BrookletException closed() {
        return BrookletException.closed("the store is closed: open it again");
    }

    void release() {
        // A call that comes late finds the store closed before it touches the handles, and counts down once more.
        if (calls.decrementAndGet() == CLOSED && freed.getCount() == 1) {
            free();
        }
    }

    private synchronized void free() {
        if (freed.getCount() == 0) {
            return;
        }
        Native.freeStore(store);
        freed.countDown();
        Native.post(queue, STOP);
    }

    /** Closes the store, and returns when its file is released. */
    void close() {
        if (!closing.compareAndSet(false, true)) {
            awaitFreed();
            return;
        }
        calls.addAndGet(CLOSED + 1);
        try {
            Native.close(store);
        } finally {
            release();
            awaitFreed();
        }
    }

    private void awaitFreed() {
        boolean interrupted = false;
        while (true) {
            try {
                freed.await();
                break;
            } catch (InterruptedException e) {
                interrupted = true;
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** Takes completions until the store is freed. This thread frees the queue, which only it uses then. */
    private void takeCompletions() {
        long[] ends = new long[128];
        BrookletException[] failures = new BrookletException[64];
        boolean stopping = false;
        while (true) {
            int count = Native.take(queue, !stopping, ends, failures);
            if (count == 0 && stopping) {
                break;
            }
            for (int i = 0; i < count; i++) {
                long tag = ends[2 * i];
                if (tag == STOP) {
                    stopping = true;
                } else {
                    passOn(tag, ends[2 * i + 1], failures[i]);
                }
                failures[i] = null;
            }
        }
        endAll();
        Native.freeQueue(queue);
    }

    /**
     * Passes a completion on. Nobody else would, so an exhausted heap does not end this thread: it tries again. A negative number
     * of writes is that of a group that failed, less one, with a report that the heap had no room for.
     */
    private void passOn(long tag, long writes, BrookletException failure) {
        Acks.Group ended = null;
        while (true) {
            try {
                if (tag > 0) {
                    notices.leave(tag);
                    return;
                }
                if (ended == null) {
                    boolean known = writes >= 0;
                    ended = acks.end(tag, known ? writes : -1 - writes, known ? failure : UNREPORTED);
                }
                acks.finish(ended);
                return;
            } catch (OutOfMemoryError e) {
                LockSupport.parkNanos(PAUSE);
            }
        }
    }

    /** Ends all writes and tails that are left. */
    private void endAll() {
        while (true) {
            try {
                acks.fail(closed());
                notices.leaveAll();
                return;
            } catch (OutOfMemoryError e) {
                LockSupport.parkNanos(PAUSE);
            }
        }
    }

    /**
     * Appends. Returns the number of the entry and the tag of its group, which is 0 if the entry is acknowledged; or null if the
     * call would have to wait, and may not.
     */
    long[] append(Key key, byte[] payload, How how) {
        long[] out = new long[2];
        return Native.append(queue, store, key.bytes, payload, how.ordinal(), out) ? null : out;
    }

    /** Commits. Returns the numbers of the entries, then the tag of the group. Otherwise as {@code append}. */
    long[] commit(Commit commit, How how) {
        long[] out = new long[commit.appends() + 1];
        boolean busy = Native.commit(queue, store, commit.packed(), commit.size(), commit.bound(), how.ordinal(), out);
        return busy ? null : out;
    }

    void flush() {
        Native.flush(store);
    }

    void checkpoint() {
        Native.checkpoint(store);
    }

    long[] info() {
        long[] out = new long[13];
        Native.info(store, out);
        return out;
    }

    boolean bounds(Key key, boolean must, long[] out) {
        return Native.bounds(store, key.bytes, must, out);
    }

    long openWait(Key key, long next) {
        return Native.openWait(store, key.bytes, next);
    }

    /** Returns whether the log has reached the number of a wait. If it has not, a notice with the tag follows. */
    boolean pollWait(long wait, long tag) {
        return Native.pollWait(wait, queue, tag);
    }

    Items<Entry> read(Store owner, Key key, long from, long to, boolean available, boolean reversed) {
        ByteBuffer buffer = Buffers.borrow();
        long rest = 0;
        try {
            long[] out = new long[2];
            rest = Native.read(store, key.bytes, from, to, available, reversed, buffer, out);
            List<Entry> first = Buffers.entries(buffer, out[1]);
            return new Items<>(owner, first, rest == 0 ? null : new Rest.OfEntries(rest));
        } catch (Throwable e) {
            if (rest != 0) {
                Native.freeEntries(rest);
            }
            throw e;
        } finally {
            Buffers.give(buffer);
        }
    }

    Items<LogInfo> scan(Store owner, byte[] prefix, byte[] from) {
        long logs = Native.scan(store, prefix, from);
        try {
            return new Items<>(owner, List.of(), new Rest.OfLogs(logs));
        } catch (Throwable e) {
            Native.freeLogs(logs);
            throw e;
        }
    }

    long openTail(Key key, long from) {
        return Native.openTail(store, key.bytes, from);
    }

    boolean fillTail(long tail, long tag, ByteBuffer buffer, long[] out) {
        return Native.fillTail(tail, queue, tag, buffer, out);
    }
}
