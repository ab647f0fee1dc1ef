package brooklet;

import static brooklet.Stores.bytes;
import static brooklet.Stores.key;
import static brooklet.Stores.refused;
import static brooklet.Stores.text;
import static brooklet.Stores.texts;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What each call does. */
class StoreTest {
    private static final Key K = key("k");

    @TempDir
    Path folder;

    private Store store;

    @BeforeEach
    void open() {
        store = Stores.open(folder);
    }

    @AfterEach
    void close() {
        assertEquals(0, store.underWay());
        store.close();
    }

    @Test
    void appendsAndReads() throws Exception {
        assertEquals(0, store.append(K, bytes("a")));
        assertEquals(1, store.append(K, new byte[0]));
        assertEquals(2, store.append(K, ByteBuffer.wrap(bytes("xbcx"), 1, 2)));
        ByteBuffer direct = ByteBuffer.allocateDirect(8).put(bytes("direct")).flip();
        assertEquals(3, store.append(K, direct.asReadOnlyBuffer()));
        assertEquals(6, direct.remaining());
        assertArrayEquals(new long[] {4, 5}, store.appendMany(K, List.of(bytes("d"), bytes("e"))).seqs());
        assertEquals(List.of("0:a", "1:", "2:bc", "3:direct", "4:d", "5:e"), texts(store.read(K)));
        assertEquals(List.of("5:e", "4:d", "3:direct", "2:bc", "1:", "0:a"), texts(store.readReversed(K)));
        assertEquals(List.of("2:bc", "3:direct"), texts(store.read(K, 2, 4)));
        assertEquals(List.of("3:direct", "2:bc"), texts(store.readReversed(K, 2, 4)));
        assertEquals(List.of("5:e"), texts(store.readAvailable(K, 5, 99)));
        assertEquals(List.of("5:e"), texts(store.readAvailableReversed(K, 5, 99)));
        assertEquals(List.of(), texts(store.readAvailable(key("none"), 0, Store.END)));
        assertEquals("bc", text(store.get(K, 2).payload()));
        assertEquals(new Entry(0, bytes("a")), store.first(K).orElseThrow());
        assertEquals(5, store.last(K).orElseThrow().seq());
        assertTrue(store.first(key("none")).isEmpty() && store.last(key("none")).isEmpty());
        assertEquals(new Bounds(0, 6), store.bounds(K));
        assertTrue(store.exists(K));
        assertFalse(store.exists(key("none")));
        assertTrue(store.getBounds(key("none")).isEmpty());
        NotFoundException outside = refused(NotFoundException.class, "", () -> store.read(K, 2, 9));
        assertEquals(0, outside.first().orElseThrow());
        assertEquals(6, outside.next().orElseThrow());
        refused(NotFoundException.class, "none", () -> store.read(key("none")));
        refused(NotFoundException.class, "none", () -> store.bounds(key("none")));
        refused(NotFoundException.class, "none", () -> store.get(key("none"), 0));
    }

    @Test
    void changesLogs() throws Exception {
        store.appendMany(K, List.of(bytes("a"), bytes("b"), bytes("c"), bytes("d")));
        store.trim(K, 1);
        store.truncate(K, 3);
        assertEquals(List.of("1:b", "2:c"), texts(store.read(K)));
        store.keepLast(K, 1);
        assertEquals(List.of("2:c"), texts(store.read(K)));
        assertEquals(3, store.snapshot(K, bytes("all")));
        assertEquals(List.of("3:all"), texts(store.read(K)));
        store.beginAt(K, 10);
        assertEquals(List.of(), texts(store.read(K)));
        assertEquals(new Bounds(10, 10), store.bounds(K));
        assertTrue(store.last(K).isEmpty());
        store.setRetention(K, Retention.ALL.entries(2).bytes(100).age(Duration.ofDays(1)));
        store.appendMany(K, List.of(bytes("x"), bytes("y"), bytes("z")));
        assertEquals(List.of("11:y", "12:z"), texts(store.read(K)));
        store.setRetention(K, Retention.ALL);
        store.delete(K);
        assertFalse(store.exists(K));
        assertEquals(0, store.append(K, bytes("again")));
    }

    @Test
    void commitsAllOrNothing() throws Exception {
        Key feed = key("feed");
        Ticket first = store.appendAsync(K, bytes("a"));
        Commit commit = new Commit()
                .expectNext(K, first.seq() + 1)
                .expectAbsent(feed)
                .append(K, bytes("b"))
                .append(feed, ByteBuffer.wrap(bytes("k")))
                .snapshot(K, bytes("c"));
        Ticket second = store.commitAsync(commit);
        assertArrayEquals(new long[] {1, 0, 2}, second.appended().seqs());
        assertEquals(3, second.get().count());
        assertEquals(0, first.get().seq());
        ConflictException conflict = refused(ConflictException.class, "k", () -> store.commit(commit));
        assertEquals(3, conflict.next().orElseThrow());
        refused(ConflictException.class, "k", () -> store.commitAsync(commit));
        assertEquals(List.of("2:c"), texts(store.read(K)));
        Appended none = store.commit(commit.clear().trim(K, 3).keepLast(feed, 0).defer(Duration.ofMillis(1)));
        assertEquals(0, none.count());
        assertEquals(0, none.seq());
        Commit durable = commit.clear().append(K, bytes("d")).defer(Duration.ofHours(1)).durable();
        assertEquals(3, store.commit(durable).seq());
        store.flush();
        refused(InvalidException.class, "", () -> store.commit(new Commit()));
    }

