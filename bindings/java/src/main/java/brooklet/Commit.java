package brooklet;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;

/**
 * Operations on any number of logs that happen all or not at all, in the order of the calls. Each call copies keys and payloads,
 * and returns the commit, for the next call. The commit stays as it is after {@link Store#commit}, and may be committed again.
 *
 * <p>The store checks all expectations against the logs as they are before the first operation. One thread at a time uses a
 * commit.
 */
public final class Commit {
    // The kinds of brooklet_operation_kind.
    private static final int APPEND = 0;
    private static final int SNAPSHOT = 1;
    private static final int TRIM = 2;
    private static final int TRUNCATE = 3;
    private static final int DELETE = 4;
    private static final int EXPECT_NEXT = 5;
    private static final int EXPECT_ABSENT = 6;
    private static final int BEGIN_AT = 7;
    private static final int KEEP_LAST = 8;
    private static final int RETAIN = 9;

    /** The bytes of brooklet_operation. */
    private static final int HEAD = 16;

    /** The operations as the C library reads them, and room for more. */
    private ByteBuffer packed = room(112);

    private int appends;
    /** The bound of a commit whose space says when it is acknowledged. */
    private static final long OF_SPACE = -1;

    /** The bound of a commit that is not deferred, also in a space whose commits are. */
    private static final long DURABLE = -2;

    /** The bound of a deferred commit in nanoseconds, or one of those above. */
    private long defer = OF_SPACE;

    /** Makes an empty commit. */
    public Commit() {}

    private static ByteBuffer room(int size) {
        return ByteBuffer.allocate(size).order(ByteOrder.nativeOrder());
    }

    /** Begins an operation that has so many bytes behind its key. */
    private ByteBuffer add(int kind, Key key, long number, int behind) {
        long needs = (long) packed.position() + HEAD + key.bytes.length + behind;
        if (needs > packed.capacity()) {
            if (needs > Integer.MAX_VALUE - 8) {
                throw BrookletException.invalid("the operations of a commit are over 2 GiB: make several commits");
            }
            int size = (int) Math.min(Math.max(needs, 2L * packed.capacity()), Integer.MAX_VALUE - 8);
            packed = room(size).put(packed.flip());
        }
        return packed.putInt(kind).putInt(key.bytes.length).putLong(number).put(key.bytes);
    }

    private static long number(String name, long number) {
        if (number < 0) {
            throw BrookletException.invalid(name + " is negative: " + number);
        }
        return number;
    }

    /**
     * Removes all operations, so that the commit and its memory can be used again.
     *
     * @return this commit
     */
    public Commit clear() {
        packed.clear();
        appends = 0;
        defer = OF_SPACE;
        return this;
    }

    /**
     * Appends an entry to a log. Creates the log if it does not exist.
     *
     * @param key the log
     * @param payload the entry
     * @return this commit
     */
    public Commit append(Key key, byte[] payload) {
        add(APPEND, key, payload.length, payload.length).put(payload);
        appends++;
        return this;
    }

    /**
     * Appends the remaining bytes of a buffer to a log. The buffer stays as it is.
     *
     * @param key the log
     * @param payload the entry, direct or not
     * @return this commit
     */
    public Commit append(Key key, ByteBuffer payload) {
        add(APPEND, key, payload.remaining(), payload.remaining()).put(payload.duplicate());
        appends++;
        return this;
    }

    /**
     * Appends an entry that holds the whole state of a log, and trims all entries before it.
     *
     * @param key the log
     * @param payload the entry
     * @return this commit
     */
    public Commit snapshot(Key key, byte[] payload) {
        add(SNAPSHOT, key, payload.length, payload.length).put(payload);
        appends++;
        return this;
    }

    /**
     * Appends the remaining bytes of a buffer, which hold the whole state of a log, and trims all entries before. The buffer
     * stays as it is.
     *
     * @param key the log
     * @param payload the entry, direct or not
     * @return this commit
     */
    public Commit snapshot(Key key, ByteBuffer payload) {
        add(SNAPSHOT, key, payload.remaining(), payload.remaining()).put(payload.duplicate());
        appends++;
        return this;
    }

