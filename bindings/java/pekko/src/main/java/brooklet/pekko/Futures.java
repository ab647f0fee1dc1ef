package brooklet.pekko;

import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Executor;
import scala.concurrent.Future;
import scala.jdk.javaapi.FutureConverters;

/** Futures of Java as those of Scala. */
final class Futures {
    private Futures() {}

    /** Makes a call on an executor, once {@code before} has ended in any way. */
    static <T> Future<T> after(CompletableFuture<?> before, Executor executor, Callable<T> call) {
        return scala(before.handleAsync(
                (value, failure) -> {
                    try {
                        return call.call();
                    } catch (Exception e) {
                        throw new CompletionException(e);
                    }
                },
                executor));
    }

    /** Returns a future of Scala, with the failure itself and not the one that wraps it. */
    static <T> Future<T> scala(CompletionStage<T> stage) {
        CompletableFuture<T> plain = new CompletableFuture<>();
        stage.whenComplete((value, failure) -> {
            if (failure == null) {
                plain.complete(value);
            } else {
                boolean wrapped = failure instanceof CompletionException && failure.getCause() != null;
                plain.completeExceptionally(wrapped ? failure.getCause() : failure);
            }
        });
        return FutureConverters.asScala(plain);
    }

    static <T> Future<T> failed(Exception failure) {
        return FutureConverters.asScala(CompletableFuture.failedFuture(failure));
    }
}
