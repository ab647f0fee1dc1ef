package brooklet;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.Arrays;

/**
 * The name of a log: 1 to 1,024 bytes. Keys are in the order of their bytes, without a sign. A key that is used often is worth to
 * be kept.
 */
public final class Key implements Comparable<Key> {
    /** Nobody else has the array. */
    final byte[] bytes;

    Key(byte[] bytes) {
        this.bytes = bytes;
    }

    /**
     * Returns the key of a text, in UTF-8.
     *
     * @param text the text
     * @return the key
     * @throws InvalidException if the text has half of a surrogate pair, which UTF-8 cannot encode
     */
    public static Key of(String text) {
        byte[] bytes = text.getBytes(UTF_8);
        if (!new String(bytes, UTF_8).equals(text)) {
            throw BrookletException.invalid("the text of a key has half of a surrogate pair: pass bytes");
        }
        return new Key(bytes);
    }

    /**
     * Returns the key of some bytes, which are copied.
     *
     * @param bytes the bytes
     * @return the key
     */
    public static Key of(byte[] bytes) {
        return new Key(bytes.clone());
    }

    /**
     * Returns a copy of the bytes.
     *
     * @return the bytes
     */
    public byte[] bytes() {
        return bytes.clone();
    }

    @Override
    public int compareTo(Key other) {
        return Arrays.compareUnsigned(bytes, other.bytes);
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Key key && Arrays.equals(bytes, key.bytes);
    }

    @Override
    public int hashCode() {
        return Arrays.hashCode(bytes);
    }

    /** Returns the bytes as a text in UTF-8; other bytes appear as the replacement character. */
    @Override
    public String toString() {
        return new String(bytes, UTF_8);
    }
}
