package brooklet;

/** Another commit was first: read the log again and retry. {@link #next()} is the end of the log. */
public final class ConflictException extends BrookletException {
    private static final long serialVersionUID = 1;

    ConflictException(Report report) {
        super(report);
    }
}
