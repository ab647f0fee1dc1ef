package brooklet;

import java.time.Duration;

/**
 * How much a log keeps: its newest entries, within each limit. A limit that is null is no limit.
 *
 * @param entries the most entries, or null
 * @param bytes the most bytes of payloads, or null
 * @param age how long the log keeps an entry, or null
 */
public record Retention(Long entries, Long bytes, Duration age) {
    /** No limits: the log keeps everything. */
    public static final Retention ALL = new Retention(null, null, null);

    /**
     * Checks the limits.
     *
     * @param entries the most entries, or null
     * @param bytes the most bytes of payloads, or null
     * @param age how long the log keeps an entry, or null
     * @throws InvalidException if a limit is negative
     */
    public Retention {
        if ((entries != null && entries < 0) || (bytes != null && bytes < 0) || (age != null && age.isNegative())) {
            throw BrookletException.invalid("a limit of a retention is negative");
        }
    }

    /**
     * Returns the same limits with another one for the entries.
     *
     * @param most the most entries
     * @return the limits
     */
    public Retention entries(long most) {
        return new Retention(most, bytes, age);
    }

    /**
     * Returns the same limits with another one for the bytes.
     *
     * @param most the most bytes of payloads
     * @return the limits
     */
    public Retention bytes(long most) {
        return new Retention(entries, most, age);
    }

    /**
     * Returns the same limits with another one for the age.
     *
     * @param longest how long the log keeps an entry
     * @return the limits
     */
    public Retention age(Duration longest) {
        return new Retention(entries, bytes, longest);
    }
}
