//! Following a store: a view and the commits behind it are the store, whatever was done to it.

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brooklet::io::{ManualClock, MemVolume, Rng};
use brooklet::{Bytes, Error, Lost, Moment, Options, Retention, Store, Subscription, View};
use common::{contents, seen, walked};

fn store(seed: u64) -> (Store, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    clock.set_wall(Duration::from_secs(1000));
    let options = Options::new().ring_size(256 << 10).memory_budget(64 << 10).max_payload(9 << 10);
    let options = options.threads(false).clock(clock.clone()).rng_seed(seed);
    (options.create_on(Arc::new(MemVolume::new(seed))).unwrap(), clock)
}

/// Does something to the store.
fn act(store: &Store, clock: &ManualClock, rng: &mut Rng) {
    let key = format!("log/{}", rng.below(12));
    let payload = vec![rng.next() as u8; rng.below(600) as usize];
    let bounds = store.bounds(&key).ok();
    let within = |rng: &mut Rng| bounds.map(|b| b.first + rng.below(b.next - b.first + 1));
    // Entries get older while somebody commits, and then only, so that what is seen meanwhile is
    // the same everywhere.
    clock.advance(Duration::from_millis(rng.below(20)));
    let ticket = match rng.below(20) {
        0..=9 => store.append(&key, payload),
        10 => store.append_many(&key, [&payload[..], b"x", b""]),
        11 | 12 => store.snapshot(&key, payload),
        13 => match within(rng) {
            Some(seq) => store.trim(&key, seq),
            None => return,
        },
        14 => match within(rng) {
            Some(seq) => store.truncate(&key, seq),
            None => return,
        },
        15 if bounds.is_some() => store.delete(&key),
        16 => store.set_retention(&key, Retention::new().entries(3).bytes(1500)),
        17 => store.set_retention(&key, Retention::new().age(Duration::from_millis(200))),
        18 => store.set_retention(&key, Retention::new()),
        _ => store.append(&key, payload),
    };
    match ticket {
        Ok(ticket) => drop(ticket),
        // It became too old meanwhile.
        Err(Error::OutOfRange { .. } | Error::UnknownLog { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

/// A follower, a view, and the commits behind it so far.
struct Copy {
    subscription: Subscription,
    view: View,
    commits: Vec<Vec<u8>>,
}

impl Copy {
    fn begin(store: &Store) -> Self {
        let subscription = store.subscribe(1 << 20).unwrap();
        Self { view: store.view().unwrap(), subscription, commits: Vec::new() }
    }

    /// Tells whether nothing was lost.
    fn take(&mut self) -> bool {
        let Ok(mut commits) = self.subscription.take() else { return false };
        commits.skip_to(self.view.lsn());
        if !commits.is_empty() {
            self.commits.push(commits.encode());
        }
        true
    }

    fn now(&self) -> View {
        self.view.with_commits(&self.commits, None).unwrap()
    }
}

#[test]
fn a_view_and_the_commits_behind_it_are_the_store() {
    for seed in 0..40 {
        let (store, clock) = store(seed);
        let mut rng = Rng::new(seed);
        (0..rng.below(60)).for_each(|_| act(&store, &clock, &mut rng));
        let mut copy = Copy::begin(&store);
        for step in 0..200 {
            act(&store, &clock, &mut rng);
            match rng.below(40) {
                0 => store.checkpoint().unwrap(),
                1 => store.compact().unwrap(),
                2 => assert!(copy.take()),
                3 => {
                    // A view of later does as well, also with commits from before it.
                    copy.view = store.view().unwrap();
                }
                4 => copy = Copy::begin(&store),
                _ => {}
            }
            if step % 23 == 22 {
                store.flush().unwrap();
                assert!(copy.take());
                let view = copy.now();
                assert!(seen(&view) == contents(&store).unwrap(), "seed {seed}, step {step}");
                for log in store.scan("").unwrap() {
                    let key = log.unwrap().key;
                    let kept = store.retention(&key).unwrap();
                    let copied = view.scan(&key).unwrap().next().unwrap().unwrap();
                    assert_eq!((copied.key, copied.retention), (key, kept));
                }
            }
        }
        // Another store takes it over, and goes on.
        let (new, its_clock) = self::store(seed + 1000);
        its_clock.set_wall(Duration::from_millis(copy.now().taken_ms()));
        new.import().view(&copy.now(), "").unwrap();
        assert!(contents(&new).unwrap() == walked(&copy.now(), ""));
        let volume = Arc::new(MemVolume::new(seed));
        let same = Options::new().clock(its_clock).rng_seed(seed).copy_on(volume, &copy.now()).unwrap();
        assert!(contents(&same).unwrap() == seen(&copy.now()));
    }
}

#[test]
fn commits_go_up_to_a_moment() {
    let (store, clock) = store(1);
    let copy = Copy::begin(&store);
    let mut then = Vec::new();
    // The clock is a year ahead for one of them.
    let at = |n: u64| if n == 4 { 32_000_000_000 } else { (2000 + n) * 1000 };
    for n in 0..10u64 {
        clock.set_wall(Duration::from_millis(at(n)));
        store.append("log", [n as u8]).unwrap().wait().unwrap();
        then.push(contents(&store).unwrap());
    }
    clock.set_wall(Duration::from_secs(2500));
    let mut commits = copy.subscription.take().unwrap();
    let last = Moment { lsn: commits.end().unwrap(), time_ms: commits.taken_ms() };
    assert_eq!(last.time_ms, 2_500_000);
    let plain = commits.encode();
    commits.mark(last);
    let marked = commits.encode();
    let moments = copy.view.moments([&marked]).unwrap();
    // Before each commit the clock was set: how far it would have come, and from where, is marked.
    let (mut want, mut before) = (Vec::new(), 1_000_000);
    for time in (0..10).map(at) {
        want.extend([before, time, time]);
        before = time;
    }
    want.extend([before, last.time_ms, last.time_ms]);
    assert!(moments.iter().map(|moment| moment.time_ms).eq(want));
    assert_eq!(moments[..32], copy.view.moments([&plain]).unwrap());
    assert_eq!(moments[32], last);
    for (index, moment) in moments.iter().enumerate() {
        let view = copy.view.with_commits([&marked], Some(*moment)).unwrap();
        let version = if index % 3 == 2 { index / 3 } else { (index / 3).wrapping_sub(1) }.min(9);
        assert!(index < 2 || walked(&view, "") == then[version], "moment {index}");
        assert!(index > 1 || walked(&view, "").is_empty());
        assert_eq!(view.taken_ms(), moment.time_ms);
    }
    // A mark changes nothing but until when it is known.
    for encoded in [&plain, &marked] {
        let view = copy.view.with_commits([encoded], None).unwrap();
        assert!(walked(&view, "") == then[9]);
        assert_eq!(view.taken_ms(), last.time_ms);
    }
    let none = copy.view.with_commits([&marked], Some(Moment { lsn: 0, time_ms: 7 })).unwrap();
    assert!(walked(&none, "").is_empty() && none.taken_ms() == 7);
}

/// Writes go on while a view is taken: it is of when the store was there, and not of when the
/// checkpoint had ended.
#[test]
fn a_view_is_dated_as_of_its_place_in_the_log() {
    for seed in 0..5 {
        let clock = Arc::new(ManualClock::default());
        let options = Options::new().ring_size(1 << 20).memory_budget(64 << 10).max_payload(9 << 10);
        let volume = Arc::new(MemVolume::new(seed));
        let store = options.clock(clock.clone()).rng_seed(seed).create_on(volume).unwrap();
        let subscription = store.subscribe(64 << 20).unwrap();
        let base = store.view().unwrap();
        let done = AtomicBool::new(false);
        let views: Vec<View> = std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..u64::MAX {
                    if done.load(Ordering::Relaxed) {
                        return;
                    }
                    clock.advance(Duration::from_millis(2));
                    store.append(format!("log/{}", n % 50), [n as u8; 300]).unwrap().wait().unwrap();
                }
            });
            let views = (0..20).map(|_| store.view().unwrap()).collect();
            done.store(true, Ordering::Relaxed);
            views
        });
        let moments = base.moments([subscription.take().unwrap().encode()]).unwrap();
        for view in views {
            let at = moments.partition_point(|moment| moment.lsn <= view.lsn());
            let before = at.checked_sub(1).map_or(0, |before| moments[before].time_ms);
            assert!(before <= view.taken_ms(), "seed {seed}: {view:?} is dated before it");
            let after = moments.get(at).map_or(u64::MAX, |moment| moment.time_ms);
            // In the millisecond itself, that of the view may come first.
            assert!(view.taken_ms() <= after, "seed {seed}: {view:?} is dated behind it");
        }
    }
}

