package brooklet;

/** The call is wrong: change it. */
public final class InvalidException extends BrookletException {
    private static final long serialVersionUID = 1;

    InvalidException(Report report) {
        super(report);
    }
}
