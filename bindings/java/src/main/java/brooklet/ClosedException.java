package brooklet;

/** The store, or the iterator, is closed. */
public final class ClosedException extends StoppedException {
    private static final long serialVersionUID = 1;

    ClosedException(Report report) {
        super(report);
    }
}
