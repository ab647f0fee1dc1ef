//! Tests which entries stay and which are dropped, by the public counters.

use proptest::prelude::*;

use super::*;
use crate::block::BlockBuilder;

/// Returns a block that takes a little more than `len` bytes.
fn block(len: usize) -> Kept {
    let mut builder = BlockBuilder::default();
    builder.add(b"k", &vec![1; len]);
    Kept::Block(Block::new(builder.finish().to_vec().into(), 0).unwrap())
}

fn key(offset: u64) -> Key {
    Key { reader: 0, offset, sum: 1 }
}

fn holds(cache: &Cache, offset: u64) -> bool {
    cache.look(key(offset), |_| Some(())).is_some()
}

/// Many blocks that are read once do not evict filters, indexes, or blocks that are used again.
#[test]
fn a_stream_of_cold_blocks_drives_nothing_out_that_is_asked_for() {
    let cache = Cache::new(100_000);
    for offset in 0..10 {
        cache.keep(key(offset), Class::Filter, block(1000));
        cache.keep(key(100 + offset), Class::Data, block(1000));
    }
    for cold in 1_000..3_000 {
        cache.keep(key(cold), Class::Data, block(1000));
        // Each lap of the queue is about 80 blocks. The look-ups are a little more frequent.
        if cold % 50 == 0 {
            assert!((0..10).all(|offset| holds(&cache, offset)), "filters went at {cold}");
            assert!((100..110).all(|offset| holds(&cache, offset)), "what was asked for went at {cold}");
        }
    }
    assert!(!holds(&cache, 1_500));
    // Unused entries of every class are evicted in the end.
    for cold in 3_000..4_000 {
        cache.keep(key(cold), Class::Data, block(1000));
    }
    assert!((0..10).chain(100..110).all(|offset| !holds(&cache, offset)));
}

/// Even if all entries are in use, keeping one more entry passes over a bounded number of entries.
#[test]
fn one_thing_more_takes_a_bounded_time() {
    let cache = Cache::new(1_000_000);
    let count = 1_000_000 / block(100).bytes();
    for offset in 0..count as u64 {
        cache.keep(key(offset), Class::Filter, block(100));
        assert!(holds(&cache, offset));
    }
    cache.keep(key(u64::MAX), Class::Data, block(900));
    let entries = cache.shards[0].entries.read().unwrap();
    let laps: Vec<u8> = entries.map.values().map(|entry| entry.laps.load(Ordering::Relaxed)).collect();
    let spent = laps.iter().filter(|&&laps| laps == Class::Filter.laps()).count();
    assert!(entries.map.contains_key(&key(u64::MAX)) && laps.len() < count);
    assert!((1..=MOST_TURNS).contains(&spent), "{spent} of {count} were passed by");
}

#[test]
fn the_higher_classes_stay_longer() {
    let classes = [Class::Data, Class::Leaf, Class::Filter, Class::Index];
    let cache = Cache::new(100_000);
    for (offset, class) in classes.into_iter().enumerate() {
        cache.keep(key(offset as u64), class, block(1000));
    }
    let mut went = Vec::new();
    for cold in 100..1_000 {
        cache.keep(key(cold), Class::Data, block(1000));
        let entries = cache.shards[0].entries.read().unwrap();
        let gone = |offset: &u64| !went.contains(offset) && !entries.map.contains_key(&key(*offset));
        let gone: Vec<u64> = (0..4).filter(gone).collect();
        went.extend(gone);
    }
    assert_eq!(went, [0, 1, 2, 3]);
}

#[test]
fn a_reader_that_leaves_takes_all_of_its_own_with_it() {
    let cache = Cache::new(50 << 20);
    let (one, other) = (cache.join(), cache.join());
    for offset in 0..100 {
        cache.keep(Key { reader: one, offset, sum: 1 }, Class::Filter, block(1000));
        cache.keep(Key { reader: other, offset, sum: 1 }, Class::Data, block(1000));
    }
    assert!(cache.overhead_of(one) > 100_000 && cache.overhead_of(other) == 0);
    cache.leave(one);
    let stats = cache.stats();
    assert!(stats.filter_bytes == 0 && stats.data_bytes > 100_000);
    assert!(cache.shards.iter().all(|shard| {
        let entries = shard.entries.read().unwrap();
        entries.queue.len() == entries.map.len() && entries.overhead.is_empty()
    }));
    assert!(cache.join() > other);
}

