package brooklet;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;

/**
 * Measures in Java the calls that {@code bindings/c/examples/speed.rs} measures in Rust. {@code tests/speed} runs both in turns.
 * With the word "memory" behind the path, it makes many calls, and prints the memory of the process.
 */
final class Speed {
    private static final int APPENDS = 200_000;
    private static final int LOGS = 10_000;
    private static final int BATCH = 1_000;
    private static final int ENTRIES = 1_000;
    private static final int READS = 2_000;
    private static final int WAITERS = 64;
    private static final int EACH = 1_000;
    private static final byte[] PAYLOAD = new byte[200];

    private final Store store;

    private Speed(Store store) {
        this.store = store;
    }

    public static void main(String[] args) throws Exception {
        Arrays.fill(PAYLOAD, (byte) 'x');
        boolean memory = args.length > 1;
        Options options = new Options();
        if (memory) {
            // Little of the store's own, so that growth shows.
            options.ringSize(4 << 20).maxPayload(1 << 20).memoryBudget(16 << 20).cacheBudget(8 << 20);
        }
        try (Store store = Store.open(Path.of(args[0]), options)) {
            Speed speed = new Speed(store);
            if (memory) {
                speed.memory();
            } else {
                speed.appends();
                speed.batches();
                speed.reads();
                speed.waiters();
            }
        }
    }

    private static Key key(int i) {
        return Key.of("log/" + i % LOGS);
    }

    private static void rate(String name, int count, long start) {
        System.out.printf("%s: %.0f%n", name, count / ((System.nanoTime() - start) / 1e9));
    }

    private void appends() throws InterruptedException {
        // The first rounds make the logs, and the ring grows; the compiler of the JVM sees what runs often.
        for (int round = 0; round < 4; round++) {
            long start = System.nanoTime();
            for (int i = 0; i < APPENDS; i++) {
                store.appendAsync(key(i), PAYLOAD);
            }
            store.flush();
            if (round == 3) {
                rate("appends/s that nobody waits for", APPENDS, start);
            }
        }
    }

    private void batches() throws InterruptedException {
        List<byte[]> batch = Collections.nCopies(BATCH, PAYLOAD);
        for (int round = 0; round < 2; round++) {
            long start = System.nanoTime();
            for (int i = 0; i < 5 * APPENDS / BATCH; i++) {
                store.appendManyAsync(key(i), batch);
            }
            store.flush();
            if (round == 1) {
                rate("entries/s by append_many of 1,000", 5 * APPENDS, start);
            }
        }
    }

    private void reads() throws InterruptedException {
        Key one = Key.of("one");
        store.appendMany(one, Collections.nCopies(ENTRIES, PAYLOAD));
        for (int round = 0; round < 2; round++) {
            long start = System.nanoTime();
            long sum = 0;
            for (int i = 0; i < READS; i++) {
                for (Entry entry : store.read(one)) {
                    sum += entry.payload().length;
                }
            }
            if (sum != (long) READS * ENTRIES * PAYLOAD.length) {
                throw new IllegalStateException("bytes are missing");
            }
            if (round == 1) {
                rate("reads/s of a log of " + ENTRIES + " entries", READS, start);
            }
        }
    }

    private void waiters() throws InterruptedException {
        long start = System.nanoTime();
        List<Thread> threads = new ArrayList<>();
        for (int w = 0; w < WAITERS; w++) {
            int own = w;
            threads.add(new Thread(() -> {
                try {
                    for (int i = 0; i < EACH; i++) {
                        store.append(key(i * WAITERS + own), PAYLOAD);
                    }
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            }));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        rate("waiting appends/s of " + WAITERS, WAITERS * EACH, start);
    }

    private void memory() throws IOException {
        final int calls = 10_000_000;
        Commit commit = new Commit();
        for (int i = 0; i <= calls; i++) {
            Key key = key(i);
            switch (i % 5) {
                case 0 -> store.appendAsync(key, PAYLOAD);
                case 1 -> store.commitAsync(commit.clear().append(key, PAYLOAD).keepLast(key, 1));
                case 2 -> store.getBounds(Key.of("none"));
                case 3 -> store.readAvailable(key, 0, Store.END).forEach(entry -> {});
                default -> store.first(key);
            }
            if (i % (calls / 5) == 0 && i > 0) {
                System.gc();
                String status = Files.readString(Path.of("/proc/self/statm"), StandardCharsets.UTF_8);
                long size = Long.parseLong(status.split(" ")[1]) * 4096;
                System.out.println("bytes of memory after " + i + " calls: " + size);
            }
        }
    }
}
