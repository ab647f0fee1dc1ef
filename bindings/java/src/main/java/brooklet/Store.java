package brooklet;

import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Iterator;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.Flow;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.function.Supplier;

/**
 * An open store. Many threads may use it.
 *
 * <p>Close the store at the end. The garbage collector closes a lost one, at some time. The end of the JVM closes none: writes
 * that were not acknowledged may be lost then, and no others.
 */
public final class Store implements AutoCloseable {
    /** The number behind the last entry of each log. */
    public static final long END = Long.MAX_VALUE;

    static final Cleaner CLEANER = Cleaner.create();

    private static final long[] NONE = new long[0];

    final Core core;
    private final String name;

    private Store(Core core, Path path) {
        this.core = core;
        this.name = path.toString();
        CLEANER.register(this, core::close);
    }

    /**
     * Opens the store at a path, or creates it.
     *
     * @param path the path of a file or of a block device
     * @return the store
     */
    public static Store open(Path path) {
        return open(path, new Options());
    }

    /**
     * Opens the store at a path.
     *
     * @param path the path of a file or of a block device
     * @param options how to open it
     * @return the store
     * @throws CannotOpenException if another process has the store open, or the file is no store of this version
     */
    public static Store open(Path path, Options options) {
        Objects.requireNonNull(options, "options");
        return new Store(Core.open(Core.text(path), options), path);
    }

    /** Makes a call that does not wait, with the handles. */
    private <T> T call(Function<Core, T> work) {
        core.acquire();
        try {
            return work.apply(core);
        } finally {
            core.release();
            // The collector may not close the store in mid-call.
            Reference.reachabilityFence(this);
        }
    }

    /** A write within the C library: returns null if it would have to wait, and may not. */
    @FunctionalInterface
    private interface Write {
        long[] in(Core core, Core.How how);
    }

