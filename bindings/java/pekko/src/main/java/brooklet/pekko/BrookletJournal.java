package brooklet.pekko;

import brooklet.Bounds;
import brooklet.BrookletException;
import brooklet.Commit;
import brooklet.Entry;
import brooklet.Items;
import brooklet.Key;
import brooklet.Store;
import com.typesafe.config.Config;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.function.Consumer;
import org.apache.pekko.persistence.AtomicWrite;
import org.apache.pekko.persistence.PersistentRepr;
import org.apache.pekko.persistence.journal.japi.AsyncWriteJournal;
import org.apache.pekko.serialization.Serialization;
import org.apache.pekko.serialization.SerializationExtension;
import scala.concurrent.Future;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A journal. Writes return when the events are on stable media, and need no thread each. A write of a sequence number that is not
 * the next one of its persistence id fails: another actor has written under the same id.
 */
public final class BrookletJournal extends AsyncWriteJournal {
    private static final byte[] HOLE = new byte[0];

    private final Store store;
    private final Executor reads;
    private final Serialization serialization = SerializationExtension.get(context().system());
    /** The last write of each persistence id, while it is under way: a restarting actor must see it. */
    private final Map<String, CompletableFuture<?>> writing = new ConcurrentHashMap<>();

    /**
     * Makes the journal. Pekko calls it.
     *
     * @param config the settings of the journal
     */
    public BrookletJournal(Config config) {
        store = Stores.at(context().system(), config.getString("path"));
        reads = context().system().dispatchers().lookup(config.getString("read-dispatcher"));
    }

    private static Key key(String persistenceId) {
        return Key.of("j/" + persistenceId);
    }

    @Override
    public Future<Iterable<Optional<Exception>>> doAsyncWriteMessages(Iterable<AtomicWrite> messages) {
        Commit commit = new Commit().durable();
        List<Optional<Exception>> rejections = new ArrayList<>();
        Map<String, Long> ends = new HashMap<>();
        CompletableFuture<Iterable<Optional<Exception>>> written;
        try {
            for (AtomicWrite write : messages) {
                rejections.add(add(commit, ends, write));
            }
            written = store.commitAsync(commit).thenApply(appended -> rejections);
        } catch (BrookletException | IllegalStateException e) {
            return Futures.failed(e);
        }
        for (String id : ends.keySet()) {
            writing.put(id, written);
            written.whenComplete((done, failure) -> writing.remove(id, written));
        }
        return Futures.scala(written);
    }

    /**
     * Adds the events of a write to a commit. If one cannot be serialized, adds holes, and returns the reason. {@code ends} has
     * the last sequence number of each id in the commit.
     */
    private Optional<Exception> add(Commit commit, Map<String, Long> ends, AtomicWrite write) {
        List<PersistentRepr> events = CollectionConverters.asJava(write.payload());
        List<byte[]> payloads = new ArrayList<>();
        Optional<Exception> rejection = Optional.empty();
        for (PersistentRepr event : events) {
            try {
                payloads.add(serialization.serialize(event).get());
            } catch (Exception e) {
                rejection = Optional.of(e);
            }
        }
        Key key = key(write.persistenceId());
        long before = write.lowestSequenceNr() - 1;
        Long end = ends.put(write.persistenceId(), write.highestSequenceNr());
        if (end == null) {
            commit.expectNext(key, before);
        } else if (end != before) {
            throw new IllegalStateException("the events of \"" + write.persistenceId() + "\" jump from sequence number " + end
                    + " to " + write.lowestSequenceNr());
        }
        for (int i = 0; i < events.size(); i++) {
            // The sequence numbers of rejected events are not used again.
            commit.append(key, rejection.isPresent() ? HOLE : payloads.get(i));
        }
        return rejection;
    }

    private CompletableFuture<?> writes(String persistenceId) {
        CompletableFuture<?> last = writing.get(persistenceId);
        return last == null ? CompletableFuture.completedFuture(null) : last;
    }

    @Override
    public Future<Void> doAsyncDeleteMessagesTo(String persistenceId, long toSequenceNr) {
        return Futures.after(writes(persistenceId), reads, () -> {
            Key key = key(persistenceId);
            Optional<Bounds> bounds = store.getBounds(key);
            if (bounds.isPresent()) {
                long before = Math.min(toSequenceNr, bounds.get().next());
                if (before > bounds.get().first()) {
                    store.trim(key, before);
                }
            }
            return null;
        });
    }

    @Override
    public Future<Void> doAsyncReplayMessages(
            String persistenceId, long fromSequenceNr, long toSequenceNr, long max, Consumer<PersistentRepr> replay) {
        return Futures.after(writes(persistenceId), reads, () -> {
            long from = Math.max(fromSequenceNr, 1) - 1;
            long left = max;
            try (Items<Entry> entries = store.readAvailable(key(persistenceId), from, Math.max(toSequenceNr, from))) {
                for (Entry entry : entries) {
                    if (left <= 0) {
                        break;
                    }
                    if (entry.payload().length > 0) {
                        left--;
                        replay.accept(serialization.deserialize(entry.payload(), PersistentRepr.class).get());
                    }
                }
            }
            return null;
        });
    }

    @Override
    public Future<Long> doAsyncReadHighestSequenceNr(String persistenceId, long fromSequenceNr) {
        return Futures.after(writes(persistenceId), reads, () -> store.getBounds(key(persistenceId))
                .map(Bounds::next)
                .orElse(0L));
    }
}
