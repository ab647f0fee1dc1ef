package brooklet;

import java.nio.charset.StandardCharsets;
import java.util.OptionalLong;

/**
 * The reason why a call failed. Each kind has a class of its own, which says how to react. The message states the failure, its
 * place and the remedy.
 */
public class BrookletException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** The report of a failure: its status in the C library, and the bounds of the log, or -1. */
    record Report(int status, String message, long first, long next, boolean closed) {}

    private final transient Report report;
    private final long first;
    private final long next;

    BrookletException(Report report) {
        super(report.message);
        this.report = report;
        this.first = report.first;
        this.next = report.next;
    }

    /**
     * Returns the number of the first entry that the log still has, if the failure is about a number outside of the log.
     *
     * @return the number, or nothing
     */
    public final OptionalLong first() {
        return first < 0 ? OptionalLong.empty() : OptionalLong.of(first);
    }

    /**
     * Returns the number that the next entry of the log will get, if the failure is about the end of the log. So a caller that
     * lost against another writer need not ask for the bounds.
     *
     * @return the number, or nothing
     */
    public final OptionalLong next() {
        return next < 0 ? OptionalLong.empty() : OptionalLong.of(next);
    }

    /** Makes the exception of an error. The native part calls it. */
    static BrookletException of(int status, byte[] message, long first, long next, boolean closed) {
        return of(new Report(status, new String(message, StandardCharsets.UTF_8), first, next, closed));
    }

    private static BrookletException of(Report report) {
        if (report.closed) {
            return new ClosedException(report);
        }
        // The numbers of brooklet_status.
        return switch (report.status) {
            case 1 -> new InvalidException(report);
            case 2 -> new NotFoundException(report);
            case 3 -> new ConflictException(report);
            case 5 -> new CannotOpenException(report);
            case 6 -> new DamagedException(report);
            case 7 -> new FullException(report);
            case 8 -> new BusyException(report);
            case 9 -> new StoppedException(report);
            case 10 -> new IoException(report);
            default -> new InternalException(report);
        };
    }

    static BrookletException invalid(String message) {
        return of(new Report(1, message, -1, -1, false));
    }

    static BrookletException stopped(String message) {
        return of(new Report(9, message, -1, -1, false));
    }

    static BrookletException closed(String message) {
        return of(new Report(9, message, -1, -1, true));
    }

    /** Returns the same exception with the stack of this thread, for one failure that many threads meet. */
    final BrookletException here() {
        return of(report);
    }
}
