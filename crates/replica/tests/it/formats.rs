//! The objects' formats: golden bytes, round trips, and refusal of all that is damaged.
//!
//! A golden file is made by running with `GOLDEN=new`; old ones never change.

use std::path::Path;

use brooklet_replica::{
    Claim, Cuts, Cutter, Defect, Drawn, Epoch, Kind, Map, Mark, Moving, Object, Place, Record, Shard,
    StoreId, Writer, blocks,
};
use bytes::Bytes;

const STORE: StoreId = StoreId(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
const DRAWN: Drawn = Drawn(0xfeed_beef_0000_0000_0000_0000_0000_0042);

fn place(epoch: u64, number: u64) -> Place {
    Place { epoch: Epoch(epoch), number }
}

fn object(kind: Kind) -> Object<Bytes> {
    let by = if kind == Kind::Fence { Epoch(9) } else { Epoch(5) };
    let payload = Bytes::from_static(if kind == Kind::Blocks { b"\x03\0\0\0abc\x01\0\0\0d" } else { b"" });
    Object { place: place(5, 77), by, drawn: DRAWN, kind, begin: 1000, end: 1234, previous: 99, payload }
}

fn claim() -> Claim {
    let writer = Writer { store: STORE, epoch: Epoch(5), drawn: DRAWN };
    Claim { writer, owner: "host ä".into(), address: "10.0.0.5:6379".into() }
}

fn record() -> Record {
    Record {
        number: 12,
        drawn: DRAWN,
        mark: Mark { place: place(5, 78), lsn: 1234, chain: 4321 },
        backup: 40,
        trimmed: place(3, 7),
        ends: [(Epoch(3), 9), (Epoch(4), 0)].into(),
    }
}

fn map() -> Map {
    let text = |text: &str| text.to_owned();
    let hosts = || [(text("host-1"), text("http://10.0.0.1:8379")), (text("host-2"), String::new())].into();
    let moving = Some(Moving { to: text("host-2"), ready: Some(place(5, 77)) });
    let shards = [
        (text("a"), Shard { wanted: text("host-1"), hosts: hosts(), moving }),
        (text("b"), Shard { wanted: String::new(), ..Shard::default() }),
    ];
    let spaces = [(text("jobs"), text("b"))].into();
    Map { id: STORE, number: 8, drawn: DRAWN, shards: shards.into(), spaces, default: text("a") }
}

/// Compares bytes with those of a golden file.
fn golden(name: &str, data: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("GOLDEN").is_some() && !path.exists() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, data).unwrap();
    }
    assert!(std::fs::read(&path).unwrap() == data, "{name} is not what version 1 writes");
}

#[test]
fn the_formats_stay_as_they_are() {
    for (kind, name) in
        [(Kind::Blocks, "blocks"), (Kind::Fence, "fence"), (Kind::Beat, "beat"), (Kind::Handover, "handover")]
    {
        let data = object(kind).encode(STORE);
        golden(&format!("v1.{name}"), &data);
        assert_eq!(Object::decode(STORE, place(5, 77), &data).unwrap(), object(kind));
    }
    golden("v1.claim", &claim().encode());
    assert_eq!(Claim::decode(STORE, Epoch(5), &claim().encode()).unwrap(), claim());
    golden("v1.map", &map().encode());
    assert_eq!(Map::decode(STORE, 8, &map().encode()).unwrap(), map());
    golden("v1.record", &record().encode(STORE));
    assert_eq!(Record::decode(STORE, 12, &record().encode(STORE)).unwrap(), record());
}

/// Each decoder, over bytes that may be damaged. Returns whether they were taken.
type Decode = fn(&Bytes) -> Result<(), Defect>;

fn all() -> Vec<(Bytes, Decode)> {
    let decode_object: Decode = |data| Object::decode(STORE, place(5, 77), data).map(drop);
    vec![
        (object(Kind::Blocks).encode(STORE), decode_object),
        (object(Kind::Fence).encode(STORE), decode_object),
        (claim().encode(), |data| Claim::decode(STORE, Epoch(5), data).map(drop)),
        (record().encode(STORE), |data| Record::decode(STORE, 12, data).map(drop)),
        (map().encode(), |data| Map::decode(STORE, 8, data).map(drop)),
    ]
}

#[test]
fn damaged_objects_are_refused() {
    for (data, decode) in all() {
        assert_eq!(decode(&data), Ok(()));
        for bit in 0..8 * data.len() {
            let mut flipped = data.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&flipped.into()).is_err(), "bit {bit}");
        }
        for len in 0..data.len() {
            assert!(decode(&data.slice(..len)).is_err(), "{len} bytes");
        }
        let longer = [&data[..], b"x"].concat();
        assert!(decode(&longer.into()).is_err());
    }
}

#[test]
fn a_later_version_is_refused_by_name() {
    for (data, decode) in all() {
        let mut later = data.to_vec();
        later[8] = 2;
        assert_eq!(decode(&later.into()), Err(Defect::Version(2)));
    }
}

