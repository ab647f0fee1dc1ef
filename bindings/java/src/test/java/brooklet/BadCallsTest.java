package brooklet;

import static brooklet.Stores.bytes;
import static brooklet.Stores.key;
import static brooklet.Stores.refused;
import static brooklet.Stores.texts;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

/** Wrong arguments, nulls, closed handles, interrupts. */
class BadCallsTest {
    private static final Key K = key("k");

    @TempDir
    Path folder;

    /** All calls of a store that may wait, by name. */
    private static Map<String, Executable> waits(Store store) {
        Map<String, Executable> calls = new LinkedHashMap<>();
        calls.put("append", () -> store.append(K, bytes("a")));
        calls.put("append a buffer", () -> store.append(K, ByteBuffer.allocate(1)));
        calls.put("appendMany", () -> store.appendMany(K, List.of(bytes("a"))));
        calls.put("commit", () -> store.commit(new Commit().append(K, bytes("a"))));
        calls.put("snapshot", () -> store.snapshot(K, bytes("a")));
        calls.put("trim", () -> store.trim(K, 0));
        calls.put("keepLast", () -> store.keepLast(K, 1));
        calls.put("beginAt", () -> store.beginAt(K, 0));
        calls.put("truncate", () -> store.truncate(K, 0));
        calls.put("delete", () -> store.delete(K));
        calls.put("setRetention", () -> store.setRetention(K, Retention.ALL));
        calls.put("flush", store::flush);
        calls.put("checkpoint", store::checkpoint);
        calls.put("waitFor", () -> store.waitFor(K, 99, Duration.ofDays(1)));
        return calls;
    }

    /** All calls that do not wait. */
    private static Map<String, Executable> others(Store store) {
        Map<String, Executable> calls = new LinkedHashMap<>();
        calls.put("appendAsync", () -> store.appendAsync(K, bytes("a")));
        calls.put("appendAsync a buffer", () -> store.appendAsync(K, ByteBuffer.allocate(1)));
        calls.put("appendManyAsync", () -> store.appendManyAsync(K, List.of(bytes("a"))));
        calls.put("commitAsync", () -> store.commitAsync(new Commit().append(K, bytes("a"))));
        calls.put("read", () -> store.read(K));
        calls.put("read a range", () -> store.read(K, 0, 1));
        calls.put("readReversed", () -> store.readReversed(K));
        calls.put("readAvailable", () -> store.readAvailable(K, 0, 1));
        calls.put("get", () -> store.get(K, 0));
        calls.put("first", () -> store.first(K));
        calls.put("last", () -> store.last(K));
        calls.put("bounds", () -> store.bounds(K));
        calls.put("getBounds", () -> store.getBounds(K));
        calls.put("exists", () -> store.exists(K));
        calls.put("scan", () -> store.scan(K));
        calls.put("info", store::info);
        return calls;
    }

    @Test
    void aClosedStoreRefusesEachCall() throws Exception {
        Store store = Stores.open(folder);
        Ticket ticket = store.appendAsync(K, bytes("a"));
        store.appendManyAsync(key("long"), Stream.generate(() -> new byte[1000]).limit(500).toList()).get();
        Iterator<Entry> read = store.read(key("long")).iterator();
        store.close();
        store.close();
        assertEquals(0, ticket.get().seq());
        waits(store).forEach((name, call) -> refused(ClosedException.class, "closed", call));
        others(store).forEach((name, call) -> refused(ClosedException.class, "closed", call));
        // An iterator has what it took, and may end by the exception.
        try {
            while (read.hasNext()) {
                assertEquals(1000, read.next().payload().length);
            }
        } catch (ClosedException e) {
            assertTrue(e.getMessage().contains("closed"));
        }
        assertTrue(store.toString().contains("test.brooklet"));
    }

    @Test
    void closedItemsRefuse() throws Exception {
        try (Store store = Stores.open(folder)) {
            store.appendMany(K, Stream.generate(() -> new byte[1000]).limit(500).toList());
            Items<Entry> entries = store.read(K);
            Iterator<Entry> iterator = entries.iterator();
            iterator.next();
            assertThrows(IllegalStateException.class, entries::iterator);
            entries.close();
            entries.close();
            refused(ClosedException.class, "iterator", iterator::hasNext);
            refused(ClosedException.class, "iterator", iterator::next);
            Stream<LogInfo> logs = store.scan(key("")).stream();
            logs.close();
            assertThrows(IllegalStateException.class, logs::count);
        }
    }

