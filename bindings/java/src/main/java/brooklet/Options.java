package brooklet;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;

/**
 * How to open a store. Each call sets an option and returns the options, for the next call. Sizes are bytes. One thread at a time
 * uses options.
 */
public final class Options {
    /** How to treat a path without a store. */
    public enum Create {
        /** The opening fails. */
        NEVER,
        /** The opening creates a store. */
        IF_MISSING,
        /** The opening creates a store, and fails if there is one. */
        NEW
    }

    private Create create = Create.IF_MISSING;
    private long ringSize = -1;
    private long memoryBudget = -1;
    private long cacheBudget = -1;
    private long maxPayload = -1;
    private long permissions = -1;
    private long linger = -1;
    private long capacity = -1;
    private byte[] ringAt;
    private boolean readOnly;
    private boolean besideWriter;
    private Executor executor = ForkJoinPool.commonPool();

    /** Makes options with the default values. */
    public Options() {}

    private static long notNegative(String name, long value) {
        if (value < 0) {
            throw BrookletException.invalid("Options." + name + " is negative: " + value);
        }
        return value;
    }

    /**
     * Decides about a path without a store. Default: {@link Create#IF_MISSING}.
     *
     * @param how the decision
     * @return these options
     */
    public Options create(Create how) {
        create = Objects.requireNonNull(how, "create");
        return this;
    }

    /**
     * Sets the size of the ring, where commits are written first. Only a new store uses it.
     *
     * @param bytes the size
     * @return these options
     */
    public Options ringSize(long bytes) {
        ringSize = notNegative("ringSize", bytes);
        return this;
    }

    /**
     * Gives the ring a file or a device of its own. Each opening of the store names it.
     *
     * @param path the path
     * @return these options
     */
    public Options ringAt(Path path) {
        ringAt = Core.text(path);
        return this;
    }

    /**
     * Sets the most bytes of the store.
     *
     * @param bytes the bytes
     * @return these options
     */
    public Options capacity(long bytes) {
        capacity = notNegative("capacity", bytes);
        return this;
    }

    /**
     * Sets the most memory for entries that are not in runs yet.
     *
     * @param bytes the memory
     * @return these options
     */
    public Options memoryBudget(long bytes) {
        memoryBudget = notNegative("memoryBudget", bytes);
        return this;
    }

    /**
     * Sets the most memory for look-ups and reads.
     *
     * @param bytes the memory
     * @return these options
     */
    public Options cacheBudget(long bytes) {
        cacheBudget = notNegative("cacheBudget", bytes);
        return this;
    }

    /**
     * Sets the most bytes of one payload.
     *
     * @param bytes the bytes
     * @return these options
     */
    public Options maxPayload(long bytes) {
        maxPayload = notNegative("maxPayload", bytes);
        return this;
    }

    /**
     * Sets the permissions of a new file, such as {@code 0600}.
     *
     * @param mode the permissions
     * @return these options
     */
    public Options permissions(int mode) {
        permissions = notNegative("permissions", mode);
        return this;
    }

    /**
     * Sets the longest time for which the store collects commits before it writes them.
     *
     * @param time the time
     * @return these options
     */
    public Options linger(Duration time) {
        linger = notNegative("linger", Nanos.of(time));
        return this;
    }

    /**
     * Opens the store for reading. Nobody else may have it open for writing.
     *
     * @param on whether
     * @return these options
     */
    public Options readOnly(boolean on) {
        readOnly = on;
        return this;
    }

    /**
     * Opens the store for reading, beside a process that has it open for writing. The reader sees the entries that were on stable
     * media when it opened the store.
     *
     * @param on whether
     * @return these options
     */
    public Options besideWriter(boolean on) {
        besideWriter = on;
        return this;
    }

    /**
     * Sets the executor that completes {@linkplain Ticket tickets} and calls subscribers. Default: {@link
     * ForkJoinPool#commonPool()}.
     *
     * @param executor the executor
     * @return these options
     */
    public Options executor(Executor executor) {
        this.executor = Objects.requireNonNull(executor, "executor");
        return this;
    }

    Executor executor() {
        return executor;
    }

    /** Returns the options in the order that the native part knows. */
    long[] numbers() {
        return new long[] {
            create.ordinal(),
            ringSize,
            memoryBudget,
            cacheBudget,
            maxPayload,
            permissions,
            linger,
            readOnly ? 1 : 0,
            besideWriter ? 1 : 0,
            capacity
        };
    }

    /** Returns the path of the ring, as the native part takes it; null if the ring has none. */
    byte[] ring() {
        return ringAt;
    }
}
