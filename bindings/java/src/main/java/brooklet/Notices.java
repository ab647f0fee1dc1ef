package brooklet;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/** The tails that wait for the next entry of their logs, and the calls that wait for a number. */
final class Notices {
    private final AtomicLong made = new AtomicLong();
    private final Map<Long, Runnable> waiting = new ConcurrentHashMap<>();

    /** Makes a place where the C library may leave a notice. It calls {@code heed}, which does not wait. */
    long add(Runnable heed) {
        long tag = made.incrementAndGet();
        waiting.put(tag, heed);
        return tag;
    }

    void remove(long tag) {
        waiting.remove(tag);
    }

    void leave(long tag) {
        Runnable heed = waiting.get(tag);
        if (heed != null) {
            heed.run();
        }
    }

    void leaveAll() {
        waiting.values().forEach(Runnable::run);
    }

    int size() {
        return waiting.size();
    }
}
