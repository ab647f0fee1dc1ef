package brooklet.pekko;

import brooklet.Store;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.pekko.actor.AbstractExtensionId;
import org.apache.pekko.actor.ActorSystem;
import org.apache.pekko.actor.ExtendedActorSystem;
import org.apache.pekko.actor.Extension;

/** The stores of an actor system: each path is opened once, and closed when the system has ended. */
final class Stores implements Extension {
    private static final Id ID = new Id();

    private final Map<Path, Store> open = new HashMap<>();

    private static final class Id extends AbstractExtensionId<Stores> {
        @Override
        public Stores createExtension(ExtendedActorSystem system) {
            Stores stores = new Stores();
            system.registerOnTermination(stores::close);
            return stores;
        }
    }

    /** Returns the store at a path. */
    static Store at(ActorSystem system, String path) {
        return ID.get(system).open(Path.of(path).toAbsolutePath().normalize());
    }

    private synchronized Store open(Path path) {
        return open.computeIfAbsent(path, Store::open);
    }

    private synchronized void close() {
        List<Runnable> closes = new ArrayList<>();
        open.values().forEach(store -> closes.add(store::close));
        open.clear();
        closeEach(closes);
    }

    /** Closes each store, also behind one that throws; throws the first failure at the end. */
    static void closeEach(List<Runnable> closes) {
        RuntimeException failure = null;
        for (Runnable close : closes) {
            try {
                close.run();
            } catch (RuntimeException e) {
                if (failure == null) {
                    failure = e;
                } else {
                    failure.addSuppressed(e);
                }
            }
        }
        if (failure != null) {
            throw failure;
        }
    }
}
