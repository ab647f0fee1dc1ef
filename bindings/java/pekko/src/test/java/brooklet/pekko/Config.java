package brooklet.pekko;

import com.typesafe.config.ConfigFactory;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** The settings of the suites: a new store for each. */
final class Config {
    private Config() {}

    static com.typesafe.config.Config make() {
        try {
            Path folder = Files.createDirectories(Path.of("target", "stores"));
            Path path = Files.createTempDirectory(folder, "store").resolve("pekko.brooklet");
            return ConfigFactory.parseString("""
                    pekko.persistence.journal.plugin = "brooklet.pekko.journal"
                    pekko.persistence.snapshot-store.plugin = "brooklet.pekko.snapshot-store"
                    # The suites wait for answers at most so many times as long as they would: no test needs a speed.
                    pekko.test.timefactor = 20
                    pekko.actor.allow-java-serialization = off
                    brooklet.pekko.journal.path = "%s"
                    brooklet.pekko.snapshot-store.path = "%s"
                    """.formatted(path, path));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
