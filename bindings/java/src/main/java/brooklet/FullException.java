package brooklet;

/** There is no room: free some room and retry. */
public final class FullException extends BrookletException {
    private static final long serialVersionUID = 1;

    FullException(Report report) {
        super(report);
    }
}
