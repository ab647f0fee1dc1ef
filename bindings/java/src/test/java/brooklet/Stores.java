package brooklet;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.function.Executable;

/** What the tests share. */
final class Stores {
    private Stores() {}

    static Options small() {
        return new Options().ringSize(4 << 20).memoryBudget(16 << 20).maxPayload(1 << 20);
    }

    static Store open(Path folder) {
        return Store.open(folder.resolve("test.brooklet"), small());
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static Key key(String text) {
        return Key.of(text);
    }

    static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    /** Returns entries as texts of their numbers and payloads. */
    static List<String> texts(Items<Entry> entries) {
        List<String> texts = new ArrayList<>();
        try (entries) {
            for (Entry entry : entries) {
                texts.add(entry.seq() + ":" + text(entry.payload()));
            }
        }
        return texts;
    }

    /** Checks that a call fails with an exception of this class, whose message has these words. */
    static <T extends Throwable> T refused(Class<T> type, String words, Executable call) {
        T failure = assertThrows(type, call);
        assertTrue(String.valueOf(failure.getMessage()).contains(words), failure.getMessage());
        return failure;
    }
}
