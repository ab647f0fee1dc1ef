package brooklet;

/** The operating system refused an operation. The message names it. */
public final class IoException extends BrookletException {
    private static final long serialVersionUID = 1;

    IoException(Report report) {
        super(report);
    }
}
