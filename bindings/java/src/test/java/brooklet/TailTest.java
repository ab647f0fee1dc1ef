package brooklet;

import static brooklet.Stores.bytes;
import static brooklet.Stores.key;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.Flow;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tails: demand, gaps, cancelling, failures. */
class TailTest {
    private static final Key K = key("k");

    @TempDir
    Path folder;

    @Test
    void returnsEachEntryOnceAndHonoursDemand() throws Exception {
        try (Store store = Stores.open(folder)) {
            store.append(K, bytes("0"));
            Collector tail = new Collector();
            store.tail(K, 0).subscribe(tail);
            Flow.Subscription subscription = tail.subscription.get();
            subscription.request(2);
            assertEquals(new Entry(0, bytes("0")), tail.events.take());
            store.appendMany(K, List.of(bytes("1"), bytes("2"), bytes("3")));
            assertEquals(new Entry(1, bytes("1")), tail.events.take());
            // Another subscriber sees all, so the first one could have seen more by now.
            Collector other = new Collector().demand(Long.MAX_VALUE);
            store.tail(K, 1).subscribe(other);
            for (int i = 1; i < 4; i++) {
                assertEquals(new Entry(i, bytes("" + i)), other.events.take());
            }
            assertNull(tail.events.poll());
            subscription.request(1);
            assertEquals(new Entry(2, bytes("2")), tail.events.take());
            assertNull(tail.events.poll());
            subscription.request(Long.MAX_VALUE);
            subscription.request(Long.MAX_VALUE);
            assertEquals(new Entry(3, bytes("3")), tail.events.take());
            subscription.cancel();
            subscription.cancel();
            other.subscription.get().cancel();
            while (store.underWay() > 0) {
                Thread.onSpinWait();
            }
            store.append(K, bytes("4"));
            assertNull(tail.events.poll());
            subscription.request(1);
        }
    }

    @Test
    void namesGaps() throws Exception {
        try (Store store = Stores.open(folder)) {
            store.appendMany(K, List.of(bytes("0"), bytes("1"), bytes("2")));
            store.trim(K, 2);
            Collector tail = new Collector().demand(Long.MAX_VALUE);
            store.tail(K, 0).subscribe(tail);
            assertEquals(new TailEvent.Trimmed(0, 2), tail.events.take());
            assertEquals(new Entry(2, bytes("2")), tail.events.take());
            store.append(K, bytes("3"));
            assertEquals(new Entry(3, bytes("3")), tail.events.take());
            store.truncate(K, 3);
            assertEquals(new TailEvent.Truncated(3), tail.events.take());
            store.append(K, bytes("3 again"));
            assertEquals(new Entry(3, bytes("3 again")), tail.events.take());
            store.delete(K);
            assertEquals(new TailEvent.Deleted(), tail.events.take());
            byte[] large = new byte[500_000];
            large[499_999] = 7;
            store.append(K, large);
            Entry entry = (Entry) tail.events.take();
            assertEquals(0, entry.seq());
            assertArrayEquals(large, entry.payload());
        }
    }

    @Test
    void endsByNamedFailures() throws Exception {
        Store store = Stores.open(folder);
        Collector wrong = new Collector().demand(1);
        store.tail(key(""), 0).subscribe(wrong);
        assertTrue(wrong.failure.get() instanceof InvalidException);
        Collector none = new Collector();
        store.tail(K, 0).subscribe(none);
        none.subscription.get().request(0);
        assertTrue(none.failure.get() instanceof IllegalArgumentException);
        Collector waits = new Collector().demand(1);
        Collector idle = new Collector();
        store.tail(K, 0).subscribe(waits);
        store.tail(K, 0).subscribe(idle);
        store.close();
        assertTrue(waits.failure.get() instanceof ClosedException);
        idle.subscription.get().request(1);
        assertTrue(idle.failure.get() instanceof ClosedException);
        Collector late = new Collector();
        store.tail(K, 0).subscribe(late);
        assertTrue(late.failure.get() instanceof ClosedException);
        assertEquals(0, store.underWay());
    }

    @Test
    void aCloseEndsATailWithoutDemand() throws Exception {
        Store store = Stores.open(folder);
        Collector idle = new Collector();
        store.tail(K, 0).subscribe(idle);
        while (store.underWay() == 0) {
            Thread.onSpinWait();
        }
        store.close();
        assertTrue(idle.failure.get(60, TimeUnit.SECONDS) instanceof ClosedException);
        assertEquals(0, store.underWay());
    }

    @Test
    void aSubscriberThatThrowsIsLeft() throws Exception {
        CompletableFuture<Throwable> uncaught = new CompletableFuture<>();
        Executor executor = code -> new Thread(() -> {
            try {
                code.run();
            } catch (Throwable e) {
                uncaught.complete(e);
            }
        }).start();
        try (Store store = Store.open(folder.resolve("test.brooklet"), Stores.small().executor(executor))) {
            store.appendMany(K, List.of(bytes("0"), bytes("1")));
            Collector throwing = new Collector() {
                @Override
                public void onNext(TailEvent event) {
                    super.onNext(event);
                    throw new IllegalArgumentException("from the subscriber");
                }
            };
            store.tail(K, 0).subscribe(throwing.demand(9));
            assertEquals("from the subscriber", uncaught.get().getMessage());
            assertEquals(1, throwing.events.size());
            assertEquals(0, store.underWay());
            assertEquals(2, store.append(K, bytes("2")));
        }
    }

