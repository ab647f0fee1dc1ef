package brooklet;

/** The library has a fault: report it. */
public final class InternalException extends BrookletException {
    private static final long serialVersionUID = 1;

    InternalException(Report report) {
        super(report);
    }
}
