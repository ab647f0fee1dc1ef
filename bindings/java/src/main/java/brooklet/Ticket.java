package brooklet;

import java.util.concurrent.CompletableFuture;

/**
 * The promise of a write: the numbers of its entries are known at once ({@link #appended()}), and the future completes when the
 * write is acknowledged: on stable media, or at once for a deferred commit. If that fails, the future completes with a {@link
 * BrookletException}.
 *
 * <p>The executor of the store completes tickets. Those of writes that reach stable media together complete one after another:
 * an action that waits belongs to the {@code Async} methods. To cancel a ticket, or to complete it, does not touch the write.
 */
public final class Ticket extends CompletableFuture<Appended> {
    private final Appended appended;

    Ticket(Appended appended) {
        this.appended = appended;
    }

    /**
     * Returns the numbers of the appended entries, which may not be on stable media yet.
     *
     * @return the numbers
     */
    public Appended appended() {
        return appended;
    }

    /**
     * Returns the number of the appended entry, or of the first one; 0 if there is none.
     *
     * @return the number
     */
    public long seq() {
        return appended.seq();
    }

    /** Completes the ticket: {@code failure} is null if the write is acknowledged. */
    void end(BrookletException failure) {
        if (failure == null) {
            complete(appended);
        } else {
            completeExceptionally(failure);
        }
    }
}