    @Test
    void anExecutorThatRefusesLosesNothing() throws Exception {
        Executor refusing = code -> {
            throw new java.util.concurrent.RejectedExecutionException("shut down");
        };
        try (Store store = Store.open(folder.resolve("test.brooklet"), Stores.small().executor(refusing))) {
            assertEquals(0, store.appendAsync(K, bytes("0")).get().seq());
            Collector tail = new Collector().demand(1);
            store.tail(K, 0).subscribe(tail);
            assertEquals(new Entry(0, bytes("0")), tail.events.take());
        }
    }

    /** The exceptions that no thread catches, in the tests that have them. */
    private final BlockingQueue<Throwable> uncaught = new LinkedBlockingQueue<>();

    private void collectUncaught() {
        Thread.setDefaultUncaughtExceptionHandler((thread, e) -> uncaught.add(e));
    }

    @AfterEach
    void leaveUncaught() {
        Thread.setDefaultUncaughtExceptionHandler(null);
    }

    @Test
    void anExecutorThatThrowsLosesNothing() throws Exception {
        collectUncaught();
        for (Throwable thrown : List.of(new IllegalStateException("broken"), new NullPointerException(), new StackOverflowError())) {
            Executor throwing = code -> TailTest.<RuntimeException>sneak(thrown);
            try (Store store = Store.open(folder.resolve("throws"), Stores.small().executor(throwing))) {
                long next = store.getBounds(K).map(Bounds::next).orElse(0L);
                Collector tail = new Collector().demand(2);
                store.tail(K, next).subscribe(tail);
                for (int i = 0; i < 2; i++) {
                    // The thread that ends writes must outlive the exception: each write needs it.
                    assertEquals(next + i, store.appendAsync(K, bytes("x")).get(60, TimeUnit.SECONDS).seq());
                    assertEquals(new Entry(next + i, bytes("x")), tail.events.poll(60, TimeUnit.SECONDS));
                }
            }
            assertTrue(uncaught.contains(thrown));
        }
    }

    @SuppressWarnings("unchecked")
    private static <T extends Throwable> void sneak(Throwable thrown) throws T {
        throw (T) thrown;
    }

    /** Runs code at once, on the thread that ends all writes, too. */
    @Test
    void aSubscriberThatThrowsOnTheThreadOfWritesIsLeft() throws Exception {
        collectUncaught();
        Options options = Stores.small().executor(Runnable::run);
        try (Store store = Store.open(folder.resolve("test.brooklet"), options)) {
            Collector throwing = new Collector() {
                @Override
                public void onNext(TailEvent event) {
                    super.onNext(event);
                    throw new IllegalArgumentException("from the subscriber");
                }
            };
            store.tail(K, 0).subscribe(throwing.demand(9));
            for (int i = 0; i < 3; i++) {
                assertEquals(i, store.appendAsync(K, bytes("x")).get(60, TimeUnit.SECONDS).seq());
            }
            assertEquals(new Entry(0, bytes("x")), throwing.events.poll(60, TimeUnit.SECONDS));
            while (store.underWay() > 0) {
                Thread.onSpinWait();
            }
            assertEquals(0, throwing.events.size());
            // The tail is left before the exception goes to the handler.
            assertEquals("from the subscriber", uncaught.poll(60, TimeUnit.SECONDS).getMessage());
        }
        assertTrue(uncaught.isEmpty());
    }

    /** That thread takes all notices, so nobody has one for it. */
    @Test
    void aSubscriberOnTheThreadOfWritesMayWaitForAnEntry() throws Exception {
        Key awaited = key("awaited");
        CompletableFuture<Thread> waits = new CompletableFuture<>();
        CompletableFuture<Boolean> reached = new CompletableFuture<>();
        Options options = Stores.small().executor(Runnable::run);
        try (Store store = Store.open(folder.resolve("test.brooklet"), options)) {
            Collector waiting = new Collector() {
                @Override
                public void onNext(TailEvent event) {
                    waits.complete(Thread.currentThread());
                    try {
                        reached.complete(store.waitFor(awaited, 1, Duration.ofMinutes(1)));
                    } catch (InterruptedException e) {
                        reached.completeExceptionally(e);
                    }
                }
            };
            store.tail(K, 0).subscribe(waiting.demand(1));
            store.append(K, bytes("x"));
            Thread thread = waits.get(60, TimeUnit.SECONDS);
            while (thread.getState() != Thread.State.TIMED_WAITING && !reached.isDone()) {
                Thread.onSpinWait();
            }
            store.append(awaited, bytes("y"));
            assertTrue(reached.get(120, TimeUnit.SECONDS));
        }
    }

    @Test
    void manyTailsWaitWithoutThreads() throws Exception {
        try (Store store = Stores.open(folder)) {
            CountDownLatch came = new CountDownLatch(1000);
            List<Flow.Subscription> subscriptions = new ArrayList<>();
            for (int i = 0; i < 1000; i++) {
                Collector tail = new Collector() {
                    @Override
                    public void onNext(TailEvent event) {
                        came.countDown();
                    }
                };
                store.tail(key("tail/" + i % 10), 0).subscribe(tail.demand(1));
                subscriptions.add(tail.subscription.get());
            }
            assertTrue(Thread.activeCount() < 100);
            for (int i = 0; i < 10; i++) {
                store.append(key("tail/" + i), bytes("entry"));
            }
            came.await();
            subscriptions.forEach(Flow.Subscription::cancel);
            while (store.underWay() > 0) {
                Thread.onSpinWait();
            }
        }
    }
}
