package brooklet;

import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * Calls that may wait for long within the C library, which no interrupt ends there: for room, for a checkpoint. A few threads of
 * each store make them, so that no store waits for the device of another one. They end when they are idle.
 */
final class Patience {
    static final int THREADS = 8;

    final ThreadPoolExecutor pool =
            new ThreadPoolExecutor(THREADS, THREADS, 5, TimeUnit.SECONDS, new LinkedBlockingQueue<>(), call -> {
                Thread thread = new Thread(null, call, "brooklet call", 0, false);
                thread.setContextClassLoader(null);
                thread.setDaemon(true);
                return thread;
            });

    Patience() {
        pool.allowCoreThreadTimeOut(true);
    }

    /**
     * Makes a call, and waits for it. If the thread is interrupted meanwhile, a call that has begun goes on without it: the call
     * must own its arguments. One that has not begun never does.
     */
    <T> T wait(Callable<T> call) throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
        FutureTask<T> made = new FutureTask<>(call);
        pool.execute(made);
        try {
            return made.get();
        } catch (InterruptedException e) {
            made.cancel(false);
            pool.remove(made);
            throw e;
        } catch (ExecutionException e) {
            if (e.getCause() instanceof BrookletException failure) {
                throw failure.here();
            }
            throw new IllegalStateException(e.getCause());
        }
    }
}
