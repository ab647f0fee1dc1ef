package brooklet;

import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * The items of a read or of a listing, to be iterated over once, by one thread at a time. They are as they were when the call was
 * made. Close items that you do not iterate over to the end; the garbage collector closes those that were lost.
 *
 * @param <T> {@link Entry} or {@link LogInfo}
 */
public final class Items<T> implements Iterable<T>, AutoCloseable {
    /** An open iterator needs its store: the collector must not close it. */
    private final Store store;

    private final Rest<T> rest;
    private final Cleaner.Cleanable cleanable;
    private List<T> batch;
    private int at;
    private boolean begun;
    private volatile boolean closed;

    /** Makes items of a first batch and a rest, which is null if there is none. */
    Items(Store store, List<T> batch, Rest<T> rest) {
        this.store = store;
        this.batch = batch;
        this.rest = rest;
        this.cleanable = rest == null ? null : Store.CLEANER.register(this, rest);
    }

    /**
     * Returns the only iterator. Its methods throw {@link DamagedException} if an item does not read back as it was written, and
     * {@link ClosedException} if these items are closed.
     *
     * @throws IllegalStateException if this is the second call
     */
    @Override
    public Iterator<T> iterator() {
        if (begun) {
            throw new IllegalStateException("these items were iterated over before: read again");
        }
        begun = true;
        return new Iterator<>() {
            @Override
            public boolean hasNext() {
                return Items.this.hasNext();
            }

            @Override
            public T next() {
                if (!Items.this.hasNext()) {
                    throw new NoSuchElementException();
                }
                return batch.get(at++);
            }
        };
    }

    boolean isEmpty() {
        return batch.isEmpty() && rest == null;
    }

    private void refuseIfClosed() {
        if (closed) {
            throw BrookletException.closed("the iterator is closed: begin another one");
        }
    }

    private boolean hasNext() {
        refuseIfClosed();
        while (at == batch.size()) {
            if (rest == null || rest.ended()) {
                // A close by another thread ends the rest, too: that is not the end of the log.
                refuseIfClosed();
                return false;
            }
            batch = List.of();
            at = 0;
            batch = rest.more();
            Reference.reachabilityFence(store);
        }
        return true;
    }

    /**
     * Returns the items as a stream, in place of {@link #iterator()}. To close the stream closes the items.
     *
     * @return the stream
     * @throws IllegalStateException if the items were iterated over before
     */
    public Stream<T> stream() {
        int order = Spliterator.ORDERED | Spliterator.NONNULL;
        return StreamSupport.stream(Spliterators.spliteratorUnknownSize(iterator(), order), false).onClose(this::close);
    }

    /** Frees the rest. A second call does nothing. */
    @Override
    public void close() {
        closed = true;
        if (cleanable != null) {
            cleanable.clean();
        }
    }
}