#[test]
fn objects_of_other_places_and_stores_are_refused() {
    let data = object(Kind::Blocks).encode(STORE);
    for other in [place(5, 78), place(6, 77)] {
        assert!(matches!(Object::decode(STORE, other, &data), Err(Defect::Damaged(_))));
    }
    assert!(Claim::decode(STORE, Epoch(6), &claim().encode()).is_err());
    assert!(Record::decode(STORE, 13, &record().encode(STORE)).is_err());
    let other = StoreId(1);
    assert_eq!(Object::decode(other, place(5, 77), &data), Err(Defect::OtherStore(STORE)));
    assert_eq!(Claim::decode(other, Epoch(5), &claim().encode()), Err(Defect::OtherStore(STORE)));
    assert_eq!(Record::decode(other, 12, &record().encode(STORE)), Err(Defect::OtherStore(STORE)));
}

/// Bytes that are whole, and make no sense.
#[test]
fn objects_that_contradict_themselves_are_refused() {
    let refused = |object: Object<Bytes>| {
        let decoded = Object::decode(STORE, object.place, &object.encode(STORE));
        assert!(matches!(decoded, Err(Defect::Damaged(_))), "{object:?}");
    };
    refused(Object { by: Epoch(9), ..object(Kind::Blocks) });
    refused(Object { by: Epoch(4), ..object(Kind::Blocks) });
    refused(Object { by: Epoch(5), ..object(Kind::Fence) });
    refused(Object { begin: 2000, ..object(Kind::Blocks) });
    let refused = |record: Record| {
        let decoded = Record::decode(STORE, 12, &record.encode(STORE));
        assert!(matches!(decoded, Err(Defect::Damaged(_))), "{record:?}");
    };
    refused(Record { trimmed: place(6, 0), ..record() });
    refused(Record { ends: [(Epoch(3), 9)].into(), ..record() });
    refused(Record { ends: [(Epoch(3), 9), (Epoch(5), 0)].into(), ..record() });
    refused(Record { trimmed: place(4, 0), ..record() });
}

#[test]
fn a_long_name_is_cut_between_characters() {
    let long = Claim { owner: "ä".repeat(3000) + "x", ..claim() };
    let read = Claim::decode(STORE, Epoch(5), &long.encode()).unwrap();
    assert_eq!(read, Claim { owner: "ä".repeat(2048), ..claim() });
}

#[test]
fn blocks_come_out_of_a_cut_as_they_went_in() {
    let millis = std::time::Duration::from_millis;
    let mut cutter = Cutter::new(Cuts { time: millis(10), bytes: 20 });
    assert_eq!((cutter.due(), cutter.cut(millis(99))), (None, None));
    cutter.push(3, 5, b"abc", millis(100));
    cutter.push(5, 9, b"", millis(105));
    assert_eq!((cutter.due(), cutter.cut(millis(109))), (Some(millis(110)), None));
    let cut = cutter.cut(millis(110)).unwrap();
    assert_eq!((cut.begin, cut.end), (3, 9));
    assert_eq!(blocks(&cut.payload).unwrap(), [&b"abc"[..], b""]);
    // So many bytes are cut at once.
    cutter.push(9, 10, &[7; 16], millis(200));
    let cut = cutter.cut(millis(200)).unwrap();
    assert_eq!(blocks(&cut.payload).unwrap(), [&[7; 16][..]]);
    assert!(cutter.flush().is_none());
    for len in [1, 3, 5, 19] {
        assert!(blocks(&cut.payload.slice(..len)).is_err());
    }
}

/// A request for a payload must end in time on a slow link, too.
#[test]
fn a_payload_has_no_more_bytes_than_a_cut_or_is_one_block() {
    let millis = std::time::Duration::from_millis;
    let mut cutter = Cutter::new(Cuts { time: millis(10), bytes: 20 });
    // Each takes 4 bytes more.
    for (at, len) in [6, 6, 6, 40, 1, 1].into_iter().enumerate() {
        let begin = at as u64;
        cutter.push(begin, begin + 1, &vec![7; len], millis(100 + begin));
    }
    for expected in [(0, 2, 20), (2, 3, 10), (3, 4, 44)] {
        let cut = cutter.cut(millis(105)).unwrap();
        assert_eq!((cut.begin, cut.end, cut.payload.len()), expected);
    }
    assert_eq!((cutter.cut(millis(105)), cutter.due()), (None, Some(millis(114))));
    let last = cutter.flush().unwrap();
    assert_eq!((last.begin, last.end, cutter.bytes()), (4, 6, 0));
    assert!(cutter.flush().is_none());
}

/// A client that waits for each object appends again once it is created. In the old state the time
/// of that request came on top of each cut.
#[test]
fn cuts_of_a_busy_store_keep_their_pace() {
    let millis = std::time::Duration::from_millis;
    let mut cutter = Cutter::new(Cuts { time: millis(10), bytes: 100 });
    let mut block = |at: u64, due: u64| {
        cutter.push(at, at + 1, b"x", millis(at));
        assert_eq!(cutter.due(), Some(millis(due)), "of the block at {at}");
        assert!(cutter.cut(millis(due - 1)).is_none() && cutter.cut(millis(due)).is_some());
    };
    block(100, 110);
    block(113, 120);
    block(129, 130);
    // The store rested.
    block(140, 150);
    block(200, 210);
}