    @Test
    void interruptsEndWaits() throws Throwable {
        try (Store store = Stores.open(folder)) {
            for (Map.Entry<String, Executable> call : waits(store).entrySet()) {
                Thread.currentThread().interrupt();
                assertThrows(InterruptedException.class, call.getValue(), call.getKey());
                assertFalse(Thread.interrupted(), call.getKey());
            }
            for (Executable call : others(store).values()) {
                Thread.currentThread().interrupt();
                try {
                    call.execute();
                } catch (NotFoundException e) {
                    assertTrue(e.getMessage().contains("k"));
                }
                assertTrue(Thread.interrupted());
            }
            // A thread that waits already.
            Throwable[] ended = new Throwable[1];
            Thread waits = new Thread(() -> {
                try {
                    store.waitFor(key("none"), 1, Duration.ofDays(1));
                } catch (Throwable e) {
                    ended[0] = e;
                }
            });
            waits.start();
            while (waits.getState() == Thread.State.NEW) {
                Thread.onSpinWait();
            }
            waits.interrupt();
            waits.join();
            assertTrue(ended[0] instanceof InterruptedException);
            store.flush();
        }
        Store store = Stores.open(folder);
        Thread.currentThread().interrupt();
        store.close();
        assertTrue(Thread.interrupted());
        Stores.open(folder).close();
    }

    @Test
    void anExhaustedHeapEndsAnIteration() {
        int[] freed = new int[1];
        Rest<String> rest = new Rest<>(1) {
            @Override
            boolean fill(long handle, ByteBuffer buffer, long[] out) {
                out[1] = 1;
                return true;
            }

            @Override
            List<String> items(ByteBuffer buffer, long count) {
                throw new OutOfMemoryError("of a test");
            }

            @Override
            String large(long handle) {
                throw new AssertionError("no item is large");
            }

            @Override
            void free(long handle) {
                freed[0]++;
            }
        };
        assertThrows(OutOfMemoryError.class, rest::more);
        // The items of that batch are lost, so none behind them may come.
        assertTrue(rest.ended());
        refused(ClosedException.class, "closed", rest::more);
        assertEquals(1, freed[0]);
    }

    /** A loop must not take a close by another thread for the end of the log. */
    @Test
    void aCloseInMidStepIsNotTheEnd() {
        class Closing extends Rest<Entry> {
            private Items<Entry> owner;

            Closing() {
                super(1);
            }

            /** Another thread closes the items just before. */
            @Override
            synchronized boolean ended() {
                owner.close();
                return super.ended();
            }

            @Override
            boolean fill(long handle, ByteBuffer buffer, long[] out) {
                throw new AssertionError("the items are closed");
            }

            @Override
            List<Entry> items(ByteBuffer buffer, long count) {
                throw new AssertionError("the items are closed");
            }

            @Override
            Entry large(long handle) {
                throw new AssertionError("the items are closed");
            }

            @Override
            void free(long handle) {}
        }
        Closing rest = new Closing();
        rest.owner = new Items<>(null, List.of(), rest);
        refused(ClosedException.class, "iterator", rest.owner.iterator()::hasNext);
    }

