//! The decoder of entries takes any bytes; entries read back.

use proptest::prelude::*;

use super::*;

fn bytes() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..20).prop_map(Bytes::from)
}

fn meta() -> impl Strategy<Value = Meta> {
    let request = prop::option::of((prop::collection::vec(any::<u8>(), 1..20), any::<u64>()));
    (1000..u64::MAX, any::<u64>(), bytes(), request).prop_map(|(version, time_ms, author, request)| {
        let request = request.map(|(id, content)| UsedId { id: id.into(), content, version });
        Meta { version, time_ms, author, request }
    })
}

fn snapshot() -> impl Strategy<Value = (SnapshotEntry, u64)> {
    let marks = prop::collection::vec((0..50_u64, 1..50_u64), 0..8);
    let ids =
        prop::collection::vec((prop::collection::vec(any::<u8>(), 1..9), any::<u64>(), 1..50_u64), 0..8);
    (meta(), bytes(), any::<u32>(), any::<u64>(), marks, ids, bytes()).prop_map(
        |(meta, model, model_version, history, back, used, state)| {
            let (seq, mut version, mut at) = (1_000_000, meta.version, 1_000_000);
            let mut marks = Vec::new();
            for (versions, entries) in back {
                (version, at) = (version - versions, at - entries);
                marks.insert(0, Mark { version, seq: at });
            }
            let mut ids = Vec::new();
            let mut version = meta.version + 1;
            for (id, content, versions) in used {
                version -= versions;
                ids.insert(0, UsedId { id: id.into(), content, version });
            }
            let created = meta.version - 500;
            let snapshot = SnapshotEntry {
                meta,
                is_creation: false,
                created,
                model,
                model_version,
                history,
                marks,
                ids,
                state,
            };
            (snapshot, seq)
        },
    )
}

proptest! {
    #[test]
    fn updates_read_back(meta in meta(), back in prop::option::of(0..1000_u64), undo in prop::option::of(bytes()), change in bytes()) {
        let entry = UpdateEntry { meta, back, undo, change };
        prop_assert_eq!(DocEntry::decode(7, &entry.encode().into()), Ok(DocEntry::Update(entry)));
    }

    #[test]
    fn snapshots_read_back((entry, seq) in snapshot()) {
        prop_assert_eq!(DocEntry::decode(seq, &entry.encode(seq).into()), Ok(DocEntry::Snapshot(entry)));
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(kind in 0..4_u8, bytes in prop::collection::vec(any::<u8>(), 0..200), seq in any::<u64>()) {
        let bytes = [&[FORMAT << 4 | kind], &bytes[..]].concat();
        if let Ok(entry) = DocEntry::decode(seq, &bytes.clone().into()) {
            let again = match &entry {
                DocEntry::Update(update) => update.encode(),
                DocEntry::Snapshot(snapshot) => snapshot.encode(seq),
            };
            prop_assert_eq!(again, bytes, "an entry has one encoding");
        }
    }

    #[test]
    fn damaged_entries_are_decoded_or_refused((entry, seq) in snapshot(), at in any::<prop::sample::Index>(), to in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let mut bytes = entry.encode(seq);
        let at = at.index(bytes.len());
        bytes[at] = to;
        bytes.truncate(1 + cut.index(bytes.len()));
        if let Ok(DocEntry::Snapshot(found)) = DocEntry::decode(seq, &bytes.clone().into()) {
            // An element of a list takes two bytes at least.
            prop_assert!((found.marks.len() + found.ids.len()) * 2 <= bytes.len());
        }
    }
}

#[test]
fn counts_that_the_bytes_cannot_hold_are_refused() {
    let mut bytes = vec![FORMAT << 4 | SNAPSHOT, 9, 0, 0, 0, 0, 0, 1, 0];
    put_number(&mut bytes, u64::MAX);
    let found = DocEntry::decode(9, &bytes.into());
    assert!(found.unwrap_err().starts_with("it ends after"));
}

#[test]
fn later_formats_and_kinds_are_refused_by_name() {
    let of = |first| DocEntry::decode(0, &Bytes::from(vec![first, 1, 0, 0, 0, 0, 0])).unwrap_err();
    assert!(of(0x21).contains("format 2"), "{}", of(0x21));
    assert!(of(0x14).contains("kind is 4"), "{}", of(0x14));
    assert!(DocEntry::decode(0, &Bytes::new()).is_err());
}