/// Used entries stay when the cache gets smaller. A larger cache has more room.
#[test]
fn a_cache_that_is_resized_keeps_to_what_it_has_then() {
    let cache = Cache::new(40 << 20);
    let held = |cache: &Cache| (0..10_000).filter(|&offset| holds(cache, offset)).count();
    for offset in 0..10_000 {
        cache.keep(key(offset), Class::Data, block(2_000));
        if offset < 100 {
            assert!(holds(&cache, offset));
        }
    }
    assert_eq!(held(&cache), 10_000);
    for budget in [39 << 20, 8 << 20, 0, 30 << 20] {
        cache.resize(budget);
        assert!(cache.stats().bytes() <= budget && cache.stats().budget == budget);
        assert!(cache.stats().bytes() > 0 || budget == 0 || budget == 30 << 20);
        for offset in 0..10_000 {
            cache.keep(key(offset), Class::Data, block(2_000));
        }
        assert!(cache.stats().bytes() <= budget && cache.stats().bytes() >= budget.min(20 << 20) * 9 / 10);
    }
}

/// Unused entries are dropped with time, even if there is room for all. Entries that are used in
/// time stay.
#[test]
fn what_nobody_asks_for_goes_with_time() {
    let classes = [Class::Data, Class::Value, Class::Leaf, Class::Filter, Class::Index, Class::Directory];
    let cache = Cache::new(10 << 20);
    for (offset, class) in (0..).zip(classes) {
        // More entries than are passed over under one lock.
        for n in 0..1_000 {
            cache.keep(key(100 * n + offset), class, block(100));
            assert!(holds(&cache, 100 * n + offset));
        }
    }
    let mut lives = [0; 6];
    for _ in 0..20 {
        cache.age();
        assert!(holds(&cache, 0) && holds(&cache, 3), "asked for each time");
        for (offset, lives) in (0..).zip(&mut lives) {
            let entries = cache.shards.iter().map(|shard| shard.entries.read().unwrap());
            let kept = |entries: &Entries| {
                (1..1_000).filter(|n| entries.map.contains_key(&key(100 * n + offset))).count()
            };
            let left: usize = entries.map(|entries| kept(&entries)).sum();
            assert!(left == 0 || left == 999, "{left}");
            *lives += usize::from(left > 0);
        }
    }
    assert_eq!(lives, classes.map(|class| usize::from(class.laps()) + 1));
    let stats = cache.stats();
    let left = |offset| block(100).bytes() * usize::from(holds(&cache, offset));
    assert!(
        (stats.data_bytes, stats.filter_bytes, stats.index_bytes) == (left(0), left(3), 0) && left(3) > 0
    );
    (0..9).for_each(|_| cache.age());
    assert!(cache.is_empty() && cache.stats().bytes() == 0);
}

/// Each pass goes on where the one before ended: entries that stay join the end of the queue.
#[test]
fn a_pass_over_very_many_entries_has_few_steps_and_holds_no_lock_for_long() {
    for (entries, turns, at_once) in
        [(0, 0, 16), (10, 10, 16), (1_024, 1_024, 16), (30_000, 30_000, 469), (9_000_000, 65_536, 1_024)]
    {
        assert_eq!(turns_of_age(entries), (turns, at_once), "{entries}");
    }
}

#[test]
fn what_takes_more_than_there_is_room_for_is_not_kept() {
    let cache = Cache::new(10_000);
    cache.keep(key(1), Class::Data, block(1_000));
    cache.keep(key(2), Class::Index, block(20_000));
    assert!(holds(&cache, 1) && !holds(&cache, 2));
    cache.missed(14);
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.read_bytes), (1, 1, 14));
}

proptest! {
    /// After any calls, the budget holds and the counters match the entries.
    #[test]
    fn the_budget_holds(budget in 0usize..200_000, steps in proptest::collection::vec(
        (0u64..200, 0usize..9_000, 0u8..6, any::<bool>()), 0..400)) {
        let cache = Cache::new(budget);
        for (offset, len, class, asks) in steps {
            let classes = [Class::Data, Class::Value, Class::Leaf, Class::Filter, Class::Index, Class::Directory];
            let class = classes[class as usize];
            if asks {
                holds(&cache, offset);
            } else {
                cache.keep(key(offset), class, block(len));
            }
            prop_assert!(cache.stats().bytes() <= budget);
            let entries = cache.shards[0].entries.read().unwrap();
            prop_assert_eq!(entries.bytes(), entries.map.values().map(|entry| entry.kept.bytes()).sum::<usize>());
            prop_assert_eq!(entries.queue.len(), entries.map.len());
            let overhead = entries.map.values().filter(|entry| !entry.class.is_data()).map(|entry| entry.kept.bytes());
            prop_assert_eq!(entries.overhead.get(&0).copied().unwrap_or_default(), overhead.sum::<usize>());
        }
    }
}
