package brooklet;

/**
 * The log or the range does not exist. {@link #first()} and {@link #next()} are the bounds of the log, if a number
 * is outside of it.
 */
public final class NotFoundException extends BrookletException {
    private static final long serialVersionUID = 1;

    NotFoundException(Report report) {
        super(report);
    }
}
