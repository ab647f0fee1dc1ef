//! Long commands, portion by portion: whatever another client does between two portions, all is as
//! if the one had come before the other.

use std::collections::VecDeque;

use brooklet::Store;
use bytes::Bytes;

use super::{World, at, words};
use crate::redis::acl::Users;
use crate::redis::client::ClientId;
use crate::redis::engine::Engine;
use crate::redis::keys::Keyspace;
use crate::redis::settings::Settings;

/// A server without threads, and two clients of it.
pub(super) struct Desk {
    store: Store,
    pub(super) engine: Engine,
    pub(super) long: ClientId,
    pub(super) other: ClientId,
}

impl Desk {
    pub(super) fn on(store: Store) -> Self {
        let keys = Keyspace::new(store.clone(), 64 << 20, 1_000_000);
        let mut engine = Engine::new(keys, Users::new(None), Settings::default(), Default::default(), 1);
        engine.tick(at(1_000_000));
        let [long, other] = [(); 2].map(|()| engine.connect(String::new(), String::new()).unwrap());
        Self { store, engine, long, other }
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// The same store, with no key in memory.
    pub(super) fn again(self) -> Self {
        self.store.flush().unwrap();
        Self::on(self.store)
    }

    /// What a client has been told since the last call.
    pub(super) fn told(&mut self, id: ClientId) -> String {
        self.store.flush().unwrap();
        self.engine.note_durable();
        String::from_utf8(self.engine.take_ready(id).to_vec()).unwrap()
    }

    pub(super) fn say(&mut self, requests: &[Vec<Bytes>]) -> String {
        let mut requests: VecDeque<_> = requests.to_vec().into();
        while !requests.is_empty() || self.is_at_work(self.other) {
            self.engine.run(self.other, &mut requests, || true);
        }
        self.told(self.other)
    }

    pub(super) fn is_at_work(&mut self, id: ClientId) -> bool {
        self.engine.client(id).unwrap().work.is_some()
    }
}

/// A request, with a word for each number below `count`, made by `word`.
pub(super) fn many(start: &str, count: usize, word: impl Fn(usize) -> String) -> Vec<Bytes> {
    let mut request = words(start);
    (0..count).for_each(|n| request.extend(word(n).split(' ').map(|word| Bytes::from(word.to_owned()))));
    request
}

/// Numbers of keys, of elements of a list, of fields of a hash, and of entries of a stream.
pub(super) const KEYS: usize = 3_000;
pub(super) const ELEMENTS: usize = 9_000;
pub(super) const FIELDS: usize = 5_000;
const ENTRIES: usize = 5_000;

pub(super) fn keys() -> Vec<Vec<Bytes>> {
    vec![many("MSET", KEYS, |n| format!("key:{n} {}", n % 7))]
}

pub(super) fn list() -> Vec<Vec<Bytes>> {
    vec![
        many("RPUSH list", ELEMENTS, |n| (n * 7_919 % ELEMENTS).to_string()),
        many("LPUSH list", 10, |n| n.to_string()),
        words("RPUSH target x y z"),
    ]
}

pub(super) fn hash() -> Vec<Vec<Bytes>> {
    vec![many("HSET hash", FIELDS, |n| format!("field:{n} {}", "v".repeat(60)))]
}

pub(super) fn stream() -> Vec<Vec<Bytes>> {
    let add = |n| words(&format!("XADD stream {n} f {}", "v".repeat(100)));
    (1..=ENTRIES).map(add).chain([words("XGROUP CREATE stream g 0")]).collect()
}

pub(super) struct Case {
    /// The long command.
    pub(super) long: Vec<Vec<Bytes>>,
    /// What the other client does meanwhile.
    pub(super) others: Vec<Vec<Vec<Bytes>>>,
    /// What both look at in the end.
    pub(super) looks: Vec<Vec<Bytes>>,
    /// Whether no key is in memory at the beginning.
    pub(super) is_cold: bool,
}

/// What is to be seen of a case.
#[derive(Debug, PartialEq)]
struct Outcome {
    long: String,
    other: String,
    looks: String,
}

/// When the other client has its turn.
#[derive(Clone, Copy, PartialEq)]
enum Turn {
    /// Before the command, which runs at once.
    First,
    After(usize),
    /// After the command, which runs at once.
    Last,
}

/// Runs a case; also returns the number of portions. A transaction gives no turns: a command in it
/// runs at once.
fn run(case: &Case, other: &[Vec<Bytes>], turn: Turn, set_up: &[Vec<Bytes>]) -> (Outcome, usize) {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    set_up.chunks(100).for_each(|requests| drop(desk.say(requests)));
    if case.is_cold {
        desk = desk.again();
    }
    let is_wrapped = case.long.len() == 1 && !matches!(turn, Turn::After(_));
    let wrapped = |request: &Vec<Bytes>| vec![words("MULTI"), request.clone(), words("EXEC")];
    let long = if is_wrapped { wrapped(&case.long[0]) } else { case.long.clone() };
    let mut requests: VecDeque<_> = long.into();
    // Transactions are queued before.
    while requests.len() > 1 {
        desk.engine.run(desk.long, &mut requests, || false);
    }
    let mut told = if turn == Turn::First { desk.say(other) } else { String::new() };
    let mut portions = 0;
    while !requests.is_empty() || desk.is_at_work(desk.long) {
        desk.engine.run(desk.long, &mut requests, || false);
        portions += 1;
        if turn == Turn::After(portions) {
            told = desk.say(other);
        }
    }
    let mut long = desk.told(desk.long);
    if is_wrapped {
        long = long.strip_prefix("+OK\r\n+QUEUED\r\n*1\r\n").unwrap().to_owned();
    }
    if turn == Turn::Last {
        told = desk.say(other);
    }
    let mut looks = desk.say(&case.looks);
    // What is on the disk is the same.
    let mut desk = desk.again();
    let later = desk.say(&case.looks);
    assert_eq!(looks.len(), later.len());
    looks += &later;
    (Outcome { long: sorted(&long), other: told, looks: sorted(&looks) }, portions)
}

pub(super) fn key(n: usize) -> String {
    format!("key:{n}")
}

/// The lines in order, because the order of keys is nobody's business.
fn sorted(text: &str) -> String {
    let mut lines: Vec<&str> = text.split("\r\n").collect();
    lines.sort_unstable();
    lines.join(" ")
}

/// Runs cases that begin with what some requests make.
pub(super) fn check(set_up: &[Vec<Bytes>], cases: &[Case]) {
    for case in cases {
        let shown: Vec<&[u8]> = case.long.last().unwrap().iter().take(9).map(|word| &word[..]).collect();
        let shown = String::from_utf8(shown.join(&b' ')).unwrap();
        let (_, portions) = run(case, &[], Turn::After(usize::MAX), set_up);
        assert!(portions > 1, "{shown} ran in {portions} portions");
        for other in &case.others {
            let [before, after] = [Turn::First, Turn::Last].map(|turn| run(case, other, turn, set_up).0);
            for turn in [1, portions / 2, portions - 1] {
                let (outcome, _) = run(case, other, Turn::After(turn), set_up);
                assert!(
                    outcome == before || outcome == after,
                    "{shown}, and {other:?} after {turn} of {portions} portions: {}",
                    difference(&outcome, &before, &after)
                );
            }
        }
    }
}

fn difference(outcome: &Outcome, before: &Outcome, after: &Outcome) -> String {
    let cut = |text: &str| text.chars().take(200).collect::<String>();
    let show =
        |o: &Outcome| format!("{} | {} | {} ({})", cut(&o.long), o.other, cut(&o.looks), o.looks.len());
    format!("\n{}\nis neither\n{}\nnor\n{}", show(outcome), show(before), show(after))
}

pub(super) fn case(long: Vec<Bytes>, others: &[&str], looks: &[&str]) -> Case {
    let others = others.iter().map(|other| other.split("; ").map(words).collect()).collect();
    let looks = looks.iter().map(|look| words(look)).collect();
    Case { long: vec![long], others, looks, is_cold: false }
}

#[test]
fn walks_are_of_one_moment() {
    let last = format!("key:{}", KEYS - 1);
    let rename = format!("RENAME key:0 {last}x");
    check(
        &[keys(), list()].concat(),
        &[
            case(words("KEYS *"), &[&rename, "FLUSHALL"], &["DBSIZE"]),
            case(words("DBSIZE"), &["SET new 1; DEL key:1 key:2", "FLUSHALL"], &["DBSIZE"]),
            case(
                words("FLUSHALL"),
                &["SET key:0 new; RPUSH key:2999 new", &format!("MGET key:0 {last}"), "RENAME list other"],
                &["KEYS *", "DBSIZE", "MGET key:0 key:1", "EXISTS list other"],
            ),
        ],
    );
}

#[test]
fn look_ups_of_many_keys_are_of_one_moment() {
    let change = format!("MSET key:0 new key:{} new", KEYS - 1);
    check(
        &keys(),
        &[
            case(many("MGET", KEYS, key), &[&change, "FLUSHALL"], &["MGET key:0 key:1"]),
            case(many("EXISTS other", KEYS, key), &["RENAME key:0 other", "DEL key:1 key:2998"], &["DBSIZE"]),
            case(
                many("DEL", KEYS, key),
                &["SET key:0 new", "MGET key:0 key:2999", "RENAME key:0 other"],
                &["KEYS *"],
            ),
            case(
                many("MSET", KEYS, |n| format!("key:{n} new")),
                &["MGET key:0 key:2999", "DEL key:0", "MSET key:0 other key:2999 other"],
                &["MGET key:0 key:1 key:2999", "DBSIZE"],
            ),
            case(
                many("MSETNX", KEYS, |n| format!("another:{n} new")),
                &["SET another:2999 1", "SET another:0 1; DEL another:0"],
                &["MGET another:0 another:2999", "DBSIZE"],
            ),
        ],
    );
}

#[test]
fn replies_of_streams_are_of_one_moment() {
    let changes: &[&str] =
        &["XADD stream 100000 f v", "XDEL stream 5 4999; XADD stream 100000 f v", "DEL stream"];
    check(
        &stream(),
        &[
            case(words("XRANGE stream - +"), changes, &["XLEN stream"]),
            case(words("XREVRANGE stream + -"), changes, &["XLEN stream"]),
            case(words("XREAD STREAMS stream 0"), changes, &["XLEN stream"]),
            case(
                words("XREADGROUP GROUP g c STREAMS stream >"),
                &[
                    "XADD stream 100000 f v",
                    "XREADGROUP GROUP g d STREAMS stream >",
                    "XGROUP DESTROY stream g",
                ],
                &["XINFO GROUPS stream"],
            ),
        ],
    );
}

#[test]
fn deletions_of_many_entries_are_of_one_moment() {
    let looks: &[&str] = &["XRANGE stream - +", "XINFO STREAM stream"];
    let changes: &[&str] = &[
        "XADD stream 100000 f v",
        "XDEL stream 1 2 4985",
        "XTRIM stream MAXLEN 4995",
        "XLEN stream",
        "DEL stream",
        "SET stream text",
    ];
    let first = many("XDEL stream", ENTRIES - 10, |n| (n + 1).to_string());
    let odd = many("XDEL stream", ENTRIES / 2, |n| (2 * n + 1).to_string());
    check(&stream(), &[case(first, changes, looks), case(odd, &changes[1..2], looks)]);
}

/// The log of a stream begins with an entry that is not deleted, or its space would not come back.
#[test]
fn deleted_entries_at_the_front_leave_the_log() {
    for count in [0, 1, 2, 3, 1_000, ENTRIES - 1] {
        let mut desk = Desk::on(Store::in_memory(1).unwrap());
        desk.say(&stream());
        let delete = many(&format!("XDEL stream {}", ENTRIES - 5), count, |n| (n + 1).to_string());
        desk.say(&[delete]);
        let id = desk.engine.keys.open(b"0", b"stream").unwrap();
        assert_eq!(desk.engine.keys.stream(id).unwrap().seqs().start, count as u64);
        let looks = desk.say(&[words("XRANGE stream - + COUNT 1")]);
        assert!(looks.starts_with(&format!(
            "*1\r\n*2\r\n${}\r\n{}-0\r\n",
            (count + 1).to_string().len() + 2,
            count + 1
        )));
    }
}

#[test]
fn a_deletion_of_entries_that_others_disturb_again_and_again_ends_all_the_same() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    desk.say(&stream());
    let delete = many("XDEL stream", ENTRIES, |n| (n + 1).to_string());
    desk.engine.run(desk.long, &mut VecDeque::from([delete]), || false);
    let mut portions = 0;
    while desk.is_at_work(desk.long) {
        portions += 1;
        assert_eq!(desk.say(&[words(&format!("XDEL stream {portions}"))]), ":1\r\n");
        desk.engine.run(desk.long, &mut VecDeque::new(), || false);
        assert!(portions < 100);
    }
    assert!(portions >= 4, "{portions}");
    assert_eq!(desk.told(desk.long), format!(":{}\r\n", ENTRIES - portions));
    assert_eq!(desk.say(&[words("XLEN stream")]), ":0\r\n");
}