#[test]
fn what_is_missing_is_noticed() {
    let (store, _) = store(1);
    let subscription = store.subscribe(1000).unwrap();
    let view = store.view().unwrap();
    store.append("log", [1; 400]).unwrap().wait().unwrap();
    let first = subscription.take().unwrap();
    store.append("log", [2; 400]).unwrap().wait().unwrap();
    let second = subscription.take().unwrap();
    assert!(subscription.take().unwrap().is_empty());
    // More than is held.
    (0..3).for_each(|_| store.append("log", [3; 400]).unwrap().wait().unwrap());
    assert_eq!(subscription.take().unwrap_err(), Lost::Behind { most: 1000 });
    assert!(subscription.take().unwrap().is_empty(), "it was told once");
    // What came in past the log.
    let (other, _) = self::store(2);
    other.append("other", "x").unwrap().wait().unwrap();
    store.import().view(&other.view().unwrap(), "").unwrap();
    store.append("other", "y").unwrap().wait().unwrap();
    assert_eq!(subscription.take().unwrap_err(), Lost::Unlogged);
    // A view of afterwards is one to go on from.
    let later = store.view().unwrap();
    store.append("other", "z").unwrap().wait().unwrap();
    let mut commits = subscription.take().unwrap();
    commits.skip_to(later.lsn());
    assert!(seen(&later.with_commits([commits.encode()], None).unwrap()) == contents(&store).unwrap());

    // In another order, with a gap, of another store, damaged.
    let [first, second] = [first.encode(), second.encode()];
    assert!(view.with_commits([&first, &second, &first], None).is_ok());
    for wrong in [vec![&second, &first], vec![&second]] {
        assert!(matches!(view.with_commits(wrong, None), Err(Error::Damaged { .. })));
    }
    let of_other = other.view().unwrap().with_commits([&first], None);
    assert!(matches!(of_other, Err(Error::Damaged { .. })));
    for bit in 0..first.len() * 8 {
        let mut damaged = first.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let read = view.with_commits([damaged], None);
        assert!(matches!(read, Err(Error::Damaged { .. } | Error::NewerFormat { .. })), "bit {bit}");
    }
    for cut in 0..first.len() {
        assert!(matches!(view.with_commits([&first[..cut]], None), Err(Error::Damaged { .. })));
    }
}

/// Somebody commits on what is imported as soon as it is there: no commit on it is told as if the
/// view had it.
#[test]
fn imports_and_commits_on_them_are_told_apart() {
    let source = Store::in_memory(2).unwrap();
    for n in 0..300 {
        drop(source.append_many(format!("new/{n}"), ["a", "b"]).unwrap());
    }
    let source = source.view().unwrap();
    for seed in 0..6 {
        let store = Store::in_memory(seed).unwrap();
        let subscription = store.subscribe(16 << 20).unwrap();
        let view = store.view().unwrap();
        let mut told: Vec<Bytes> = Vec::new();
        std::thread::scope(|scope| {
            let importing = scope.spawn(|| store.import().view(&source, "").unwrap());
            let mut lost = false;
            while !lost {
                if store.exists("new/7").unwrap() {
                    drop(store.append("new/7", "c").unwrap());
                }
                match subscription.take() {
                    Ok(commits) => told.push(commits.encode().into()),
                    Err(why) => lost = why == Lost::Unlogged,
                }
            }
            importing.join().unwrap();
        });
        let before = view.with_commits(&told, None).unwrap();
        assert!(walked(&before, "").is_empty(), "seed {seed}: nothing else was committed");
    }
}
