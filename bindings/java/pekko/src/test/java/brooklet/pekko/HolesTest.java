package brooklet.pekko;

import static org.junit.Assert.assertEquals;

import com.typesafe.config.ConfigFactory;
import java.util.ArrayList;
import java.util.List;
import org.apache.pekko.actor.Actor;
import org.apache.pekko.actor.ActorRef;
import org.apache.pekko.actor.ActorSystem;
import org.apache.pekko.persistence.AtomicWrite;
import org.apache.pekko.persistence.JournalProtocol;
import org.apache.pekko.persistence.Persistence;
import org.apache.pekko.persistence.PersistentEnvelope;
import org.apache.pekko.persistence.PersistentRepr;
import org.apache.pekko.testkit.javadsl.TestKit;
import org.junit.Test;
import scala.jdk.javaapi.CollectionConverters;

/** Events that were rejected: their sequence numbers are holes. */
public class HolesTest {
    @Test
    public void aReplayWithALimitSkipsThem() {
        ActorSystem system = ActorSystem.create("holes", Config.make());
        try {
            TestKit probe = new TestKit(system);
            ActorRef journal = Persistence.get(system).journalFor("", ConfigFactory.empty());
            // No serializer takes an Object.
            Object[] events = {"a", new Object(), new Object(), "d", new Object(), "f", "g"};
            List<PersistentEnvelope> writes = new ArrayList<>();
            for (int i = 0; i < events.length; i++) {
                writes.add(AtomicWrite.apply(
                        PersistentRepr.apply(events[i], i + 1, "id", "", false, Actor.noSender(), "writer")));
            }
            journal.tell(
                    new JournalProtocol.WriteMessages(CollectionConverters.asScala(List.copyOf(writes)).toList(), probe.getRef(), 1),
                    probe.getRef());
            probe.expectMsg(JournalProtocol.WriteMessagesSuccessful$.MODULE$);
            for (Object event : events) {
                if (event instanceof String) {
                    probe.expectMsgClass(JournalProtocol.WriteMessageSuccess.class);
                } else {
                    probe.expectMsgClass(JournalProtocol.WriteMessageRejected.class);
                }
            }
            assertEquals(List.of("a", "d", "f"), replayed(journal, probe, 1, 3));
            assertEquals(List.of("d"), replayed(journal, probe, 2, 1));
            assertEquals(List.of("a", "d", "f", "g"), replayed(journal, probe, 1, Long.MAX_VALUE));
            assertEquals(List.of(), replayed(journal, probe, 1, 0));
        } finally {
            TestKit.shutdownActorSystem(system);
        }
    }

    private static List<Object> replayed(ActorRef journal, TestKit probe, long from, long max) {
        journal.tell(new JournalProtocol.ReplayMessages(from, Long.MAX_VALUE, max, "id", probe.getRef()), probe.getRef());
        List<Object> events = new ArrayList<>();
        while (true) {
            Object reply = probe.expectMsgAnyClassOf(JournalProtocol.ReplayedMessage.class, JournalProtocol.RecoverySuccess.class);
            if (reply instanceof JournalProtocol.ReplayedMessage message) {
                events.add(message.persistent().payload());
            } else {
                return events;
            }
        }
    }
}
