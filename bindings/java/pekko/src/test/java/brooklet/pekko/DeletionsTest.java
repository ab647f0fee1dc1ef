package brooklet.pekko;

import com.typesafe.config.ConfigFactory;
import java.time.Duration;
import org.apache.pekko.actor.ActorRef;
import org.apache.pekko.actor.ActorSystem;
import org.apache.pekko.persistence.DeleteSnapshotsSuccess;
import org.apache.pekko.persistence.Persistence;
import org.apache.pekko.persistence.SaveSnapshotSuccess;
import org.apache.pekko.persistence.SnapshotMetadata;
import org.apache.pekko.persistence.SnapshotProtocol;
import org.apache.pekko.persistence.SnapshotSelectionCriteria;
import org.apache.pekko.testkit.javadsl.TestKit;
import org.junit.Test;

/** Deletions of snapshots that overlap. */
public class DeletionsTest {
    private static final Duration LONG = Duration.ofSeconds(60);

    @Test
    public void overlappingDeletionsSucceed() {
        ActorSystem system = ActorSystem.create("deletions", Config.make());
        try {
            TestKit probe = new TestKit(system);
            ActorRef snapshots = Persistence.get(system).snapshotStoreFor("", ConfigFactory.empty());
            for (int round = 0; round < 50; round++) {
                for (int number = 1; number <= 5; number++) {
                    SnapshotMetadata metadata = new SnapshotMetadata("id", number, 1);
                    snapshots.tell(new SnapshotProtocol.SaveSnapshot(metadata, "state"), probe.getRef());
                    probe.expectMsgClass(LONG, SaveSnapshotSuccess.class);
                }
                SnapshotProtocol.DeleteSnapshots all =
                        new SnapshotProtocol.DeleteSnapshots("id", SnapshotSelectionCriteria.latest());
                for (int i = 0; i < 4; i++) {
                    snapshots.tell(all, probe.getRef());
                }
                for (int i = 0; i < 4; i++) {
                    probe.expectMsgClass(LONG, DeleteSnapshotsSuccess.class);
                }
            }
        } finally {
            TestKit.shutdownActorSystem(system);
        }
    }
}
