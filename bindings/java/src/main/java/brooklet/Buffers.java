package brooklet;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ArrayBlockingQueue;

/** The buffers that the native part fills with entries and logs. A call borrows one, so few are needed. */
final class Buffers {
    private static final int SIZE = 64 << 10;

    /** The bytes of brooklet_packed_entry and brooklet_packed_log. */
    private static final int ENTRY_HEAD = 16;

    private static final int LOG_HEAD = 24;

    private static final ArrayBlockingQueue<ByteBuffer> IDLE = new ArrayBlockingQueue<>(16);

    private Buffers() {}

    static ByteBuffer borrow() {
        ByteBuffer idle = IDLE.poll();
        return idle != null ? idle : ByteBuffer.allocateDirect(SIZE).order(ByteOrder.nativeOrder());
    }

    static void give(ByteBuffer buffer) {
        IDLE.offer(buffer);
    }

    /** Copies so many packed entries out of a buffer. */
    static List<Entry> entries(ByteBuffer buffer, long count) {
        List<Entry> entries = new ArrayList<>((int) count);
        for (int at = 0, n = 0; n < count; n++) {
            byte[] payload = new byte[(int) buffer.getLong(at + 8)];
            buffer.get(at + ENTRY_HEAD, payload);
            entries.add(new Entry(buffer.getLong(at), payload));
            at += ENTRY_HEAD + payload.length;
        }
        return entries;
    }

    /** Copies so many packed logs out of a buffer. */
    static List<LogInfo> logs(ByteBuffer buffer, long count) {
        List<LogInfo> logs = new ArrayList<>((int) count);
        for (int at = 0, n = 0; n < count; n++) {
            byte[] key = new byte[(int) buffer.getLong(at + 16)];
            buffer.get(at + LOG_HEAD, key);
            logs.add(new LogInfo(new Key(key), new Bounds(buffer.getLong(at), buffer.getLong(at + 8))));
            at += LOG_HEAD + key.length;
        }
        return logs;
    }
}