    /** Has calls occupy all threads of a store for long waits, until the latch is released. */
    private static CountDownLatch occupied(Store store) throws InterruptedException {
        CountDownLatch begun = new CountDownLatch(Patience.THREADS);
        CountDownLatch released = new CountDownLatch(1);
        for (int t = 0; t < Patience.THREADS; t++) {
            store.core.patience.pool.execute(() -> {
                begun.countDown();
                try {
                    released.await();
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            });
        }
        begun.await();
        return released;
    }

    @Test
    void longWaitsOfAStoreHoldUpNoOther() throws Exception {
        try (Store one = Stores.open(folder);
                Store other = Store.open(folder.resolve("other.brooklet"), Stores.small())) {
            CountDownLatch released = occupied(one);
            other.flush();
            other.checkpoint();
            released.countDown();
        }
    }

    @Test
    void anInterruptedCommitNeverWritesWhatItsCallerBuildsNext() throws Exception {
        try (Store store = Stores.open(folder)) {
            // The next write that has to wait is queued: no thread may wait for the device, or for room.
            CountDownLatch released = occupied(store);
            int places = store.core.driving.drainPermits();
            // It is not durable for long, so the refusal of a commit that rests on it has to wait.
            store.commitAsync(new Commit().append(K, bytes("a")).defer(Duration.ofDays(1))).get();
            Commit commit = new Commit().expectAbsent(K).append(K, bytes("b"));
            Throwable[] ended = new Throwable[1];
            Thread waits = new Thread(() -> {
                try {
                    store.commit(commit);
                } catch (Throwable e) {
                    ended[0] = e;
                }
            });
            waits.start();
            while (waits.isAlive() && store.core.patience.pool.getQueue().isEmpty()) {
                Thread.onSpinWait();
            }
            waits.interrupt();
            waits.join();
            commit.clear().append(key("other"), bytes("c"));
            released.countDown();
            // Once others occupy all threads, nothing of before is left.
            occupied(store).countDown();
            store.core.driving.release(places);
            assertTrue(ended[0] instanceof InterruptedException, String.valueOf(ended[0]));
            store.flush();
            assertFalse(store.exists(key("other")));
            assertEquals(List.of("0:a"), texts(store.read(K)));
        }
    }

    @Test
    void nullsAreNamed() throws Exception {
        assertThrows(NullPointerException.class, () -> Store.open(null));
        assertThrows(NullPointerException.class, () -> Store.open(folder.resolve("x"), null));
        assertThrows(NullPointerException.class, () -> Key.of((String) null));
        assertThrows(NullPointerException.class, () -> Key.of((byte[]) null));
        assertThrows(NullPointerException.class, () -> new Options().create(null));
        assertThrows(NullPointerException.class, () -> new Options().executor(null));
        assertThrows(NullPointerException.class, () -> new Options().linger(null));
        try (Store store = Stores.open(folder)) {
            List<Executable> calls = List.of(
                    () -> store.append(null, bytes("a")),
                    () -> store.append(K, (byte[]) null),
                    () -> store.append(K, (ByteBuffer) null),
                    () -> store.appendAsync(null, bytes("a")),
                    () -> store.appendAsync(K, (byte[]) null),
                    () -> store.appendMany(K, null),
                    () -> store.appendMany(K, java.util.Arrays.asList(bytes("a"), null)),
                    () -> store.commit(null),
                    () -> store.commitAsync(null),
                    () -> store.snapshot(K, null),
                    () -> store.trim(null, 0),
                    () -> store.setRetention(K, null),
                    () -> store.read(null),
                    () -> store.read(null, 0, 1),
                    () -> store.bounds(null),
                    () -> store.first(null),
                    () -> store.scan(null),
                    () -> store.scan(K, null),
                    () -> store.tail(null, 0),
                    () -> store.tail(K, 0).subscribe(null),
                    () -> store.waitFor(null, 1, Duration.ZERO),
                    () -> store.waitFor(K, 1, null));
            for (Executable call : calls) {
                assertThrows(NullPointerException.class, call);
            }
            assertEquals(0, store.scan(key("")).stream().count());
            assertEquals(0, store.underWay());
        }
    }

    @Test
    void wrongArgumentsAreNamed() throws Exception {
        refused(InvalidException.class, "surrogate", () -> Key.of("\ud800"));
        refused(InvalidException.class, "negative", () -> Retention.ALL.entries(-1));
        refused(InvalidException.class, "negative", () -> Retention.ALL.age(Duration.ofNanos(-1)));
        refused(InvalidException.class, "negative", () -> new Commit().defer(Duration.ofNanos(-1)));
        refused(InvalidException.class, "negative", () -> new Commit().expectNext(K, -1));
        refused(InvalidException.class, "negative", () -> new Options().ringSize(-1));
        refused(InvalidException.class, "negative", () -> new Options().linger(Duration.ofNanos(-1)));
        try (Store store = Stores.open(folder)) {
            refused(InvalidException.class, "key", () -> store.append(key(""), bytes("a")));
            refused(InvalidException.class, "key", () -> store.append(key("k".repeat(1025)), bytes("a")));
            refused(InvalidException.class, "key", () -> store.append(key("k".repeat(100_000)), bytes("a")));
            refused(InvalidException.class, "payload", () -> store.append(K, new byte[(1 << 20) + 1]));
            refused(InvalidException.class, "payload", () -> store.appendAsync(K, new byte[100 << 20]));
            refused(InvalidException.class, "payload", () -> store.append(K, ByteBuffer.allocateDirect(2 << 20)));
            refused(InvalidException.class, "negative", () -> store.tail(K, -1));
            refused(InvalidException.class, "negative", () -> store.read(K, -1, 2));
            refused(InvalidException.class, "negative", () -> store.waitFor(K, -1, Duration.ZERO));
            refused(InvalidException.class, "number", () -> store.get(K, Store.END));
            refused(NotFoundException.class, "none", () -> store.trim(key("none"), 1));
            assertEquals(0, store.append(key("k".repeat(1024)), new byte[1 << 20]));
            assertEquals(0, store.append(Key.of(new byte[] {0, (byte) 0xff, '"'}), bytes("a")));
            store.append(K, bytes("a"));
            assertThrows(NotFoundException.class, () -> store.read(K, 5, 9));
            assertEquals(List.of("0:a"), texts(store.read(K)));
        }
    }

    @Test
    void aRingApartAndACapacityAreOfEachOpening() throws Exception {
        Path path = folder.resolve("apart.brooklet");
        Path ring = folder.resolve("ring");
        Options apart = Stores.small().ringAt(ring).capacity(64 << 20);
        Store.open(path, apart).close();
        assertTrue(Files.exists(ring));
        refused(CannotOpenException.class, "ring", () -> Store.open(path, Stores.small()));
        refused(CannotOpenException.class, "capacity", () -> Store.open(path, apart.capacity(32 << 20)));
        refused(InvalidException.class, "capacity", () -> new Options().capacity(-1));
        assertThrows(NullPointerException.class, () -> new Options().ringAt(null));
    }

    @Test
    void wrongOpeningsAreNamed() throws Exception {
        Path path = folder.resolve("näme.brooklet");
        refused(IoException.class, "No such file", () -> Store.open(path, new Options().create(Options.Create.NEVER)));
        refused(BrookletException.class, "", () -> Store.open(path.resolve("none")));
        refused(BrookletException.class, "", () -> Store.open(Path.of("")));
        Options all = Stores.small()
                .create(Options.Create.NEW)
                .cacheBudget(1 << 20)
                .permissions(0600)
                .linger(Duration.ofNanos(1000));
        try (Store store = Store.open(path, all)) {
            assertTrue(Files.exists(path));
            refused(CannotOpenException.class, "open already", () -> Store.open(path));
            try (Store beside = Store.open(path, new Options().besideWriter(true))) {
                refused(StoppedException.class, "", () -> beside.append(K, bytes("a")));
                refused(StoppedException.class, "", () -> beside.appendAsync(K, bytes("a")));
            }
            store.append(K, bytes("a"));
        }
        refused(CannotOpenException.class, "", () -> Store.open(path, all));
        try (Store reader = Store.open(path, new Options().readOnly(true))) {
            assertEquals(List.of("0:a"), texts(reader.read(K)));
            refused(StoppedException.class, "", () -> reader.append(K, bytes("a")));
        }
        Path garbage = Files.write(folder.resolve("garbage"), new byte[1 << 20]);
        refused(BrookletException.class, "", () -> Store.open(garbage));
        // Openings that fail leave nothing behind: no descriptor, no thread. Threads of earlier tests may end meanwhile, and the
        // JVM may start some of its own. A leak shows two hundred times.
        long before = descriptors() + Thread.activeCount();
        for (int i = 0; i < 200; i++) {
            String name = "none/" + i;
            assertThrows(BrookletException.class, () -> Store.open(path.resolve(name)));
        }
        long after = descriptors() + Thread.activeCount();
        assertTrue(after < before + 100, after + " descriptors and threads, and " + before + " before");
    }

    private static long descriptors() throws Exception {
        try (Stream<Path> open = Files.list(Path.of("/dev/fd"))) {
            return open.count();
        }
    }
}
