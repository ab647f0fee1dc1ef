package brooklet.pekko;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertSame;
import static org.junit.Assert.assertThrows;

import java.util.ArrayList;
import java.util.List;
import org.junit.Test;

/** The end of the stores of an actor system. */
public class StoresTest {
    @Test
    public void eachStoreIsClosedAlsoBehindOneThatThrows() {
        List<Integer> closed = new ArrayList<>();
        IllegalStateException first = new IllegalStateException("stopped");
        IllegalStateException second = new IllegalStateException("stopped, too");
        List<Runnable> closes = List.of(
                () -> closed.add(1),
                () -> {
                    throw first;
                },
                () -> closed.add(3),
                () -> {
                    throw second;
                },
                () -> closed.add(5));
        assertSame(first, assertThrows(IllegalStateException.class, () -> Stores.closeEach(closes)));
        assertEquals(List.of(1, 3, 5), closed);
        assertEquals(List.of(second), List.of(first.getSuppressed()));
    }
}
