package brooklet;

import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Queue;
import java.util.concurrent.Flow.Subscriber;
import java.util.concurrent.Flow.Subscription;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A subscriber's tail. One run at a time, on the executor of the store, has the tail and calls the subscriber. A call that finds
 * a run under way asks it to look again. A tail that waits, for entries or for demand, uses no thread.
 */
final class TailSubscription implements Subscription, Runnable {
    /** The numbers of brooklet_tail_kind. */
    private static final int TRIMMED = 1;

    private static final int TRUNCATED = 2;
    private static final int DELETED = 3;

    /** It keeps the store from being closed by the collector. */
    private final Store store;

    private final Core core;
    private final Key key;
    private final long from;
    private final Subscriber<? super TailEvent> subscriber;

    /** How often a run was asked for. The run that began with 1 goes on until it has seen all. */
    private final AtomicInteger asked = new AtomicInteger();

    private final AtomicLong demand = new AtomicLong();
    private volatile boolean cancelled;
    private volatile boolean wrongDemand;

    // What follows belongs to the run.
    private final Queue<TailEvent> events = new ArrayDeque<>();
    private long tail;
    private long tag;
    private boolean ended;
    /** Whether an exception comes from the subscriber, who may not throw: the executor gets it. */
    private boolean calling;

    TailSubscription(Store store, Core core, Key key, long from, Subscriber<? super TailEvent> subscriber) {
        this.store = store;
        this.core = core;
        this.key = key;
        this.from = from;
        this.subscriber = subscriber;
    }

    void begin() {
        // No other call comes before the subscriber has its subscription.
        asked.set(1);
        subscriber.onSubscribe(this);
        Core.run(core.executor, this);
    }

    @Override
    public void request(long n) {
        if (n <= 0) {
            wrongDemand = true;
        } else {
            demand.accumulateAndGet(n, (a, b) -> a + b < 0 ? Long.MAX_VALUE : a + b);
        }
        ask();
    }

    @Override
    public void cancel() {
        cancelled = true;
        ask();
    }

    private void ask() {
        if (asked.getAndIncrement() == 0) {
            try {
                Core.run(core.executor, this);
            } catch (OutOfMemoryError e) {
                // No run has begun: the next one who asks begins it.
                asked.set(0);
                throw e;
            }
        }
    }

    @Override
    public void run() {
        int seen = asked.get();
        do {
            if (!ended) {
                follow();
            }
            seen = asked.addAndGet(-seen);
        } while (seen != 0);
    }

    /** Passes events on until the tail or the subscriber has to be waited for. */
    private void follow() {
        try {
            if (tail == 0 && !cancelled) {
                begun();
            }
            do {
                while (!events.isEmpty() && demand.get() > 0 && !cancelled && !wrongDemand) {
                    if (demand.get() != Long.MAX_VALUE) {
                        demand.decrementAndGet();
                    }
                    calling = true;
                    subscriber.onNext(events.remove());
                    calling = false;
                }
                if (cancelled) {
                    end();
                    return;
                }
                if (wrongDemand) {
                    throw new IllegalArgumentException("a subscriber requested fewer than one event");
                }
            } while (events.isEmpty() && demand.get() > 0 && fill());
            if (events.isEmpty() && core.isClosed()) {
                // A failure needs no demand. Nobody else would free the tail.
                throw Core.closed();
            }
        } catch (BrookletException | IllegalArgumentException e) {
            end();
            if (calling) {
                throw e;
            }
            subscriber.onError(e);
        } catch (Throwable e) {
            end();
            throw e;
        }
    }

    private void begun() {
        core.acquire();
        try {
            tail = core.openTail(key, from);
            tag = core.notices.add(this::ask);
        } finally {
            core.release();
        }
    }

    /** Takes the events that are there, and returns whether there are any. */
    private boolean fill() {
        core.acquire();
        try {
            return filled();
        } finally {
            core.release();
        }
    }

    private boolean filled() {
        ByteBuffer buffer = Buffers.borrow();
        try {
            long[] out = new long[5];
            if (!core.fillTail(tail, tag, buffer, out)) {
                return false;
            }
            if (out[0] > 0 && out[1] == 0) {
                byte[] payload = Native.largeTail(tail, out);
                events.add(new Entry(out[0], payload));
                return true;
            }
            events.addAll(Buffers.entries(buffer, out[1]));
            switch ((int) out[2]) {
                case TRIMMED -> events.add(new TailEvent.Trimmed(out[3], out[4]));
                case TRUNCATED -> events.add(new TailEvent.Truncated(out[3]));
                case DELETED -> events.add(new TailEvent.Deleted());
                default -> {}
            }
            return true;
        } finally {
            Buffers.give(buffer);
        }
    }

    private void end() {
        ended = true;
        events.clear();
        core.notices.remove(tag);
        Native.freeTail(tail);
        tail = 0;
    }

    @Override
    public String toString() {
        return "Tail[" + key + " of " + store + "]";
    }
}
