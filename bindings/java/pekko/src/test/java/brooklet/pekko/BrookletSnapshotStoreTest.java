package brooklet.pekko;

import org.apache.pekko.persistence.CapabilityFlag;
import org.apache.pekko.persistence.japi.snapshot.JavaSnapshotStoreSpec;
import org.junit.runner.RunWith;
import org.scalatestplus.junit.JUnitRunner;

/** The TCK for snapshot stores. */
@RunWith(JUnitRunner.class)
public class BrookletSnapshotStoreTest extends JavaSnapshotStoreSpec {
    public BrookletSnapshotStoreTest() {
        super(Config.make());
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
