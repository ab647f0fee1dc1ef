package brooklet;

import java.util.Arrays;

/** The numbers of the entries that a write appended, in the order of its operations. */
public final class Appended {
    private final long seq;
    /** Null if {@code seq} is the only number. */
    private final long[] seqs;

    Appended(long seq) {
        this.seq = seq;
        this.seqs = null;
    }

    Appended(long[] seqs) {
        this.seq = seqs.length == 0 ? 0 : seqs[0];
        this.seqs = seqs;
    }

    /**
     * Returns the number of the entry, or of the first one; 0 if there is none.
     *
     * @return the number
     */
    public long seq() {
        return seq;
    }

    /**
     * Returns how many entries were appended.
     *
     * @return how many
     */
    public int count() {
        return seqs == null ? 1 : seqs.length;
    }

    /**
     * Returns the numbers of all entries.
     *
     * @return the numbers
     */
    public long[] seqs() {
        return seqs == null ? new long[] {seq} : seqs.clone();
    }

    @Override
    public String toString() {
        return "Appended" + Arrays.toString(seqs());
    }
}
