package brooklet;

/**
 * A log of a listing.
 *
 * @param key its key
 * @param bounds its bounds
 */
public record LogInfo(Key key, Bounds bounds) {}
