//! The map of a cluster: all orders of three changers, within bounds; a bucket that fails; what the
//! map asks of hosts.

use std::sync::Arc;
use std::time::Duration;

use brooklet::io::seeded::plant;
use brooklet_archive::Bucket;
use brooklet_archive::object_store::memory::InMemory;
use brooklet_replica::{
    Asked, BucketJournal, Change, Changed, Changer, Cluster, Defect, Drawn, Duty, Epoch, Error, Heard, Key,
    Map, Place, Refusal, StoreId, Turn,
};
use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::faulty::{Failing, Faulty};

fn add(shard: &str) -> Change {
    Change::AddShard { shard: shard.into() }
}

fn assign(space: &str, shard: &str) -> Change {
    Change::Assign { space: space.into(), shard: shard.into() }
}

fn register(shard: &str, host: &str) -> Change {
    Change::Register { shard: shard.into(), host: host.into(), url: format!("http://{host}") }
}

/// Changes that meet, over a bucket and a network that loses, delays and repeats.
#[derive(Clone)]
pub struct Changers {
    pub changes: Vec<Change>,
    pub faults: u8,
    pub bug: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Room {
    maps: Vec<Map>,
    changers: Vec<(Changer, Option<Asked>)>,
    /// Requests whose effect is still to come.
    late: Vec<Map>,
    faults: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    Heard,
    Unheard,
    Late,
    Doubled,
    Busy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    Request(usize, Fate),
    Late(usize),
}

impl Room {
    fn create(&mut self, map: &Map) -> Heard {
        if map.number != self.maps.len() as u64 + 1 {
            return Heard::Exists;
        }
        self.maps.push(map.clone());
        Heard::Done
    }

    fn request(&mut self, who: usize, fate: Fate) {
        let asked = self.changers[who].1.take().expect("a request");
        self.faults -= u8::from(fate != Fate::Heard);
        let heard = match (&asked, fate) {
            (Asked::Create(map), Fate::Late) => {
                self.late.push(map.clone());
                Heard::Unknown
            }
            (Asked::Create(_), Fate::Busy) => Heard::Exists,
            (Asked::Create(map), fate) => {
                let heard = self.create(map);
                if fate == Fate::Doubled {
                    self.late.push(map.clone());
                }
                if fate == Fate::Unheard { Heard::Unknown } else { heard }
            }
            (_, Fate::Unheard) => Heard::Unknown,
            (Asked::Newest(_), _) => Heard::Map(self.maps.last().cloned()),
            (Asked::Read(number), _) => Heard::Map(self.maps.get(*number as usize - 1).cloned()),
        };
        let (changer, next) = &mut self.changers[who];
        changer.answer(heard);
        *next = changer.poll();
    }
}

impl Changers {
    /// Each map is the one before it with one change, and each changer knows what became of its
    /// own.
    fn holds(&self, room: &Room) -> Result<(), String> {
        for (before, map) in room.maps.iter().zip(&room.maps[1..]) {
            let change = &self.changes[map.drawn.0 as usize - 1];
            let made = change.apply(Some(before)).ok().flatten();
            let made = made.map(|made| Map { number: map.number, drawn: map.drawn, ..made });
            if made.as_ref() != Some(map) {
                return Err(format!("map {} is not the one before it with {change:?}", map.number));
            }
        }
        for (who, (changer, _)) in room.changers.iter().enumerate() {
            let made = room.maps.iter().filter(|map| map.drawn.0 == who as u128 + 1).count();
            let fits = match changer.end() {
                Some(Changed::Done(map)) => room.maps.contains(map) && made == 1,
                Some(Changed::Refused(_)) => made == 0,
                None => made <= 1,
            };
            if !fits {
                return Err(format!(
                    "{:?} made {made} maps, and ended by {:?}",
                    self.changes[who],
                    changer.end()
                ));
            }
        }
        Ok(())
    }
}

const SERIAL: &str = "each map is the one before it with one change";

impl Model for Changers {
    type State = Room;
    type Action = Act;

    fn init_states(&self) -> Vec<Room> {
        let changers = self.changes.iter().zip(1..).map(|(change, drawn)| {
            let mut changer = Changer::new(change.clone(), Drawn(drawn), None);
            let asked = changer.poll();
            (changer, asked)
        });
        let first = Map::first(Drawn(77));
        vec![Room { maps: vec![first], changers: changers.collect(), late: Vec::new(), faults: self.faults }]
    }

    fn actions(&self, room: &Room, actions: &mut Vec<Act>) {
        actions.extend((0..room.late.len()).map(Act::Late));
        for (who, (_, asked)) in room.changers.iter().enumerate() {
            let fates: &[Fate] = match asked {
                None => &[],
                Some(_) if room.faults == 0 => &[Fate::Heard],
                Some(Asked::Create(_)) => {
                    &[Fate::Heard, Fate::Unheard, Fate::Late, Fate::Doubled, Fate::Busy]
                }
                Some(_) => &[Fate::Heard, Fate::Unheard],
            };
            actions.extend(fates.iter().map(|fate| Act::Request(who, *fate)));
        }
    }

