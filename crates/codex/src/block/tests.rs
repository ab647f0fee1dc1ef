//! Blocks against a set, and blocks that no builder made.

use proptest::prelude::*;

use super::*;

fn build(keys: &std::collections::BTreeSet<Vec<u8>>) -> Vec<u8> {
    let mut builder = BlockBuilder::default();
    keys.iter().for_each(|key| builder.add(key, &[b"=", &key[..]].concat()));
    let len = builder.len();
    assert_eq!(builder.finish().len(), len);
    builder.data
}

/// Every move there is; only what it says matters, not whether it works.
fn roam(data: Vec<u8>, key: &[u8]) -> Result<()> {
    let (block, mut spot) = (Block::new(data.into(), 0)?, Spot::default());
    let _ = block.check(|spot| spot.ptr().map(drop));
    spot.enter(block);
    for aim in [Aim::First, Aim::AtMost(key), Aim::Last] {
        if spot.aim(aim).is_ok() {
            let _ = (spot.value(), spot.ptr(), spot.key());
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
        prop_assert_eq!(&spot.value()[1..], spot.key());
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