    /**
     * Drops the entries of a log before a number, which may be at most the log's next number.
     *
     * @param key the log
     * @param before the number
     * @return this commit
     */
    public Commit trim(Key key, long before) {
        add(TRIM, key, number("before", before), 0);
        return this;
    }

    /**
     * Drops all entries of a log except the last ones.
     *
     * @param key the log
     * @param n how many entries stay
     * @return this commit
     */
    public Commit keepLast(Key key, long n) {
        add(KEEP_LAST, key, number("n", n), 0);
        return this;
    }

    /**
     * Makes a log begin at a number: drops the entries before it. If the log ends before the number, it is empty afterwards, and
     * its next entry gets that number. Creates the log if it does not exist.
     *
     * @param key the log
     * @param first the number
     * @return this commit
     */
    public Commit beginAt(Key key, long first) {
        add(BEGIN_AT, key, number("first", first), 0);
        return this;
    }

    /**
     * Drops the entries of a log from a number on. The next entry gets that number.
     *
     * @param key the log
     * @param from the number
     * @return this commit
     */
    public Commit truncate(Key key, long from) {
        add(TRUNCATE, key, number("from", from), 0);
        return this;
    }

    /**
     * Deletes a log. A log that is created later under the same key starts at 0 again.
     *
     * @param key the log
     * @return this commit
     */
    public Commit delete(Key key) {
        add(DELETE, key, 0, 0);
        return this;
    }

    /**
     * Sets how much a log keeps. With a limit, creates the log if it does not exist.
     *
     * @param key the log
     * @param retention the limits
     * @return this commit
     */
    public Commit setRetention(Key key, Retention retention) {
        long entries = retention.entries() == null ? -1 : retention.entries();
        long bytes = retention.bytes() == null ? -1 : retention.bytes();
        long age = retention.age() == null ? -1 : Nanos.of(retention.age());
        add(RETAIN, key, 24, 24).putLong(entries).putLong(bytes).putLong(age);
        return this;
    }

    /**
     * Expects that the next entry of a log gets a number. Otherwise the commit has no effect, and fails with {@link
     * ConflictException}.
     *
     * @param key the log
     * @param next the number
     * @return this commit
     */
    public Commit expectNext(Key key, long next) {
        add(EXPECT_NEXT, key, number("next", next), 0);
        return this;
    }

    /**
     * Expects that a log does not exist. Otherwise the commit has no effect, and fails with {@link ConflictException}.
     *
     * @param key the log
     * @return this commit
     */
    public Commit expectAbsent(Key key) {
        add(EXPECT_ABSENT, key, 0, 0);
        return this;
    }

    /**
     * Has the store acknowledge the commit at once, and write it to stable media within a bound. A power cut or a kill may lose
     * the last acknowledged commits of this time.
     *
     * @param bound the bound
     * @return this commit
     */
    public Commit defer(Duration bound) {
        defer = number("bound", Nanos.of(bound));
        return this;
    }

    /**
     * Has the store acknowledge the commit once it is on stable media, also in a space whose commits are deferred.
     *
     * @return this commit
     */
    public Commit durable() {
        defer = DURABLE;
        return this;
    }

    /**
     * Returns about how many bytes the operations have.
     *
     * @return the bytes
     */
    public int size() {
        return packed.position();
    }

    /** Returns a commit of its own with the same operations. */
    Commit copy() {
        Commit copy = new Commit();
        copy.packed = room(packed.position()).put(packed.array(), 0, packed.position());
        copy.appends = appends;
        copy.defer = defer;
        return copy;
    }

    int appends() {
        return appends;
    }

    long bound() {
        return defer;
    }

    /** Returns the operations, with room behind them. */
    byte[] packed() {
        return packed.array();
    }

    @Override
    public String toString() {
        return "Commit[" + size() + " bytes, " + appends + " entries" + (defer < 0 ? "]" : ", deferred]");
    }
}
