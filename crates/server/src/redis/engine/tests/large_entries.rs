//! Streams with large entries: no command brings more of them to memory than it needs.

use bytes::Bytes;

use super::{World, words};
use crate::redis::client::ClientId;
use crate::redis::keys::head::Record;
use crate::redis::keys::names;
use crate::redis::keys::stream::{Delta, Entry, Id};

/// Runs a request, and returns the reply once all is durable.
fn say(world: &mut World, id: ClientId, request: &str) -> String {
    world.engine.run(id, &mut [words(request)].into(), || true);
    world.store.flush().unwrap();
    world.engine.note_durable();
    String::from_utf8_lossy(&world.engine.take_ready(id)).into_owned()
}

fn come(world: &mut World) -> ClientId {
    world.engine.connect("here".into(), "there".into()).unwrap()
}

/// Makes a stream with so many entries of a size, which are all pending. Nobody can read one of
/// them: a command that fails because of it has read that far.
fn stream(count: u64, size: usize, unreadable: u64) -> (World, ClientId) {
    let mut world = World::new(1, 1 << 20, None);
    let id = come(&mut world);
    assert_eq!(say(&mut world, id, "XGROUP CREATE s g 0 MKSTREAM"), "+OK\r\n");
    let image = world.volume.crash();
    let mut world = world.reopened(image, 2);
    let text = |text: &'static str| Bytes::from_static(text.as_bytes());
    let ids = (1..=count).map(|ms| (Id { ms, seq: 0 }, 0, 1)).collect();
    let consumer = Delta::Consumer { group: text("g"), name: text("c"), seen: 0 };
    for delta in [consumer, Delta::Deliver { group: text("g"), consumer: text("c"), ids }] {
        let record = Record::Stream(delta).encode();
        world.store.append(names::head(b"0/s"), record).unwrap().wait().unwrap();
    }
    let fields = [text("f"), Bytes::from(vec![b'x'; size])];
    for ms in 1..=count {
        let entry = Entry::encode(Id { ms, seq: 0 }, &fields);
        let entry = if ms == unreadable { Bytes::from_static(&[0xff; 9]) } else { entry };
        world.store.append(names::entries(b"0/s"), entry).unwrap().wait().unwrap();
    }
    let id = come(&mut world);
    (world, id)
}

/// In the old state up to 512 entries were read ahead, whatever their size.
#[test]
fn few_large_entries_are_read_ahead() {
    let ids: String = (1..=20).map(|n| format!(" {n}-0")).collect();
    for request in [format!("XDEL s{ids}"), format!("XCLAIM s g d 0{ids} JUSTID")] {
        let (mut world, id) = stream(40, 50 << 10, 28);
        let told = say(&mut world, id, &request);
        assert!(told.starts_with(":20\r\n") || told.starts_with("*20\r\n"), "{request}: {told}");
    }
}

/// In the old state they read many entries before they looked at the room of the reply.
#[test]
fn a_reply_without_room_takes_no_further_entries() {
    for request in ["XREADGROUP GROUP g c STREAMS s 0", "XINFO STREAM s FULL COUNT 100"] {
        let (mut world, id) = stream(200, 1_000, 90);
        world.engine.settings.hard_output = 32 << 10;
        let told = say(&mut world, id, request);
        assert!(told.starts_with("-ERR the reply is over"), "{request}: {told}");
    }
}
