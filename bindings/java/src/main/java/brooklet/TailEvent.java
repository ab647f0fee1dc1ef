package brooklet;

/** A step of a tail: an entry, or a named gap. */
public sealed interface TailEvent permits Entry, TailEvent.Trimmed, TailEvent.Truncated, TailEvent.Deleted {
    /**
     * The log dropped entries before the tail returned them.
     *
     * @param from the number of the first of them
     * @param to the number behind the last of them
     */
    record Trimmed(long from, long to) implements TailEvent {}

    /**
     * Entries from {@code from} on, which the tail may have returned, are no longer in the log. The tail goes on with an entry
     * {@code from} that may be appended later.
     *
     * @param from the number
     */
    record Truncated(long from) implements TailEvent {}

    /** The log was deleted. The tail goes on with entry 0 of a new log of the same key. */
    record Deleted() implements TailEvent {}
}
