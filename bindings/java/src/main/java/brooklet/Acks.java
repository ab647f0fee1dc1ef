package brooklet;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;

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

    private Group joined(long tag) {
        Group group = at(tag);
        group.joined++;
        forget(tag, group);
        return group;
    }

    private Group at(long tag) {
        return groups.computeIfAbsent(tag, made -> new Group());
    }

    private void forget(long tag, Group group) {
        if (group.ended && group.joined == group.writes) {
            groups.remove(tag);
        }
    }

    /** Ends a group; the failure is null if its writes are acknowledged. */
    void end(long tag, long writes, BrookletException failure) {
        Group group;
        synchronized (this) {
            group = at(tag);
            group.writes = writes;
            group.failure = failure;
            group.ended = true;
            forget(tag, group);
        }
        finish(group);
    }

    /** Ends all groups that are left. */
    void fail(BrookletException failure) {
        List<Group> left = new ArrayList<>();
        synchronized (this) {
            for (Group group : groups.values()) {
                if (!group.ended) {
                    group.failure = failure;
                    group.ended = true;
                    left.add(group);
                }
            }
            groups.clear();
        }
        left.forEach(this::finish);
    }

    /** Wakes those who wait for a group, without code of the user on this thread. Its tickets do not change any more. */
    private void finish(Group group) {
        group.done.complete(null);
        if (!group.tickets.isEmpty()) {
            Core.run(executor, () -> group.tickets.forEach(ticket -> ticket.end(group.failure)));
        }
    }

    /** Returns how many groups have not ended, or were not looked up by all of their writes. */
    synchronized int size() {
        return groups.size();
    }
}
