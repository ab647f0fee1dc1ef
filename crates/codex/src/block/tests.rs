//! Compares blocks with a set, and tests blocks that no builder makes.

use proptest::prelude::*;

use super::*;

fn build(keys: &std::collections::BTreeSet<Vec<u8>>) -> Vec<u8> {
    let mut builder = BlockBuilder::default();
    keys.iter().for_each(|key| builder.add(key, &[b"=", &key[..]].concat()));
    let len = builder.len();
    assert_eq!(builder.finish().len(), len);
    builder.data
}

/// Does every kind of move. A move may fail, but must not panic.
fn roam(data: Vec<u8>, key: &[u8]) -> Result<()> {
    let (block, mut spot) = (Block::new(data.into(), 0)?, Spot::default());
    let _ = block.check(|spot| spot.ptr().map(drop));
    spot.enter(block);
    for aim in [Aim::First, Aim::AtMost(key), Aim::Last] {
        if spot.aim(aim).is_ok() {
            let _ = (spot.stored(), spot.ptr(), spot.key());
            while let Ok(true) = spot.back() {}
            while let Ok(true) = spot.step() {}
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn seeks_like_a_set(keys in proptest::collection::btree_set(proptest::collection::vec(0u8..3, 0..6), 1..120),
                        key in proptest::collection::vec(0u8..3, 0..6)) {
        let (block, mut spot) = (Block::new(build(&keys).into(), 0).unwrap(), Spot::default());
        block.check(|_| Ok(())).unwrap();
        spot.enter(block);
        let expected = keys.range(..=key.clone()).next_back();
        prop_assert_eq!(spot.aim(Aim::AtMost(&key)).unwrap(), expected.is_some());
        prop_assert_eq!(spot.key(), expected.or(keys.first()).unwrap().as_slice());
        prop_assert_eq!(&spot.stored().bytes[1..], spot.key());
    }

    #[test]
    fn hostile_blocks_do_no_harm(keys in proptest::collection::btree_set(any::<Vec<u8>>(), 1..60), key: Vec<u8>,
                                 spots in proptest::collection::vec(any::<(u16, u8)>(), 0..6)) {
        let mut data = build(&keys);
        for (at, byte) in spots {
            // half of them among the restart points
            let at = at as usize % if byte % 2 == 0 { data.len() } else { data.len().min(20) };
            let at = data.len() - 1 - at;
            data[at] = byte / 2;
        }
        let _ = roam(data, &key);
    }

    #[test]
    fn any_bytes_do_no_harm(data: Vec<u8>, key: Vec<u8>) {
        let _ = roam(data, &key);
    }
}

/// Creates a block of these bytes, followed by its restart points.
fn block(entries: &[u8], restarts: &[u32]) -> Result<Block> {
    let mut data = entries.to_vec();
    for restart in restarts.iter().chain([&(restarts.len() as u32)]) {
        data.extend_from_slice(&restart.to_le_bytes());
    }
    Block::new(data.into(), 0)
}

#[track_caller]
fn refused<T>(result: Result<T>, because: &str) {
    match result {
        Err(crate::Error::Damaged { what, .. }) => assert!(what.contains(because), "{what}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it passed"),
    }
}

#[test]
fn blocks_that_no_builder_makes_are_refused_for_what_is_wrong_with_them() {
    let check = |entries: &[u8], restarts: &[u32]| block(entries, restarts)?.check(|_| Ok(()));
    check(&[0, 1, 0, b'a', 0, 1, 0, b'b'], &[0]).unwrap();
    refused(block(&[], &[]), "no room for its restart points");
    refused(block(&[0, 1, 0, b'a'], &[1]), "not in order");
    refused(check(&[0x80], &[0]), "head is cut off");
    refused(check(&[0, 9, 0, b'a'], &[0]), "does not fit the block");
    refused(check(&[0, 1, 0, b'a', 2, 1, 0, b'b'], &[0]), "shares more bytes than the key before it has");
    refused(check(&[0, 1, 0, b'b', 0, 1, 0, b'a'], &[0]), "keys do not ascend");
    refused(check(&[0, 1, 0, b'a', 0, 1, 0, b'b'], &[0, 4]), "more restart points than entries");
    let seventeen: Vec<u8> = (b'a'..b'a' + 17).flat_map(|key| [0, 1, 0, key]).collect();
    refused(check(&seventeen, &[0]), "a restart point is not at its entry");
    check(&seventeen, &[0, 64]).unwrap();
}

#[test]
fn a_restart_point_that_is_none_is_noticed_by_whoever_goes_by_it() {
    let mut spot = Spot::default();
    spot.enter(block(&[0, 1, 0, b'a', 1, 1, 0, b'b'], &[0, 4]).unwrap());
    refused(spot.aim(Aim::AtMost(b"z")), "shares its key");
    // The restart point is in the first entry, at bytes that look like an entry that ends after the
    // beginning of the second entry.
    let inside = [0, 1, 5, b'a', 0, 1, 3, b'x', b'y', 0, 1, 0, b'b'];
    spot.enter(block(&inside, &[0, 4]).unwrap());
    assert!(spot.step().unwrap() && spot.step().unwrap());
    assert_eq!(spot.key(), b"b");
    refused(spot.back(), "a restart point is not at an entry");
}

/// The way back through a block reads from the restart point before each entry.
#[test]
fn too_many_entries_behind_a_restart_point_are_refused_on_the_way_back() {
    let entries: Vec<u8> = (b'a'..=b'z').flat_map(|key| [0, 1, 0, key]).collect();
    let mut spot = Spot::default();
    spot.enter(block(&entries, &[0]).unwrap());
    assert!(spot.aim(Aim::Last).unwrap());
    refused(spot.back(), "too many entries follow a restart point");
    spot.enter(block(&entries, &[0, 4 * 16]).unwrap());
    assert!(spot.aim(Aim::Last).unwrap());
    for key in (b'a'..=b'y').rev() {
        assert!(spot.back().unwrap());
        assert_eq!(spot.key(), [key]);
    }
    assert!(!spot.back().unwrap());
}
