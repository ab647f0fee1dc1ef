package brooklet.pekko;

import brooklet.Store;
import java.nio.file.Path;
import java.util.HashMap;
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
        open.values().forEach(Store::close);
        open.clear();
    }
}
