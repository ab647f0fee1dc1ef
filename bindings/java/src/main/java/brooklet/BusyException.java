package brooklet;

/** The call would have to wait: retry later. */
public final class BusyException extends BrookletException {
    private static final long serialVersionUID = 1;

    BusyException(Report report) {
        super(report);
    }
}
