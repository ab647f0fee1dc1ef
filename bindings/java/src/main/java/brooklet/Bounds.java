package brooklet;

/**
 * The bounds of a log: its entries have the numbers from {@code first} on and before {@code next}.
 *
 * @param first the number of the first entry
 * @param next the number that the next entry will get
 */
public record Bounds(long first, long next) {}
