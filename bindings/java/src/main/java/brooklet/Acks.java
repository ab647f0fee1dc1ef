package brooklet;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.locks.LockSupport;

/**
 * The groups of writes that reach stable media together. The C library gives each write the tag of its group, and one completion
 * ends the group. The completion may come before its writes have looked the group up.
 */
final class Acks {
    /** Some writes that reach stable media together. */
    static final class Group {
        /** The group of writes that ended before anybody could wait. */
        private static final Group ACKNOWLEDGED = new Group();

        static {
            ACKNOWLEDGED.done.complete(null);
        }

        private final CompletableFuture<Void> done = new CompletableFuture<>();
        private final List<Ticket> tickets = new ArrayList<>();
        private long joined;
        private long writes;
        private boolean ended;
        /** The failure, once {@code done} is complete. */
        private volatile BrookletException failure;

        /** Waits until the writes are acknowledged, and throws the failure otherwise. */
        void await() throws InterruptedException {
            if (Thread.interrupted()) {
                throw new InterruptedException();
            }
            try {
                done.get();
            } catch (java.util.concurrent.ExecutionException e) {
                throw new AssertionError("the future of a group never fails", e);
            }
            if (failure != null) {
                throw failure.here();
            }
        }
    }

    private final Executor executor;
    private final Map<Long, Group> groups = new HashMap<>();

    Acks(Executor executor) {
        this.executor = executor;
    }

    /** Returns the group of a write, for a thread that waits. */
    Group join(long tag) {
        if (tag == 0) {
            return Group.ACKNOWLEDGED;
        }
        synchronized (this) {
            return joined(tag);
        }
    }

    /** Has a ticket, which nobody else has yet, end with the group of its write. */
    void add(long tag, Ticket ticket) {
        BrookletException failure = null;
        if (tag != 0) {
            synchronized (this) {
                Group group = joined(tag);
                if (!group.ended) {
                    group.tickets.add(ticket);
                    return;
                }
                failure = group.failure;
            }
        }
        ticket.end(failure);
    }

    private Group joined(Long tag) {
        Group group = at(tag);
        group.joined++;
        forget(tag, group);
        return group;
    }

    private Group at(Long tag) {
        return groups.computeIfAbsent(tag, made -> new Group());
    }

    private void forget(Long tag, Group group) {
        if (group.ended && group.joined == group.writes) {
            groups.remove(tag);
        }
    }

    /**
     * Ends a group, which is then to be finished; the failure is null if its writes are acknowledged. A call that ran out of
     * memory may be repeated, as may those below.
     */
    synchronized Group end(Long tag, long writes, BrookletException failure) {
        Group group = at(tag);
        // From here on, nothing needs memory.
        group.writes = writes;
        group.failure = failure;
        group.ended = true;
        forget(tag, group);
        return group;
    }

    /** Ends all groups that are left. */
    void fail(BrookletException failure) {
        List<Group> left;
        synchronized (this) {
            left = new ArrayList<>(groups.values());
            for (Group group : left) {
                if (!group.ended) {
                    group.failure = failure;
                    group.ended = true;
                }
            }
        }
        left.forEach(this::finish);
        synchronized (this) {
            groups.clear();
        }
    }

    /**
     * Wakes those who wait for a group that has ended, without code of the user on this thread. Its tickets do not change any
     * more. A second call changes nothing.
     */
    void finish(Group group) {
        group.done.complete(null);
        if (!group.tickets.isEmpty()) {
            Core.run(executor, () -> finishTickets(group));
        }
    }

    private static void finishTickets(Group group) {
        for (int i = 0; i < group.tickets.size(); ) {
            try {
                group.tickets.get(i).end(group.failure);
                i++;
            } catch (OutOfMemoryError e) {
                // Nobody else ends the others.
                LockSupport.parkNanos(Core.PAUSE);
            }
        }
    }

    /** Returns how many groups have not ended, or were not looked up by all of their writes. */
    synchronized int size() {
        return groups.size();
    }
}