#[test]
fn sorts_are_of_one_moment() {
    let changes: &[&str] =
        &["RPUSH list 5 6 7", "MSET key:0 900 key:2999 900", "DEL list", "RPUSH target new"];
    let looks: &[&str] = &["LRANGE target 0 -1", "LLEN list"];
    let sort = |options: &str| case(words(&format!("SORT list{options}")), changes, looks);
    let set_up = [keys(), list()].concat();
    check(
        &set_up,
        &[
            sort(" BY key:* GET # GET key:* LIMIT 100 8000"),
            sort(" STORE target"),
            sort(" DESC BY key:* GET # GET key:* STORE target"),
        ],
    );
}

#[test]
fn changes_of_many_fields_are_of_one_moment() {
    let looks: &[&str] = &["HMGET hash field:0 field:1 field:4999", "HLEN hash", "HGETALL new"];
    let changes: &[&str] = &[
        "HMGET hash field:0 field:4999",
        "HSET hash field:0 other",
        "HDEL hash field:0",
        "DEL hash",
        "SET new 1",
    ];
    let put = |key: &str, times| many(&format!("HSET {key}"), FIELDS, |n| format!("field:{} {n}", n % times));
    check(
        &hash(),
        &[
            case(put("hash", FIELDS), changes, looks),
            case(put("hash", 100), changes, looks),
            case(put("new", FIELDS), changes, &["HLEN new", "HLEN hash"]),
            case(put("new", 10), &["HSET new field:1 other", "SET new 1"], looks),
        ],
    );
}