    /**
     * Makes a write, and waits until it is acknowledged. Returns the numbers, and the tag of the group behind them. A write that
     * waits for room may outlive the call, so it is an {@code owned} one: its bytes are copies.
     */
    private long[] waiting(Write write, Supplier<Write> owned) throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
        if (core.driving.tryAcquire()) {
            try {
                return call(core -> write.in(core, Core.How.TO_THE_END));
            } finally {
                core.driving.release();
            }
        }
        Waited waited = joined(write, Core.How.TRY);
        if (waited == null) {
            Write own = owned.get();
            waited = core.patience.wait(() -> joined(own, Core.How.FOR_ROOM));
        }
        waited.group.await();
        return waited.numbers;
    }

    private Waited joined(Write write, Core.How how) {
        return call(core -> {
            long[] numbers = write.in(core, how);
            return numbers == null ? null : new Waited(numbers, core.acks.join(numbers[numbers.length - 1]));
        });
    }

    private record Waited(long[] numbers, Acks.Group group) {}

    /** Makes a write, which may wait for room, and returns its ticket. */
    private Ticket ticket(Write write, Function<long[], Appended> appended) {
        return call(core -> {
            long[] numbers = write.in(core, Core.How.FOR_ROOM);
            Ticket ticket = new Ticket(appended.apply(numbers));
            core.acks.add(numbers[numbers.length - 1], ticket);
            return ticket;
        });
    }

    private static Write write(Key key, byte[] payload) {
        return (core, how) -> core.append(key, payload, how);
    }

    private static Write write(Commit commit) {
        return (core, how) -> core.commit(commit, how);
    }

    private static Appended appended(long[] numbers) {
        return new Appended(numbers.length == 1 ? NONE : Arrays.copyOf(numbers, numbers.length - 1));
    }

    /**
     * Appends an entry to a log, and waits until it is on stable media. The first entry creates the log.
     *
     * @param key the log
     * @param payload the entry
     * @return the number of the entry
     * @throws InterruptedException if the thread is interrupted; the entry may be there all the same
     */
    public long append(Key key, byte[] payload) throws InterruptedException {
        Objects.requireNonNull(key, "key");
        Objects.requireNonNull(payload, "payload");
        return waiting(write(key, payload), () -> write(key, payload.clone()))[0];
    }

    /**
     * Appends the remaining bytes of a buffer to a log, and waits until they are on stable media. The buffer stays as it is.
     *
     * @param key the log
     * @param payload the entry, direct or not
     * @return the number of the entry
     * @throws InterruptedException if the thread is interrupted; the entry may be there all the same
     */
    public long append(Key key, ByteBuffer payload) throws InterruptedException {
        return commit(new Commit().append(key, payload)).seq();
    }

    /**
     * Appends an entry like {@link #append(Key, byte[])}, but does not wait for its acknowledgement. Waits for room.
     *
     * @param key the log
     * @param payload the entry
     * @return the ticket, which has the number of the entry
     */
    public Ticket appendAsync(Key key, byte[] payload) {
        Objects.requireNonNull(key, "key");
        Objects.requireNonNull(payload, "payload");
        return ticket(write(key, payload), numbers -> new Appended(numbers[0]));
    }

    /**
     * Appends the remaining bytes of a buffer like {@link #append(Key, ByteBuffer)}, but does not wait for the acknowledgement.
     * Waits for room.
     *
     * @param key the log
     * @param payload the entry, direct or not
     * @return the ticket, which has the number of the entry
     */
    public Ticket appendAsync(Key key, ByteBuffer payload) {
        return commitAsync(new Commit().append(key, payload));
    }

    private static Commit many(Key key, Iterable<byte[]> payloads) {
        Commit commit = new Commit();
        for (byte[] payload : payloads) {
            commit.append(key, payload);
        }
        return commit;
    }

    /**
     * Appends entries to a log with consecutive numbers, all or none, and waits until they are on stable media.
     *
     * @param key the log
     * @param payloads the entries
     * @return the numbers of the entries
     * @throws InterruptedException if the thread is interrupted; the entries may be there all the same
     */
    public Appended appendMany(Key key, Iterable<byte[]> payloads) throws InterruptedException {
        return commit(many(key, payloads));
    }

    /**
     * Appends entries like {@link #appendMany}, but does not wait for their acknowledgement. Waits for room.
     *
     * @param key the log
     * @param payloads the entries
     * @return the ticket, which has the numbers of the entries
     */
    public Ticket appendManyAsync(Key key, Iterable<byte[]> payloads) {
        return commitAsync(many(key, payloads));
    }

    /**
     * Applies a commit: all of its operations or none. Waits until the commit is acknowledged.
     *
     * @param commit the operations
     * @return the numbers of the appended entries, in the order of the operations
     * @throws ConflictException if an expectation does not hold
     * @throws StoppedException if a write to the device failed: the outcome is unknown until the store is opened again
     * @throws InterruptedException if the thread is interrupted; the commit may be there all the same
     */
    public Appended commit(Commit commit) throws InterruptedException {
        Objects.requireNonNull(commit, "commit");
        return appended(waiting(write(commit), () -> write(commit.copy())));
    }

    /**
     * Applies a commit like {@link #commit}, but does not wait for its acknowledgement. Waits for room.
     *
     * @param commit the operations
     * @return the ticket, which has the numbers of the entries
     * @throws ConflictException if an expectation does not hold
     */
    public Ticket commitAsync(Commit commit) {
        Objects.requireNonNull(commit, "commit");
        return ticket(write(commit), Store::appended);
    }

    /**
     * Appends an entry that holds the whole state of a log, and trims all entries before it, in one step. Waits until it is on
     * stable media.
     *
     * @param key the log
     * @param payload the entry
     * @return the number of the entry
     * @throws InterruptedException if the thread is interrupted; the entry may be there all the same
     */
    public long snapshot(Key key, byte[] payload) throws InterruptedException {
        return commit(new Commit().snapshot(key, payload)).seq();
    }

    /**
     * Drops the entries of a log before a number, and waits until that is on stable media.
     *
     * @param key the log
     * @param before the number
     * @throws InterruptedException if the thread is interrupted
     */
    public void trim(Key key, long before) throws InterruptedException {
        commit(new Commit().trim(key, before));
    }

    /**
     * Drops all entries of a log except the last ones, and waits until that is on stable media.
     *
     * @param key the log
     * @param n how many entries stay
     * @throws InterruptedException if the thread is interrupted
     */
    public void keepLast(Key key, long n) throws InterruptedException {
        commit(new Commit().keepLast(key, n));
    }

    /**
     * Makes a log begin at a number, and waits until that is on stable media; see {@link Commit#beginAt}.
     *
     * @param key the log
     * @param first the number
     * @throws InterruptedException if the thread is interrupted
     */
    public void beginAt(Key key, long first) throws InterruptedException {
        commit(new Commit().beginAt(key, first));
    }

    /**
     * Drops the entries of a log from a number on, and waits until that is on stable media.
     *
     * @param key the log
     * @param from the number
     * @throws InterruptedException if the thread is interrupted
     */
    public void truncate(Key key, long from) throws InterruptedException {
        commit(new Commit().truncate(key, from));
    }

    /**
     * Deletes a log, and waits until that is on stable media. A later append creates it anew, from entry 0 on.
     *
     * @param key the log
     * @throws InterruptedException if the thread is interrupted
     */
    public void delete(Key key) throws InterruptedException {
        commit(new Commit().delete(key));
    }

    /**
     * Sets how much a log keeps, and waits until that is on stable media; see {@link Commit#setRetention}.
     *
     * @param key the log
     * @param retention the limits
     * @throws InterruptedException if the thread is interrupted
     */
    public void setRetention(Key key, Retention retention) throws InterruptedException {
        commit(new Commit().setRetention(key, retention));
    }

    private Items<Entry> read(Key key, long from, long to, boolean available, boolean reversed) {
        Objects.requireNonNull(key, "key");
        if (from < 0 || to < 0) {
            throw BrookletException.invalid("the number of an entry is negative: " + Math.min(from, to));
        }
        return call(core -> core.read(this, key, from, to == END ? -1 : to, available, reversed));
    }

    /**
     * Reads all entries of a log that are on stable media.
     *
     * @param key the log
     * @return the entries
     * @throws NotFoundException if the log does not exist
     */
    public Items<Entry> read(Key key) {
        return all(key, false);
    }

    /**
     * Reads all entries of a log, the newest first.
     *
     * @param key the log
     * @return the entries
     * @throws NotFoundException if the log does not exist
     */
    public Items<Entry> readReversed(Key key) {
        return all(key, true);
    }

    private Items<Entry> all(Key key, boolean reversed) {
        Items<Entry> entries = read(key, 0, END, true, reversed);
        if (entries.isEmpty()) {
            // An unknown log is an error here.
            bounds(key, true);
        }
        return entries;
    }

    /**
     * Reads the entries of a log from number {@code from} on and before number {@code to}, those on stable media.
     *
     * @param key the log
     * @param from the number of the first entry
     * @param to the number behind the last entry, or {@link #END}
     * @return the entries
     * @throws NotFoundException if the log does not exist, or does not have all of these entries
     */
    public Items<Entry> read(Key key, long from, long to) {
        return read(key, from, to, false, false);
    }

    /**
     * Reads like {@link #read(Key, long, long)}, the newest entry first.
     *
     * @param key the log
     * @param from the number of the oldest entry
     * @param to the number behind the newest entry, or {@link #END}
     * @return the entries
     * @throws NotFoundException if the log does not exist, or does not have all of these entries
     */
    public Items<Entry> readReversed(Key key, long from, long to) {
        return read(key, from, to, false, true);
    }

    /**
     * Reads like {@link #read(Key, long, long)}, but leaves out entries outside of the log. An unknown log has none.
     *
     * @param key the log
     * @param from the number of the first entry
     * @param to the number behind the last entry, or {@link #END}
     * @return the entries
     */
    public Items<Entry> readAvailable(Key key, long from, long to) {
        return read(key, from, to, true, false);
    }

    /**
     * Reads like {@link #readAvailable}, the newest entry first.
     *
     * @param key the log
     * @param from the number of the oldest entry
     * @param to the number behind the newest entry, or {@link #END}
     * @return the entries
     */
    public Items<Entry> readAvailableReversed(Key key, long from, long to) {
        return read(key, from, to, true, true);
    }

    /**
     * Returns one entry.
     *
     * @param key the log
     * @param seq the number of the entry
     * @return the entry
     * @throws NotFoundException if the log does not have the entry
     */
    public Entry get(Key key, long seq) {
        if (seq == END) {
            throw BrookletException.invalid("no entry has this number");
        }
        try (Items<Entry> entries = read(key, seq, seq + 1)) {
            return entries.iterator().next();
        }
    }

    /**
     * Returns the first entry of a log.
     *
     * @param key the log
     * @return the entry, or nothing if the log has none
     */
    public Optional<Entry> first(Key key) {
        return one(key, Bounds::first, false);
    }

    /**
     * Returns the last entry of a log.
     *
     * @param key the log
     * @return the entry, or nothing if the log has none
     */
    public Optional<Entry> last(Key key) {
        return one(key, bounds -> bounds.next() - 1, true);
    }

    private Optional<Entry> one(Key key, Function<Bounds, Long> which, boolean reversed) {
        while (true) {
            Optional<Bounds> bounds = getBounds(key);
            if (bounds.isEmpty() || bounds.get().first() == bounds.get().next()) {
                return Optional.empty();
            }
            long seq = which.apply(bounds.get());
            try (Items<Entry> entries = read(key, seq, seq + 1, true, reversed)) {
                Iterator<Entry> entry = entries.iterator();
                if (entry.hasNext()) {
                    return Optional.of(entry.next());
                }
                // The log lost that entry meanwhile.
            }
        }
    }

    /**
     * Returns the bounds of a log.
     *
     * @param key the log
     * @return the bounds
     * @throws NotFoundException if the log does not exist
     */
    public Bounds bounds(Key key) {
        return bounds(key, true);
    }

    /**
     * Returns the bounds of a log, if it exists.
     *
     * @param key the log
     * @return the bounds, or nothing
     */
    public Optional<Bounds> getBounds(Key key) {
        return Optional.ofNullable(bounds(key, false));
    }

    private Bounds bounds(Key key, boolean must) {
        Objects.requireNonNull(key, "key");
        long[] out = new long[2];
        boolean found = call(core -> core.bounds(key, must, out));
        return found ? new Bounds(out[0], out[1]) : null;
    }

    /**
     * Returns whether a log exists.
     *
     * @param key the log
     * @return whether it exists
     */
    public boolean exists(Key key) {
        return bounds(key, false) != null;
    }

    /**
     * Lists the logs whose keys begin with a prefix, in the order of their keys.
     *
     * @param prefix the prefix; it may be the empty text
     * @return the logs
     */
    public Items<LogInfo> scan(Key prefix) {
        return scan(prefix, new Key(new byte[0]));
    }

    /**
     * Lists logs like {@link #scan(Key)}, from a key on. To go on behind a key, pass the key with a zero byte behind it.
     *
     * @param prefix the prefix; it may be the empty text
     * @param from the first key
     * @return the logs
     */
    public Items<LogInfo> scan(Key prefix, Key from) {
        Objects.requireNonNull(prefix, "prefix");
        Objects.requireNonNull(from, "from");
        return call(core -> core.scan(this, prefix.bytes, from.bytes));
    }

    /**
     * Follows a log from an entry on: each subscriber gets every entry once, in order, when it is on stable media; and the gaps
     * by their names. The log may be created later. A tail ends with {@link ClosedException} when the store is closed. The
     * executor of the store calls subscribers.
     *
     * @param key the log
     * @param from the number of the first entry
     * @return a publisher for any number of subscribers
     */
    public Flow.Publisher<TailEvent> tail(Key key, long from) {
        Objects.requireNonNull(key, "key");
        if (from < 0) {
            throw BrookletException.invalid("the number of an entry is negative: " + from);
        }
        return subscriber -> {
            Objects.requireNonNull(subscriber, "subscriber");
            new TailSubscription(this, core, key, from, subscriber).begin();
        };
    }

    /**
     * Waits until a log has entry {@code next - 1} on stable media, also if the log dropped the entry meanwhile. The log need not
     * exist yet.
     *
     * @param key the log
     * @param next the number behind that of the entry
     * @param timeout how long to wait at most
     * @return whether the log has reached the number
     * @throws InterruptedException if the thread is interrupted
     */
    public boolean waitFor(Key key, long next, Duration timeout) throws InterruptedException {
        Objects.requireNonNull(key, "key");
        if (next < 0) {
            throw BrookletException.invalid("the number of an entry is negative: " + next);
        }
        long nanos = Math.max(0, Nanos.of(timeout));
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
        long start = System.nanoTime();
        Semaphore notice = new Semaphore(0);
        long tag = core.notices.add(notice::release);
        try {
            long wait = call(core -> core.openWait(key, next));
            try {
                while (!call(core -> core.pollWait(wait, tag))) {
                    long left = nanos - (System.nanoTime() - start);
                    long most = core.longestWait();
                    if (!notice.tryAcquire(Math.min(left, most), TimeUnit.NANOSECONDS) && left <= most) {
                        return false;
                    }
                }
                return true;
            } finally {
                Native.freeWait(wait);
            }
        } finally {
            core.notices.remove(tag);
        }
    }

    /**
     * Waits until every write so far is on stable media, deferred ones too.
     *
     * @throws InterruptedException if the thread is interrupted
     */
    public void flush() throws InterruptedException {
        core.patience.wait(() -> call(core -> {
            core.flush();
            return null;
        }));
    }

    /**
     * Moves all entries from the ring into runs.
     *
     * @throws InterruptedException if the thread is interrupted; a checkpoint that has begun goes on
     */
    public void checkpoint() throws InterruptedException {
        core.patience.wait(() -> call(core -> {
            core.checkpoint();
            return null;
        }));
    }

    /**
     * Returns numbers about the store.
     *
     * @return the numbers
     */
    public Info info() {
        long[] n = call(Core::info);
        boolean checkpointing = n[10] != 0;
        return new Info(n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9], checkpointing, n[11] != 0, n[12] != 0);
    }

    /**
     * Waits until all writes are on stable media, and releases the file. A second call does nothing more. Interrupts do not end
     * this wait. If a space in memory has no room for its dump, the store is closed all the same, and the space stays as in its last
     * dump.
     *
     * @throws StoppedException if a write to the device failed
     */
    @Override
    public void close() {
        core.close();
        Reference.reachabilityFence(this);
    }

    @Override
    public String toString() {
        return "Store[" + name + "]";
    }

    /** Returns how many groups of writes and how many tails are under way. */
    int underWay() {
        return core.acks.size() + core.notices.size();
    }
}
