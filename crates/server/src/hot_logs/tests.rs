//! The sketch against exact counts.

use std::collections::BTreeMap;

use brooklet::io::{Clock, Rng, SystemClock};

use super::*;

/// A number with few small values and many large ones, below 100,000.
fn skewed(rng: &mut Rng) -> u64 {
    let bits = rng.below(17);
    rng.below(1 << bits)
}

#[test]
fn a_few_logs_are_counted_exactly() {
    let (hot_logs, mut rng) = (HotLogs::default(), Rng::new(1));
    let mut exact = BTreeMap::<Vec<u8>, (u64, u64)>::new();
    for _ in 0..50_000 {
        let (key, entries, bytes) = (rng.below(SLOTS as u64), rng.below(5), rng.below(1000));
        let key = format!("log {key}").into_bytes();
        hot_logs.note(&key, entries, bytes);
        let count = exact.entry(key).or_default();
        *count = (count.0 + entries, count.1 + bytes);
    }
    let (top, scale) = (hot_logs.top(usize::MAX), hot_logs.table().scale());
    assert_eq!(top.len(), exact.len());
    assert!(top.is_sorted_by(|a, b| a.entries_per_second >= b.entries_per_second));
    for HotLog { key, entries_per_second, bytes_per_second } in &top {
        let (entries, bytes) = exact[key];
        assert!((entries_per_second / scale - entries as f64).abs() < 1e-6 * entries as f64, "{key:?}");
        assert!((bytes_per_second / scale - bytes as f64).abs() < 1e-6 * bytes as f64, "{key:?}");
    }
}

/// Of a hundred thousand logs, those that matter are found, and none is said to have had more than
/// it did.
#[test]
fn what_is_busy_among_many_is_found_and_never_said_to_be_busier_than_it_is() {
    let (hot_logs, mut rng) = (HotLogs::default(), Rng::new(2));
    let mut exact = BTreeMap::<Vec<u8>, u64>::new();
    let notes = 300_000;
    for _ in 0..notes {
        let key = skewed(&mut rng).to_be_bytes();
        hot_logs.note(&key, 1, 10);
        *exact.entry(key.to_vec()).or_default() += 1;
    }
    assert!(exact.len() > 50 * SLOTS);
    let (top, scale) = (hot_logs.top(usize::MAX), hot_logs.table().scale());
    for log in &top {
        let (said, was) = (log.entries_per_second / scale, exact[&log.key] as f64);
        assert!(said <= was + 1e-6 && log.bytes_per_second / scale <= 10.0 * was + 1e-6, "{log:?}: {was}");
    }
    let table = hot_logs.table();
    for (key, count) in &exact {
        let counted = table.slots.iter().find(|slot| slot.key == *key);
        assert!(counted.is_none_or(|slot| table.heap[slot.at].0 >= *count as f64), "{key:?}");
        assert!(counted.is_some() || *count <= notes / SLOTS as u64, "{key:?}: {count}");
    }
    // Each is twice as busy as any of the next ones.
    let mut first: Vec<_> =
        top[..8].iter().map(|log| u64::from_be_bytes(log.key[..].try_into().unwrap())).collect();
    assert_eq!(first[..2], [0, 1]);
    first.sort_unstable();
    assert!(first.iter().copied().eq(0..8), "{first:?}");
}

#[test]
fn rates_are_those_of_late_and_what_rests_is_forgotten() {
    let hot_logs = HotLogs::default();
    let (mut now, second) = (Duration::from_secs(1_000_000), Duration::from_secs(1));
    let mut run = |seconds: u32, notes: &[(&[u8], u64)]| {
        for _ in 0..seconds {
            hot_logs.pass(now);
            notes.iter().for_each(|(key, entries)| hot_logs.note(key, *entries, entries * 100));
            now += second;
        }
        hot_logs.pass(now);
        hot_logs.top(10)
    };
    let is_near = |rate: f64, wanted: f64| assert!((rate / wanted - 1.0).abs() < 0.06, "{rate} {wanted}");
    for seconds in [3, 60, 2 * HALF_LIFE.as_secs() as u32 * LONG as u32] {
        let top = run(seconds, &[(b"a", 50), (b"b", 20)]);
        assert_eq!((top.len(), &top[0].key[..], &top[1].key[..]), (2, &b"a"[..], &b"b"[..]));
        is_near(top[0].entries_per_second, 50.0);
        is_near(top[1].bytes_per_second, 2000.0);
    }
    let top = run(HALF_LIFE.as_secs() as u32, &[(b"b", 20)]);
    is_near(top[0].entries_per_second, 25.0);
    let top = run(4 * HALF_LIFE.as_secs() as u32, &[(b"b", 20)]);
    assert_eq!(top[0].key, b"b");
    let top = run(60 * HALF_LIFE.as_secs() as u32, &[]);
    assert_eq!(top, []);
}

/// A log that came when all places were taken is told rightly long after.
#[test]
fn errors_are_forgotten_with_what_they_are_of() {
    let hot_logs = HotLogs::default();
    hot_logs.pass(Duration::ZERO);
    (0..3 * SLOTS as u64).for_each(|n| hot_logs.note(&n.to_be_bytes(), 1000, 0));
    let last = (3 * SLOTS as u64 - 1).to_be_bytes();
    let later = HALF_LIFE.mul_f64(LONG + 1.0);
    hot_logs.pass(later);
    hot_logs.note(&last, 1, 0);
    let top = hot_logs.top(10);
    assert_eq!((top.len(), &top[0].key[..]), (1, &last[..]));
}

/// `cargo test -p brooklet-server -- --ignored --nocapture nanoseconds`
#[test]
#[ignore = "a measurement"]
fn how_many_nanoseconds_a_note_takes() {
    let (clock, notes) = (SystemClock::new(), 5_000_000);
    for (what, logs) in [("known", 100), ("of all kinds", 1 << 16), ("unknown", u64::MAX)] {
        let (hot_logs, mut rng) = (HotLogs::default(), Rng::new(3));
        let keys: Vec<String> = (0..1 << 16).map(|_| format!("orders/{}", rng.below(logs))).collect();
        let begun = clock.now();
        (0..notes).for_each(|n| hot_logs.note(keys[n & 0xffff].as_bytes(), 1, 100));
        let nanos = (clock.now() - begun).as_nanos() / notes as u128;
        println!("{what}: {nanos} ns");
    }
}
