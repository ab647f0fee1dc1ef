package brooklet;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;

/** Loads the native part from the artifact. */
final class Library {
    private Library() {}

    /**
     * Extracts the library to a folder that only this user may enter, loads it, and removes it again: the process keeps what it
     * has loaded.
     */
    static void load() {
        boolean mac = System.getProperty("os.name").toLowerCase(Locale.ROOT).contains("mac");
        String system = (mac ? "macos-" : "linux-") + System.getProperty("os.arch");
        String name = "libbrooklet_java." + (mac ? "dylib" : "so");
        String resource = "/brooklet/" + system + "/" + name;
        try (InputStream library = Library.class.getResourceAsStream(resource)) {
            if (library == null) {
                throw new UnsatisfiedLinkError("this build of brooklet has no library for " + system
                        + ": run bindings/java/build on such a machine, then build the artifact");
            }
            Path folder = Files.createTempDirectory("brooklet");
            Path file = folder.resolve(name);
            try {
                Files.copy(library, file);
                System.load(file.toString());
            } finally {
                Files.deleteIfExists(file);
                Files.delete(folder);
            }
        } catch (IOException e) {
            UnsatisfiedLinkError error = new UnsatisfiedLinkError("the library of brooklet cannot be extracted: set"
                    + " java.io.tmpdir to a folder that this user may write to and load libraries from");
            error.initCause(e);
            throw error;
        }
    }
}