#[test]
fn a_hash_that_is_loaded_is_of_one_moment() {
    let changes: &[&str] =
        &["HSET hash field:0 other", "HDEL hash field:0", "DEL hash", "FLUSHALL", "SET hash 1"];
    let cold = |request: &str, looks: &[&str]| {
        let case = case(words(request), changes, looks);
        Case { is_cold: true, ..case }
    };
    check(
        &[hash(), list()].concat(),
        &[
            Case {
                others: vec![vec![words("HSET hash field:0 other")]],
                ..cold("HGETALL hash", &["HLEN hash"])
            },
            cold("HSET hash field:0 new field:new new", &["HLEN hash", "HGET hash field:0", "EXISTS list"]),
            Case {
                others: vec![vec![words("HDEL hash field:0")]],
                ..cold("RENAME hash target", &["HLEN hash", "HLEN target"])
            },
        ],
    );
}

/// A command that has changed something does not begin again.
#[test]
fn a_command_that_meets_a_long_hash_late_loads_it_at_once() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    desk.say(&[hash(), list()].concat());
    let mut desk = desk.again();
    assert_eq!(desk.say(&[words("DEL list hash")]), ":2\r\n");
}

#[test]
fn a_hash_that_is_loaded_expires_as_before() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    desk.say(&[hash(), vec![words("PEXPIREAT hash 2000000")]].concat());
    let mut desk = desk.again();
    let asks = ["HLEN hash", "PEXPIRETIME hash"].map(words);
    assert_eq!(desk.say(&asks), format!(":{FIELDS}\r\n:2000000\r\n"));
}