    fn next_state(&self, room: &Room, action: Act) -> Option<Room> {
        // The checker has threads of its own.
        plant(self.bug);
        let mut next = room.clone();
        match action {
            Act::Request(who, fate) => next.request(who, fate),
            Act::Late(at) => {
                let map = next.late.swap_remove(at);
                next.create(&map);
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let refused: fn(&Self, &Room) -> bool = |_, room| {
            room.changers.iter().any(|(changer, _)| matches!(changer.end(), Some(Changed::Refused(_))))
        };
        let all: fn(&Self, &Room) -> bool = |_, room| room.maps.len() == room.changers.len() + 1;
        vec![
            Property::always(SERIAL, |model: &Self, room: &Room| model.holds(room).is_ok()),
            Property::sometimes("all changes are made", all),
            Property::sometimes("one is refused", refused),
        ]
    }
}

/// Two changes that fit each map, and one that fits only behind the first.
fn changes() -> Vec<Change> {
    vec![add("a"), add("b"), assign("space", "a")]
}

#[test]
fn changers_that_meet_lose_no_change() {
    let checker = Changers { changes: changes(), faults: 2, bug: None }.checker().threads(2);
    let checker = checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!("{} states, {} of them different", checker.state_count(), checker.unique_state_count());
    assert!(checker.is_done());
    checker.assert_properties();
}

/// Whether the check notices a planted defect, which `met` counts.
pub fn is_caught(bug: &'static str) -> bool {
    let checker = Changers { changes: changes(), faults: 1, bug: Some(bug) }.checker().threads(2);
    checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join().discovery(SERIAL).is_some()
}

fn cluster(memory: &Arc<InMemory>, percent: u64, seed: u64) -> Cluster<BucketJournal> {
    let faulty = Faulty::new(memory.clone(), Failing::Percent(percent), seed);
    let bucket = Bucket::of(Arc::new(faulty), "here").unwrap();
    Cluster::new(BucketJournal::new(&bucket).patience(Duration::from_secs(2)))
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(work)
}

/// The client over a bucket that fails: the change of each program that was told of its success is
/// there, once, and so are the others.
#[test]
fn programs_that_change_the_map_at_once_lose_no_change() {
    for seed in 0..30 {
        let memory = Arc::new(InMemory::new());
        run(async {
            cluster(&memory, 0, 0).change(Change::Begin, None).await.unwrap();
            let changers = (0..3).map(|who| {
                let cluster = cluster(&memory, [0, 10, 30][seed as usize % 3], seed * 10 + who);
                tokio::spawn(async move {
                    let mut made = Vec::new();
                    for n in 0..8 {
                        let name = format!("{who}-{n}");
                        match cluster.change(add(&name), None).await {
                            Ok(map) => {
                                assert!(map.shards.contains_key(&name));
                                made.push(name);
                            }
                            Err(error) => assert!(error.is_temporary(), "{error}"),
                        }
                    }
                    made
                })
            });
            let changers: Vec<_> = changers.collect();
            let mut made = Vec::new();
            for changer in changers {
                made.extend(changer.await.unwrap());
            }
            tokio::time::sleep(Duration::from_secs(100)).await;
            let map = cluster(&memory, 0, 0).look(None).await.unwrap().unwrap();
            assert!(made.iter().all(|name| map.shards.contains_key(name)), "seed {seed}: {made:?}");
            assert!(made.len() > 10 && map.shards.len() as u64 + 1 == map.number, "seed {seed}");
        });
    }
}

fn changed(map: &Map, change: Change) -> Map {
    let changed = change.apply(Some(map)).unwrap().expect("a change");
    Map { number: map.number + 1, ..changed }
}

fn two_hosts() -> Map {
    let map = changed(&Map::first(Drawn(5)), add("a"));
    changed(&changed(&map, register("a", "one")), register("a", "two"))
}

#[test]
fn a_map_is_read_as_it_was_written_and_damage_is_noticed() {
    let map = changed(&changed(&two_hosts(), assign("7", "a")), add("b"));
    let map = changed(&map, Change::Move { shard: "a".into(), to: "two".into() });
    let data = map.encode();
    assert_eq!(Map::decode(map.id, map.number, &data).unwrap(), map);
    assert_eq!(Map::cluster(&data), Some(map.id));
    assert!(Map::decode(map.id, 1, &data).is_err(), "it is another map");
    assert_eq!(Map::decode(StoreId(1), map.number, &data), Err(Defect::OtherStore(map.id)));
    for at in 0..data.len() {
        let mut broken = data.to_vec();
        broken[at] ^= 1;
        assert!(Map::decode(map.id, map.number, &broken).is_err(), "byte {at}");
        assert!(Map::decode(map.id, map.number, &data[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn changes_that_do_not_fit_are_refused() {
    let map = two_hosts();
    let refusal = |change: Change| change.apply(Some(&map)).unwrap_err();
    assert_eq!(add("x").apply(None), Err(Refusal::NoMap));
    assert_eq!(refusal(add("a")), Refusal::HasShard("a".into()));
    for name in ["", ".hidden", "a/b", "a b", &"a".repeat(256)] {
        assert_eq!(refusal(add(name)), Refusal::NoName(name.into()));
    }
    assert_eq!(refusal(assign("7", "b")), Refusal::NoShard("b".into()));
    let to_three = Change::Move { shard: "a".into(), to: "three".into() };
    assert_eq!(refusal(to_three), Refusal::NoHost { shard: "a".into(), host: "three".into() });
    let forget = |host: &str| Change::Forget { shard: "a".into(), host: host.into() };
    assert_eq!(refusal(forget("one")), Refusal::IsNeeded { shard: "a".into(), host: "one".into() });
    assert!(!changed(&map, forget("two")).shards["a"].hosts.contains_key("two"));
    assert_eq!(register("a", "one").apply(Some(&map)), Ok(None), "it is as it must be");
}

#[test]
fn a_move_goes_on_only_with_an_owner_whose_log_the_target_has_read() {
    let (three, four) = (Place::first_of(Epoch(3)), Place::first_of(Epoch(4)));
    let map = two_hosts();
    assert_eq!((map.duty("a", "one", three), map.turn("a", "two")), (Duty::Serve, Turn::Wait));
    let map = changed(&map, Change::Move { shard: "a".into(), to: "two".into() });
    assert_eq!(map.duty("a", "one", three), Duty::Prepare("two"));
    assert_eq!((map.turn("a", "two"), map.turn("a", "one")), (Turn::Approach { said: None }, Turn::Follow));
    let ready = |host: &str| Change::Ready { shard: "a".into(), host: host.into(), at: three };
    assert_eq!(ready("one").apply(Some(&map)), Ok(None), "it is not the target");
    let map = changed(&map, ready("two"));
    assert_eq!(map.duty("a", "one", three), Duty::Leave("two"));
    // The log was trimmed past the place at which the target was ready.
    assert_eq!(map.duty("a", "one", three.next()), Duty::Wait);
    let again = changed(&map, Change::Wait { shard: "a".into() });
    assert_eq!(again.duty("a", "one", three.next()), Duty::Prepare("two"));
    // The target was ready for an owner before.
    assert_eq!(map.duty("a", "one", four), Duty::Prepare("two"));
    assert_eq!(map.duty("a", "two", four), Duty::Arrived);
    assert!(map.takes("a", "two", "two") && !map.takes("a", "one", "two"));
    assert!(map.takes("a", "one", "unknown") && !map.takes("a", "two", "unknown"));
    let serves = |host: &str| Change::Serves { shard: "a".into(), host: host.into() };
    assert_eq!(serves("one").apply(Some(&map)), Ok(None), "a failover is no move");
    let done = changed(&map, serves("two"));
    assert_eq!((&*done.shards["a"].wanted, &done.shards["a"].moving), ("two", &None));
    assert_eq!(changed(&map, Change::Cancel { shard: "a".into() }).shards["a"].wanted, "one");
}

#[test]
fn a_place_without_a_map_or_with_a_damaged_one_is_told() {
    let memory = Arc::new(InMemory::new());
    run(async {
        let cluster = cluster(&memory, 0, 0);
        assert_eq!(cluster.look(None).await.unwrap(), None);
        assert!(matches!(cluster.change(add("a"), None).await, Err(Error::Map(Refusal::NoMap))));
        let map = cluster.change(Change::Begin, None).await.unwrap();
        let again = cluster.change(Change::Begin, None).await.unwrap();
        assert_eq!((again, cluster.look(Some(map.clone())).await.unwrap()), (map.clone(), Some(map)));
        let bucket = Bucket::of(memory.clone(), "here").unwrap();
        use brooklet_replica::Journal;
        BucketJournal::new(&bucket).create(Key::Map(2), "nothing".into()).await.unwrap();
        assert!(matches!(cluster.look(None).await, Err(Error::Damaged { .. })));
    });
}

/// As with credentials that may only read. In the old state it never ended, and asked 50 times a
/// second.
#[test]
fn a_change_ends_where_maps_can_be_read_and_not_written() {
    let faulty = Faulty::new(Arc::default(), Failing::ReadOnly, 1);
    let cluster = Cluster::new(BucketJournal::new(&Bucket::of(Arc::new(faulty), "here").unwrap()));
    run(async {
        let change = tokio::time::timeout(Duration::from_secs(60), cluster.change(Change::Begin, None));
        let error = change.await.expect("the change ends").map(drop).unwrap_err();
        assert!(matches!(error, Error::Bucket { .. }), "{error}");
    });
}
