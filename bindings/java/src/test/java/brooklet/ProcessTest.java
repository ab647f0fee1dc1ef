package brooklet;

import static brooklet.Stores.bytes;
import static brooklet.Stores.key;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Processes that are killed, or that exit with appends in flight: each acknowledged entry is found. */
class ProcessTest {
    @TempDir
    Path folder;

    private static String payload(int thread, int number) {
        return "thread " + thread + ", write " + number + ", and some more";
    }

    /** Appends by several threads, and prints each entry once it is acknowledged; exits when its input ends. */
    public static void main(String[] args) throws IOException {
        Store store = Store.open(Path.of(args[0]), Stores.small());
        for (int t = 0; t < 8; t++) {
            int own = t;
            new Thread(() -> {
                try {
                    for (int number = 0; ; number++) {
                        String log = "log/" + (number * 8 + own) % 50;
                        for (int i = 0; i < 3; i++) {
                            store.appendAsync(key("in flight"), new byte[500]);
                        }
                        long seq = store.append(key(log), bytes(payload(own, number)));
                        // A line is one write: a kill may cut the last one.
                        System.out.write(bytes(log + " " + seq + " " + own + " " + number + "\n"));
                    }
                } catch (IOException | InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            }).start();
        }
        while (System.in.read() >= 0) {
            Thread.onSpinWait();
        }
        System.exit(0);
    }

    /** Runs the program above, and stops it after some acknowledgements. Returns those. */
    private List<String> run(Path store, boolean kill) throws Exception {
        String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        List<String> command =
                List.of(java, "-cp", System.getProperty("java.class.path"), "-Xcheck:jni", ProcessTest.class.getName(), "" + store);
        Process process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        List<String> acknowledged = new ArrayList<>();
        // The lines are read whole: readLine would take a cut one.
        try (BufferedReader out =
                new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
            StringBuilder line = new StringBuilder();
            for (int c = out.read(); c >= 0; c = out.read()) {
                if (c != '\n') {
                    line.append((char) c);
                    continue;
                }
                acknowledged.add(line.toString());
                line.setLength(0);
                if (acknowledged.size() == 300) {
                    if (kill) {
                        process.destroyForcibly();
                    } else {
                        process.getOutputStream().close();
                    }
                }
            }
        } catch (IOException e) {
            assertTrue(kill, "the pipe of a killed process may break: " + e);
        }
        assertEquals(kill ? 137 : 0, process.waitFor());
        assertTrue(acknowledged.size() >= 300, acknowledged::toString);
        return acknowledged;
    }

    private static void find(Path path, List<String> acknowledged) {
        try (Store store = Store.open(path, Stores.small())) {
            for (String line : acknowledged) {
                String[] words = line.split(" ");
                Entry entry = store.get(key(words[0]), Long.parseLong(words[1]));
                String written = payload(Integer.parseInt(words[2]), Integer.parseInt(words[3]));
                assertEquals(written, Stores.text(entry.payload()));
            }
        }
    }

    @Test
    void eachAcknowledgedEntryOutlivesKills() throws Exception {
        Path path = folder.resolve("kill.brooklet");
        List<String> acknowledged = new ArrayList<>();
        for (int round = 0; round < 4; round++) {
            acknowledged.addAll(run(path, true));
            find(path, acknowledged);
        }
    }

    @Test
    void aProgramMayExitWithAppendsInFlight() throws Exception {
        Path path = folder.resolve("exit.brooklet");
        find(path, run(path, false));
    }
}
