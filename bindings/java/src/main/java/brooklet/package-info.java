/**
 * Brooklet is an embedded store for millions of small append-only logs. A program appends an entry to a log and is notified when
 * the entry is on stable media. It reads the log back, trims its head, and deletes it. A store is one file or one raw block
 * device: see {@link brooklet.Store#open}.
 *
 * <p>These rules hold for all calls:
 *
 * <ul>
 *   <li><b>Waiting.</b> {@link brooklet.Store#append} and {@link brooklet.Store#commit} return when the write is acknowledged: it
 *       is on stable media. {@link brooklet.Store#appendAsync} and {@link brooklet.Store#commitAsync} return a {@link
 *       brooklet.Ticket} at once. No write and no tail has a thread of its own.
 *   <li><b>Interrupts</b> end a wait by {@link java.lang.InterruptedException}. They do not cancel a write: it becomes durable
 *       all the same. A few threads at a time write to the device themselves: their wait ends when the device has answered. A
 *       call without that exception waits for room at most.
 *   <li><b>Exceptions</b> of the store are {@link brooklet.BrookletException}s, with a class for each kind. A null is a {@link
 *       java.lang.NullPointerException}.
 *   <li><b>Bytes.</b> The store copies keys and payloads before a call returns. Arrays that a call returns belong to the caller.
 *   <li><b>Threads.</b> Many threads may use one store. One thread at a time uses a commit, options, or an iterator.
 *   <li><b>Closing.</b> A store may be closed beside all other calls, and more than once. Calls on a closed store throw {@link
 *       brooklet.ClosedException}.
 * </ul>
 */
package brooklet;
