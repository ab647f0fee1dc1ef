package brooklet;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Flow;
import java.util.concurrent.LinkedBlockingQueue;

/** A subscriber that collects events. */
class Collector implements Flow.Subscriber<TailEvent> {
    final BlockingQueue<TailEvent> events = new LinkedBlockingQueue<>();
    final CompletableFuture<Throwable> failure = new CompletableFuture<>();
    final CompletableFuture<Flow.Subscription> subscription = new CompletableFuture<>();
    private long first;

    /** Has it request so many events when it begins. */
    Collector demand(long n) {
        first = n;
        return this;
    }

    @Override
    public void onSubscribe(Flow.Subscription given) {
        subscription.complete(given);
        if (first > 0) {
            given.request(first);
        }
    }

    @Override
    public void onNext(TailEvent event) {
        events.add(event);
    }

    @Override
    public void onError(Throwable e) {
        failure.complete(e);
    }

    @Override
    public void onComplete() {
        failure.complete(null);
    }
}
