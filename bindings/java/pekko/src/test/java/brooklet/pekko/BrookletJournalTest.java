package brooklet.pekko;

import org.apache.pekko.persistence.CapabilityFlag;
import org.apache.pekko.persistence.japi.journal.JavaJournalSpec;
import org.junit.runner.RunWith;
import org.scalatestplus.junit.JUnitRunner;

/** The TCK for journals. */
@RunWith(JUnitRunner.class)
public class BrookletJournalTest extends JavaJournalSpec {
    public BrookletJournalTest() {
        super(Config.make());
    }

    @Override
    public CapabilityFlag supportsRejectingNonSerializableObjects() {
        return CapabilityFlag.on();
    }

    @Override
    public CapabilityFlag supportsSerialization() {
        return CapabilityFlag.on();
    }

    @Override
    public CapabilityFlag supportsMetadata() {
        return CapabilityFlag.on();
    }
}
