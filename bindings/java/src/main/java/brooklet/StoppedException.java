package brooklet;

/**
 * The store accepts no writes any more: open it again. The outcome of writes that were not acknowledged is unknown
 * until then.
 */
public class StoppedException extends BrookletException {
    private static final long serialVersionUID = 1;

    StoppedException(Report report) {
        super(report);
    }
}