/// The hash was changed, and has left memory, while another client loaded it.
#[test]
fn a_hash_that_is_loaded_does_not_replace_a_newer_one() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    desk.say(&hash());
    let mut desk = desk.again();
    let long = desk.long;
    desk.engine.run(long, &mut [words("HLEN hash")].into(), || false);
    assert!(desk.is_at_work(long));
    desk.say(&[words("HSET hash field:0 new other new")]);
    (0..4).for_each(|_| assert!(desk.engine.keys.age_cache(usize::MAX)));
    assert_eq!(desk.engine.keys.cached().0, 0);
    desk.engine.run(long, &mut VecDeque::new(), || true);
    assert_eq!(desk.told(long), format!(":{}\r\n", FIELDS + 1));
    assert_eq!(desk.say(&[words("HGET hash field:0")]), "$3\r\nnew\r\n");
}

#[test]
fn a_transaction_of_many_commands_is_of_one_moment() {
    let changes: &[&str] = &["MGET key:0 key:2999", "SET key:5 other", "DEL key:0 key:2999", "FLUSHALL"];
    let mut long = vec![words("MULTI")];
    long.extend((0..KEYS).map(|n| words(&format!("SET key:{n} new"))));
    long.extend([words("MGET key:0 key:5 key:2999"), words("EXEC")]);
    let case = case(words("EXEC -"), changes, &["MGET key:0 key:5 key:2999", "DBSIZE"]);
    check(&keys(), &[Case { long: long.clone(), ..case }]);
    // A watched key that changes while the keys are loaded.
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    let mut requests: VecDeque<_> = [vec![words("WATCH watched")], long].concat().into();
    while requests.len() > 1 {
        desk.engine.run(desk.long, &mut requests, || false);
    }
    desk.engine.run(desk.long, &mut requests, || false);
    assert!(desk.is_at_work(desk.long));
    desk.say(&[words("SET watched 1")]);
    desk.engine.run(desk.long, &mut requests, || true);
    assert!(desk.told(desk.long).ends_with("+QUEUED\r\n*-1\r\n"));
    assert_eq!(desk.say(&[words("EXISTS key:0")]), ":0\r\n");
}