    @Test
    void readsLargeEntriesAndLongLogs() throws Exception {
        byte[] large = new byte[300_000];
        for (int i = 0; i < large.length; i++) {
            large[i] = (byte) (i * 7);
        }
        List<byte[]> payloads = new ArrayList<>();
        for (int i = 0; i < 3000; i++) {
            payloads.add(i % 500 == 3 ? large : bytes("entry " + i));
        }
        for (int i = 0; i < 3000; i += 100) {
            store.appendMany(K, payloads.subList(i, i + 100));
        }
        int n = 0;
        try (Items<Entry> entries = store.read(K)) {
            for (Entry entry : entries) {
                assertEquals(n, entry.seq());
                assertArrayEquals(payloads.get(n++), entry.payload());
            }
        }
        assertEquals(3000, n);
        try (Stream<Entry> entries = store.readReversed(K).stream()) {
            for (Entry entry : (Iterable<Entry>) entries::iterator) {
                assertEquals(--n, entry.seq());
                assertArrayEquals(payloads.get(n), entry.payload());
            }
        }
        assertEquals(0, n);
        try (Items<Entry> entries = store.read(K)) {
            assertEquals(0, entries.iterator().next().seq());
        }
    }

    @Test
    void listsLogs() throws Exception {
        Commit commit = new Commit();
        for (int i = 0; i < 5000; i++) {
            commit.append(key(String.format("log/%04d", i)), bytes(""));
        }
        store.commit(commit.append(Key.of(new byte[] {(byte) 0xff, 0}), bytes("")));
        int n = 0;
        for (LogInfo log : store.scan(key("log/"))) {
            assertEquals(String.format("log/%04d", n++), log.key().toString());
            assertEquals(new Bounds(0, 1), log.bounds());
        }
        assertEquals(5000, n);
        assertEquals(10, store.scan(key("log/"), key("log/4990")).stream().count());
        List<LogInfo> all = store.scan(key("")).stream().toList();
        assertEquals(5001, all.size());
        assertEquals(Key.of(new byte[] {(byte) 0xff, 0}), all.get(5000).key());
        assertTrue(all.get(0).key().compareTo(all.get(5000).key()) < 0);
        try (Items<LogInfo> some = store.scan(key("log/"))) {
            assertEquals("log/0000", some.iterator().next().key().toString());
        }
    }

    @Test
    void ticketsEndOnTheExecutor() throws Exception {
        List<Ticket> tickets = new ArrayList<>();
        for (int i = 0; i < 5000; i++) {
            tickets.add(store.appendAsync(key("log/" + i % 7), bytes("entry")));
        }
        Ticket last = tickets.get(4999);
        CompletableFuture<String> thread = last.thenApply(appended -> Thread.currentThread().getName());
        CompletableFuture<Void> thrown = last.thenRun(() -> {
            throw new IllegalStateException("in an action");
        });
        // An action may use the store, and wait for other writes.
        CompletableFuture<Long> more = last.thenApply(appended -> store.appendAsync(K, bytes("more")).join().seq());
        CompletableFuture.allOf(tickets.toArray(new Ticket[0])).get();
        assertFalse(thread.get().contains("brooklet"), thread.get());
        assertEquals(0, more.get());
        assertEquals("in an action", assertThrows(ExecutionException.class, thrown::get).getCause().getMessage());
        tickets.get(0).cancel(true);
        assertEquals(1, store.append(K, bytes("the store goes on")));
    }

    @Test
    void waitsForEntries() throws Exception {
        assertFalse(store.waitFor(K, 1, Duration.ofMillis(1)));
        assertTrue(store.waitFor(K, 0, Duration.ZERO));
        Thread later = new Thread(() -> store.appendAsync(K, bytes("a")));
        later.start();
        assertTrue(store.waitFor(K, 1, Duration.ofSeconds(Long.MAX_VALUE)));
        later.join();
        store.appendAsync(K, bytes("b")).get();
    }

    /** A thread that waits in native code would occupy its carrier, if it is a virtual one. */
    @Test
    void aWaitForAnEntryIsNoNativeCall() throws Exception {
        boolean[] reached = new boolean[1];
        Thread waits = new Thread(() -> {
            try {
                reached[0] = store.waitFor(K, 1, Duration.ofDays(1));
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        });
        waits.start();
        long begun = System.nanoTime();
        while (waits.getState() != Thread.State.TIMED_WAITING) {
            assertTrue(System.nanoTime() - begun < Duration.ofMinutes(1).toNanos(), "the thread is " + waits.getState());
            Thread.onSpinWait();
        }
        // The number comes and goes at once.
        store.commit(new Commit().append(K, bytes("a")).truncate(K, 0));
        waits.join();
        assertTrue(reached[0]);
    }

    @Test
    void reportsNumbers() throws Exception {
        store.append(K, bytes("a"));
        store.checkpoint();
        Info info = store.info();
        assertEquals(1, info.epoch());
        assertEquals(1, info.runs());
        assertTrue(info.runBytes() > 0 && info.size() > 4 << 20 && info.ringSize() > 0 && info.format() > 0);
        assertFalse(info.stopped());
    }
}
