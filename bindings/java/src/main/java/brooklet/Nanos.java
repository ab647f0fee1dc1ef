package brooklet;

import java.time.Duration;

/** Times as the C library takes them. */
final class Nanos {
    private static final Duration MOST = Duration.ofNanos(Long.MAX_VALUE);

    private Nanos() {}

    /** Returns the nanoseconds of a time, which are at most {@code Long.MAX_VALUE}. */
    static long of(Duration time) {
        return time.compareTo(MOST) > 0 ? Long.MAX_VALUE : time.toNanos();
    }
}
