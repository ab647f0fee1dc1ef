//! Private functions for the fuzz target: a server without sockets and threads, with several
//! clients.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use brooklet::io::{ManualClock, MemVolume};
use brooklet::{Options, Store};
use bytes::BytesMut;

use super::acl::Users;
use super::client::ClientId;
use super::engine::Engine;
use super::keys::stream::Id;
use super::keys::{Keyspace, Value};
use super::now::Now;
use super::proto::{Limits, Parser};
use super::settings::Settings;

/// Keys of all databases, each as text that says all of it.
type State = BTreeMap<(u64, Vec<u8>), String>;

/// A client whose bytes come in parts.
struct Talker {
    id: ClientId,
    parser: Parser,
    input: BytesMut,
}

fn options(clock: &Arc<ManualClock>) -> Options {
    let options = Options::new().ring_size(256 << 10).memory_budget(128 << 10).max_payload(32 << 10);
    options.cache_budget(256 << 10).threads(false).clock(clock.clone()).rng_seed(1)
}

fn engine(store: &Store, now: u64) -> Engine {
    let mut settings = Settings::default();
    (settings.max_bulk, settings.max_request) = (64 << 10, 256 << 10);
    Engine::new(Keyspace::new(store.clone(), 4096, now), Users::new(None), settings, Default::default(), 1)
}

/// Has three clients say parts of `input`: a byte says who, one how much, and then it comes; a
/// fourth is the world, where time goes by and commits become durable. In the end the store is
/// opened again, and has to show the same.
pub fn talk(input: &[u8]) {
    let (volume, clock) = (MemVolume::new(1), Arc::new(ManualClock::default()));
    let store = options(&clock).create_on(Arc::new(volume.clone())).expect("memory takes a store");
    let mut now = 1_000_000;
    let mut engine = engine(&store, now);
    let mut talkers: Vec<Talker> = Vec::new();
    let mut rest = input;
    while let [who, len, after @ ..] = rest {
        let (said, after) = after.split_at(usize::from(*len).min(after.len()));
        rest = after;
        match who % 4 {
            3 => match len % 4 {
                0 => drop(store.step()),
                1 => engine.note_durable(),
                2 => assert!(engine.keys.age_cache(usize::MAX)),
                _ => {
                    now += u64::from(*len) * 10;
                    clock.advance(Duration::from_millis(u64::from(*len) * 10));
                    engine.tick(Now { wall: now, steady: now });
                }
            },
            nth => {
                let nth = usize::from(nth).min(talkers.len());
                if nth == talkers.len() {
                    let id = engine.connect(String::new(), String::new());
                    let Ok(id) = id else { continue };
                    talkers.push(Talker { id, parser: Parser::default(), input: BytesMut::new() });
                }
                if !hear(&mut engine, &mut talkers[nth], said) {
                    engine.disconnect(talkers.remove(nth).id);
                }
            }
        }
    }
    store.flush().expect("memory takes writes");
    engine.note_durable();
    let before = state(&mut engine);
    drop(engine);
    store.close().expect("memory takes writes");
    let image = MemVolume::from_image(volume.image(), 1);
    let store = options(&clock).open_on(Arc::new(image)).expect("it was closed");
    assert_eq!(state(&mut self::engine(&store, now)), before);
}

/// A client says something; whether it stays.
fn hear(engine: &mut Engine, talker: &mut Talker, said: &[u8]) -> bool {
    talker.input.extend_from_slice(said);
    let limits = Limits { bulk: 64 << 10, request: 256 << 10, is_known: true };
    let mut requests = VecDeque::new();
    let wrong = loop {
        match talker.parser.next(&mut talker.input, limits) {
            Ok(Some(request)) => requests.push_back(request),
            Ok(None) => break None,
            Err(why) => break Some(why),
        }
    };
    engine.run(talker.id, &mut requests, || true);
    if let Some(why) = wrong {
        engine.refuse(talker.id, &why);
    }
    engine.take_ready(talker.id);
    engine.client(talker.id).is_some_and(|client| !client.is_leaving && !client.is_killed)
}

/// All that there is.
fn state(engine: &mut Engine) -> State {
    let keys = &mut engine.keys;
    let mut state = State::new();
    for number in 0..16_u64 {
        let database = number.to_string().into_bytes();
        let names: Vec<_> =
            keys.keys_after(&database, None).and_then(Iterator::collect).expect("memory is read");
        for name in names {
            let id = keys.open(&database, &name).expect("memory is read");
            let held = match keys.value(id).clone() {
                // Its time has come.
                Value::Absent | Value::Damaged(_) => continue,
                Value::List(list) => format!(
                    "{:?}",
                    keys.elements(id, 0..list.len()).and_then(Iterator::collect::<Result<Vec<_>, _>>)
                ),
                Value::Stream(mut stream) => {
                    // When a consumer was seen last is not worth a commit, and ids that trimming
                    // has passed are not kept.
                    stream.kept.gone.clear();
                    let groups = stream.kept.groups.values_mut();
                    groups.for_each(|group| group.consumers.values_mut().for_each(|seen| *seen = 0));
                    let entries = keys.entries(id, (Id::MIN, Id::MAX), usize::MAX, false);
                    format!("{:?} {} {entries:?}", stream.kept, stream.added())
                }
                other => format!("{other:?}"),
            };
            state.insert((number, name.to_vec()), format!("{held} {:?}", keys.expire(id)));
        }
    }
    state
}
