package brooklet;

/** The store cannot be opened with these arguments. The message names the remedy. */
public final class CannotOpenException extends BrookletException {
    private static final long serialVersionUID = 1;

    CannotOpenException(Report report) {
        super(report);
    }
}