/// In the old state each key that the transaction looked at was deleted in its commit, which a
/// small ring refused.
#[test]
fn a_transaction_looks_at_many_keys_that_a_flush_deletes() {
    let mut world = World::new(1, 1 << 20, None);
    let [long, other] = [(); 2].map(|()| world.engine.connect(String::new(), String::new()).unwrap());
    let name = |n| format!("key:{n}:{}", "k".repeat(500));
    for n in 0..1_500 {
        world.engine.run(other, &mut [words(&format!("SET {} 1", name(n)))].into(), || true);
    }
    let mut flush: VecDeque<_> = [words("FLUSHALL")].into();
    world.engine.run(long, &mut flush, || false);
    let exists = many("EXISTS", 1_500, name);
    let set = words(&format!("SET {} 2", name(7)));
    world.engine.run(other, &mut [words("MULTI"), exists, set, words("EXEC")].into(), || true);
    while world.engine.client(long).unwrap().work.is_some() {
        world.engine.run(long, &mut flush, || false);
    }
    world.engine.run(other, &mut [words("DBSIZE")].into(), || true);
    world.store.flush().unwrap();
    world.engine.note_durable();
    let told = String::from_utf8(world.engine.take_ready(other).to_vec()).unwrap();
    assert!(told.ends_with("*2\r\n:0\r\n+OK\r\n:1\r\n"), "{}", &told[told.len() - 200..]);
}

/// A flush within the transaction itself is undone with it.
#[test]
fn a_flush_in_a_transaction_that_is_refused_deletes_nothing() {
    let mut world = World::new(1, 1 << 20, None);
    let id = world.engine.connect(String::new(), String::new()).unwrap();
    world.engine.run(id, &mut [words("MSET a 1 b 2")].into(), || true);
    let large = words(&format!("RPUSH l {}", "x".repeat(50_000)));
    let requests = [
        words("MULTI"),
        words("FLUSHALL"),
        words("MGET a b"),
        large.clone(),
        large.clone(),
        large,
        words("EXEC"),
    ];
    world.engine.run(id, &mut requests.to_vec().into(), || true);
    world.engine.run(id, &mut [words("MGET a b")].into(), || true);
    world.store.flush().unwrap();
    world.engine.note_durable();
    let told = String::from_utf8(world.engine.take_ready(id).to_vec()).unwrap();
    assert!(told.contains("-ERR a commit of ") && told.ends_with("*2\r\n$1\r\n1\r\n$1\r\n2\r\n"), "{told}");
}

