package brooklet.pekko;

import brooklet.Commit;
import brooklet.ConflictException;
import brooklet.Entry;
import brooklet.Items;
import brooklet.Key;
import brooklet.LogInfo;
import brooklet.NotFoundException;
import brooklet.Store;
import com.typesafe.config.Config;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.function.Supplier;
import org.apache.pekko.persistence.SelectedSnapshot;
import org.apache.pekko.persistence.SnapshotMetadata;
import org.apache.pekko.persistence.SnapshotSelectionCriteria;
import org.apache.pekko.persistence.serialization.Snapshot;
import org.apache.pekko.persistence.snapshot.japi.SnapshotStore;
import org.apache.pekko.serialization.Serialization;
import org.apache.pekko.serialization.SerializationExtension;
import scala.Option;
import scala.concurrent.Future;

/**
 * A snapshot store. Each snapshot is a log of one entry; its key is {@code s/}, the persistence id, a zero byte, and the sequence
 * number in eight bytes, so that a listing has the snapshots of an id in order. The entry has the timestamp in eight bytes, the
 * length of the snapshot in four, the snapshot, and the metadata of the snapshot, if it has some.
 */
public final class BrookletSnapshotStore extends SnapshotStore {
    private static final int HEAD = 12;

    private final Store store;
    private final Executor reads;
    private final Serialization serialization = SerializationExtension.get(context().system());

    /**
     * Makes the snapshot store. Pekko calls it.
     *
     * @param config the settings of the snapshot store
     */
    public BrookletSnapshotStore(Config config) {
        store = Stores.at(context().system(), config.getString("path"));
        reads = context().system().dispatchers().lookup(config.getString("read-dispatcher"));
    }

    private static byte[] prefix(String persistenceId) {
        return Key.of("s/" + persistenceId + "\0").bytes();
    }

    private static Key key(String persistenceId, long sequenceNr) {
        byte[] prefix = prefix(persistenceId);
        ByteBuffer key = ByteBuffer.allocate(prefix.length + Long.BYTES);
        return Key.of(key.put(prefix).putLong(sequenceNr).array());
    }

    /** Returns the sequence numbers of the snapshots of an id that are within the criteria, the highest first. */
    private List<Long> numbers(String persistenceId, SnapshotSelectionCriteria criteria) {
        byte[] prefix = prefix(persistenceId);
        List<Long> numbers = new ArrayList<>();
        try (Items<LogInfo> logs = store.scan(Key.of(prefix), key(persistenceId, criteria.minSequenceNr()))) {
            for (LogInfo log : logs) {
                byte[] key = log.key().bytes();
                // Another id may begin with this one and a zero byte: its keys are longer.
                if (key.length == prefix.length + Long.BYTES) {
                    long number = ByteBuffer.wrap(key).getLong(prefix.length);
                    if (number > criteria.maxSequenceNr()) {
                        break;
                    }
                    numbers.add(number);
                }
            }
        }
        Collections.reverse(numbers);
        return numbers;
    }

    private Optional<Entry> entry(String persistenceId, long sequenceNr) {
        return store.last(key(persistenceId, sequenceNr));
    }

    private static long timestamp(Entry entry) {
        return ByteBuffer.wrap(entry.payload()).getLong();
    }

    private static boolean matches(Entry entry, SnapshotSelectionCriteria criteria) {
        long timestamp = timestamp(entry);
        return timestamp >= criteria.minTimestamp() && timestamp <= criteria.maxTimestamp();
    }

    private byte[] serialized(Object data) {
        return serialization.serialize(new Snapshot(data)).get();
    }

    private Object deserialized(byte[] payload, int from, int to) {
        return serialization.deserialize(Arrays.copyOfRange(payload, from, to), Snapshot.class).get().data();
    }

    private SelectedSnapshot selected(String persistenceId, long sequenceNr, Entry entry) {
        byte[] payload = entry.payload();
        int end = HEAD + ByteBuffer.wrap(payload).getInt(Long.BYTES);
        Option<Object> more = end == payload.length ? Option.empty() : Option.apply(deserialized(payload, end, payload.length));
        SnapshotMetadata metadata = new SnapshotMetadata(persistenceId, sequenceNr, timestamp(entry), more);
        return SelectedSnapshot.create(metadata, deserialized(payload, HEAD, end));
    }

    private <T> Future<T> read(java.util.concurrent.Callable<T> call) {
        return Futures.after(CompletableFuture.completedFuture(null), reads, call);
    }

    @Override
    public Future<Optional<SelectedSnapshot>> doLoadAsync(String persistenceId, SnapshotSelectionCriteria criteria) {
        return read(() -> {
            for (long number : numbers(persistenceId, criteria)) {
                Optional<Entry> entry = entry(persistenceId, number).filter(found -> matches(found, criteria));
                if (entry.isPresent()) {
                    return Optional.of(selected(persistenceId, number, entry.get()));
                }
            }
            return Optional.empty();
        });
    }

    @Override
    public Future<Void> doSaveAsync(SnapshotMetadata metadata, Object data) {
        try {
            byte[] snapshot = serialized(data);
            byte[] more = metadata.metadata().isEmpty() ? new byte[0] : serialized(metadata.metadata().get());
            ByteBuffer payload = ByteBuffer.allocate(HEAD + snapshot.length + more.length);
            payload.putLong(metadata.timestamp()).putInt(snapshot.length).put(snapshot).put(more).flip();
            // An actor deletes the events that a saved snapshot has.
            Commit commit = new Commit().durable().snapshot(key(metadata.persistenceId(), metadata.sequenceNr()), payload);
            return Futures.scala(store.commitAsync(commit).thenApply(appended -> null));
        } catch (RuntimeException e) {
            return Futures.failed(e);
        }
    }

    /**
     * Deletes the snapshots that a listing returns: the number of the only entry of each, by its sequence number. If one of them
     * was deleted or saved over meanwhile, nothing happens, and the listing is made again.
     */
    private Void delete(String persistenceId, Supplier<Map<Long, Long>> listing) {
        while (true) {
            Commit commit = new Commit();
            listing.get().forEach((number, seq) -> {
                Key key = key(persistenceId, number);
                commit.expectNext(key, seq + 1).delete(key);
            });
            if (commit.size() == 0) {
                return null;
            }
            try {
                store.commitAsync(commit).join();
                return null;
            } catch (ConflictException | NotFoundException e) {
                // Another call was first.
            }
        }
    }

    @Override
    public Future<Void> doDeleteAsync(SnapshotMetadata metadata) {
        String id = metadata.persistenceId();
        long number = metadata.sequenceNr();
        // A timestamp of 0 is not known to the caller.
        return read(() -> delete(id, () -> entry(id, number)
                .filter(entry -> metadata.timestamp() == 0 || metadata.timestamp() == timestamp(entry))
                .map(entry -> Map.of(number, entry.seq()))
                .orElse(Map.of())));
    }

    @Override
    public Future<Void> doDeleteAsync(String persistenceId, SnapshotSelectionCriteria criteria) {
        return read(() -> delete(persistenceId, () -> {
            Map<Long, Long> found = new HashMap<>();
            for (long number : numbers(persistenceId, criteria)) {
                entry(persistenceId, number)
                        .filter(entry -> matches(entry, criteria))
                        .ifPresent(entry -> found.put(number, entry.seq()));
            }
            return found;
        }));
    }
}
