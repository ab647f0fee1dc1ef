package brooklet;

import static brooklet.Stores.bytes;
import static brooklet.Stores.key;
import static brooklet.Stores.texts;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Many threads, close beside calls, the garbage collector in mid-call. */
class RaceTest {
    @TempDir
    Path folder;

    private final AtomicReference<Throwable> failure = new AtomicReference<>();
    private final List<Thread> threads = new ArrayList<>();

    @FunctionalInterface
    private interface Work {
        void run() throws Exception;
    }

    /** Runs work on a thread of its own. {@link ClosedException} ends it. */
    private void start(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (ClosedException e) {
                assertTrue(e.getMessage().contains("closed"));
            } catch (Throwable e) {
                failure.compareAndSet(null, e);
            }
        });
        threads.add(thread);
        thread.start();
    }

    private void join() throws InterruptedException {
        for (Thread thread : threads) {
            thread.join();
        }
        threads.clear();
        assertNull(failure.get());
    }

    @Test
    void closeRacesWithCalls() throws Exception {
        for (int round = 0; round < 10; round++) {
            Path path = folder.resolve("race" + round);
            Store store = Store.open(path, Stores.small());
            long[] acknowledged = new long[8];
            for (int t = 0; t < acknowledged.length; t++) {
                int own = t;
                Key log = key("log/" + t);
                start(() -> {
                    while (true) {
                        store.append(log, new byte[1000]);
                        acknowledged[own]++;
                    }
                });
                start(() -> {
                    while (true) {
                        Ticket ticket = store.appendAsync(key("async"), new byte[100]);
                        try {
                            ticket.get();
                        } catch (ExecutionException e) {
                            throw (BrookletException) e.getCause();
                        }
                    }
                });
                start(() -> {
                    Collector tail = new Collector().demand(Long.MAX_VALUE);
                    store.tail(log, 0).subscribe(tail);
                    assertTrue(tail.failure.get() instanceof ClosedException);
                });
                start(() -> {
                    while (true) {
                        store.readAvailable(log, 0, Store.END).forEach(entry -> assertEquals(1000, entry.payload().length));
                        store.scan(key("")).close();
                        store.info();
                    }
                });
            }
            int spins = round * 1000;
            for (int closer = 0; closer < 3; closer++) {
                start(() -> {
                    for (int i = 0; i < spins; i++) {
                        Thread.onSpinWait();
                    }
                    store.close();
                });
            }
            store.close();
            // The file is released when a close returns.
            Store again = Store.open(path, Stores.small());
            join();
            for (int t = 0; t < acknowledged.length; t++) {
                long next = again.getBounds(key("log/" + t)).map(Bounds::next).orElse(0L);
                assertTrue(next >= acknowledged[t]);
            }
            again.close();
            assertEquals(0, store.underWay());
        }
    }

    @Test
    void manyThreadsShareAStoreAndItsIterators() throws Exception {
        try (Store store = Stores.open(folder)) {
            for (int t = 0; t < 64; t++) {
                Key log = key("log/" + t % 10);
                start(() -> {
                    for (int i = 0; i < 20; i++) {
                        store.append(log, bytes("entry"));
                    }
                });
            }
            join();
            long entries = store.scan(key("log/")).stream().mapToLong(log -> log.bounds().next()).sum();
            assertEquals(64 * 20, entries);
            // An iterator is not for many threads, but neither that nor a close beside it ends the process.
            for (int round = 0; round < 50; round++) {
                Items<LogInfo> logs = store.scan(key(""));
                var iterator = logs.iterator();
                for (int t = 0; t < 3; t++) {
                    start(() -> {
                        try {
                            while (iterator.hasNext()) {
                                iterator.next();
                            }
                        } catch (NoSuchElementException | IndexOutOfBoundsException e) {
                            // Another thread took the last item between the two calls.
                        }
                    });
                }
                start(logs::close);
                join();
            }
            assertEquals(0, store.underWay());
        }
    }

    @Test
    void theCollectorInMidCall() throws Exception {
        AtomicBoolean done = new AtomicBoolean();
        for (int t = 0; t < 2; t++) {
            start(() -> {
                while (!done.get()) {
                    System.gc();
                }
            });
        }
        try (Store store = Stores.open(folder)) {
            for (int log = 0; log < 4; log++) {
                Key key = key("log/" + log);
                for (int i = 0; i < 100; i++) {
                    byte[] payload = bytes(log + "/" + i);
                    store.appendAsync(key, payload);
                    Arrays.fill(payload, (byte) 0); // The library has its copy.
                }
                store.append(key, new byte[0]);
                int i = 0;
                for (Entry entry : store.read(key, 0, 100)) {
                    assertEquals(log + "/" + i++, Stores.text(entry.payload()));
                }
                // Lost iterators are freed; lost stores with calls under way are not.
                store.scan(key("")).iterator();
            }
        }
        for (int round = 0; round < 10; round++) {
            Path path = folder.resolve("lost" + round);
            assertEquals(0, Store.open(path, Stores.small()).append(key("k"), new byte[1000]));
        }
        done.set(true);
        join();
    }

    @Test
    void theCollectorClosesALostStore() throws Exception {
        Path path = folder.resolve("lost");
        Ticket ticket = Store.open(path, Stores.small()).appendAsync(key("k"), bytes("a"));
        while (true) {
            System.gc();
            try (Store store = Store.open(path, Stores.small())) {
                assertEquals(List.of("0:a"), texts(store.read(key("k"))));
                assertEquals(0, ticket.get().seq());
                return;
            } catch (CannotOpenException e) {
                Thread.onSpinWait();
            }
        }
    }

    @Test
    void groupsEndInAnyOrder() throws Exception {
        Acks acks = new Acks(Runnable::run);
        Acks.Group before = acks.join(-1);
        acks.finish(acks.end(-1L, 2, BrookletException.invalid("failed")));
        Ticket after = new Ticket(new Appended(1));
        acks.add(-1, after);
        Stores.refused(InvalidException.class, "failed", before::await);
        assertTrue(after.isCompletedExceptionally());
        assertEquals(0, acks.size());
        Ticket left = new Ticket(new Appended(2));
        acks.add(-2, left);
        acks.fail(Core.closed());
        assertTrue(left.isCompletedExceptionally());
        acks.join(0).await();
        assertEquals(0, acks.size());
    }

    /** The heap is exhausted for a moment while completions are passed on. */
    @Test
    void theThreadOfCompletionsOutlivesAnExhaustedHeap() throws Exception {
        try (Store store = Stores.open(folder)) {
            Core core = store.core;
            AtomicInteger fails = new AtomicInteger(2);
            CountDownLatch heeded = new CountDownLatch(1);
            long tag = core.notices.add(() -> {
                if (fails.getAndDecrement() > 0) {
                    throw new OutOfMemoryError("of a test");
                }
                heeded.countDown();
            });
            long tail = core.openTail(key("k"), 0);
            ByteBuffer buffer = Buffers.borrow();
            assertFalse(core.fillTail(tail, tag, buffer, new long[5]));
            assertEquals(0, store.appendAsync(key("k"), bytes("a")).get().seq());
            heeded.await();
            assertEquals(1, store.appendAsync(key("k"), bytes("b")).get().seq());
            core.notices.remove(tag);
            Native.freeTail(tail);
            Buffers.give(buffer);
        }
    }

    @Test
    void memoryDoesNotGrow() throws Exception {
        try (Store store = Stores.open(folder)) {
            Key log = key("log");
            long first = 0;
            long grown = Long.MAX_VALUE;
            // What fills once is full by one of the looks; what leaks, leaks each time.
            for (int i = 0; i <= 180_000 && grown >= 64 << 20; i++) {
                store.appendAsync(log, new byte[100]);
                if (i % 100 == 0) {
                    store.commitAsync(new Commit().keepLast(log, 1000));
                    store.readAvailable(log, 0, Store.END).iterator().hasNext();
                    store.first(log);
                    store.getBounds(key("none"));
                    try {
                        store.bounds(key("none"));
                    } catch (NotFoundException e) {
                        assertTrue(e.next().isEmpty());
                    }
                }
                if (i % 40_000 == 20_000) {
                    store.flush();
                    long now = resident();
                    grown = i > 20_000 ? now - first : grown;
                    first = now;
                }
            }
            assertTrue(grown < 64 << 20, grown + " bytes more");
        }
    }

    /** Returns the memory of the process in bytes. */
    private static long resident() throws IOException {
        System.gc();
        return Long.parseLong(Files.readString(Path.of("/proc/self/statm")).split(" ")[1]) * 4096;
    }
}