/// In the old state the one record of all deliveries was longer than a payload may be.
#[test]
fn a_group_is_given_more_entries_than_one_record_takes() {
    const LEN: usize = 90_000;
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    for portion in 0..LEN / 100 {
        let add = |n| words(&format!("XADD x {} f v", portion * 100 + n + 1));
        desk.say(&(0..100).map(add).collect::<Vec<_>>());
    }
    desk.say(&[words("XGROUP CREATE x g 0")]);
    let told = desk.say(&[words("XREADGROUP GROUP g c STREAMS x >")]);
    assert!(told.ends_with(&format!("{LEN}-0\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n")), "{}", &told[..100]);
    let mut desk = desk.again();
    assert!(desk.say(&[words("XPENDING x g")]).starts_with(&format!("*4\r\n:{LEN}\r\n")));
    let ids = many("XACK x g", LEN - 1, |n| format!("{}-0", n + 1));
    assert_eq!(desk.say(&[ids]), format!(":{}\r\n", LEN - 1));
    let mut desk = desk.again();
    assert!(desk.say(&[words("XPENDING x g")]).starts_with("*4\r\n:1\r\n"));
}

/// In the old state each of them wrote the end anew, which a small ring refused.
#[test]
fn ten_changes_of_a_long_list_in_a_transaction_write_its_end_once() {
    let mut world = World::new(1, 1 << 20, None);
    let id = world.engine.connect(String::new(), String::new()).unwrap();
    let push = |end| many(end, 1_000, |n| format!("element:{n}"));
    world.engine.run(id, &mut [push("RPUSH l"), push("LPUSH l")].into(), || true);
    for at in [700, 1_250] {
        let set = |n| words(&format!("LSET l {} new:{n}", at + n % 2));
        let requests = [vec![words("MULTI")], (0..10).map(set).collect(), vec![words("EXEC")]].concat();
        world.engine.run(id, &mut requests.into(), || true);
        let look = [words(&format!("LRANGE l {at} {}", at + 1))];
        world.engine.run(id, &mut look.into(), || true);
        world.store.flush().unwrap();
        world.engine.note_durable();
        let told = String::from_utf8(world.engine.take_ready(id).to_vec()).unwrap();
        assert!(told.ends_with("+OK\r\n*2\r\n$5\r\nnew:8\r\n$5\r\nnew:9\r\n"), "{told}");
    }
}

#[test]
fn changes_of_one_list_in_a_transaction_come_to_the_same_as_alone() {
    let set_up = [many("RPUSH l", 60, |n| n.to_string()), many("LPUSH l", 60, |n| format!("l{n}"))];
    let mut requests = Vec::new();
    for n in 0..40 {
        let (at, place) = (n * 7 % 100, n * 13 % 110);
        let change = match n % 8 {
            0 | 1 => format!("LSET l {place} new:{n}"),
            2 => format!("LSET l {} last:{n}", -1 - n % 20),
            3 => format!("LINSERT l BEFORE {at} in:{n}"),
            4 => "RPOP l 3".into(),
            5 => format!("RPUSH l right:{n} right"),
            6 => format!("LREM l {} right", n % 3 - 1),
            _ => format!("LTRIM l 1 {}", -2 + n % 2),
        };
        requests.extend([words(&change), words("LRANGE l 0 -1")]);
    }
    let mut alone = Desk::on(Store::in_memory(1).unwrap());
    alone.say(&set_up);
    let told: Vec<String> = requests.iter().map(|request| alone.say(std::slice::from_ref(request))).collect();
    for together in [3, 20, 80] {
        let mut desk = Desk::on(Store::in_memory(1).unwrap());
        desk.say(&set_up);
        for (requests, told) in requests.chunks(together).zip(told.chunks(together)) {
            let all = [&[words("MULTI")][..], requests, &[words("EXEC")]].concat();
            assert!(desk.say(&all).ends_with(&format!("*{}\r\n{}", told.len(), told.concat())));
        }
        let mut desk = desk.again();
        assert_eq!(desk.say(&[words("LRANGE l 0 -1")]), told[told.len() - 1]);
    }
}

/// The log of the right side exists after the transaction, or the deletion would be refused.
#[test]
fn elements_that_come_and_go_in_one_transaction_leave_a_list_as_it_should_be() {
    let mut desk = Desk::on(Store::in_memory(1).unwrap());
    let requests =
        ["MULTI", "LPUSH l a", "RPUSH l b c", "RPOP l 2", "EXEC", "LRANGE l 0 -1", "DEL l", "EXISTS l"];
    let told = desk.say(&requests.map(words));
    assert!(told.ends_with("*1\r\n$1\r\na\r\n:1\r\n:0\r\n"), "{told}");
}
