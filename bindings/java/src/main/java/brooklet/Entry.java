package brooklet;

import java.util.Arrays;

/**
 * An entry of a log.
 *
 * @param seq its number
 * @param payload its bytes, which belong to the caller
 */
public record Entry(long seq, byte[] payload) implements TailEvent {
    @Override
    public boolean equals(Object other) {
        return other instanceof Entry entry && seq == entry.seq && Arrays.equals(payload, entry.payload);
    }

    @Override
    public int hashCode() {
        return 31 * Long.hashCode(seq) + Arrays.hashCode(payload);
    }

    @Override
    public String toString() {
        return "Entry[seq=" + seq + ", payload=" + payload.length + " bytes]";
    }
}
