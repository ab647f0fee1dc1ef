package brooklet;

/** Data is damaged: restore it. Other logs read as before. */
public final class DamagedException extends BrookletException {
    private static final long serialVersionUID = 1;

    DamagedException(Report report) {
        super(report);
    }
}
