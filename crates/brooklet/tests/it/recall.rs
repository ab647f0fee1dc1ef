//! Recall: offloaded runs return to the store, and stores that begin with all of a backup
//! offloaded.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brooklet::codex::{Bytes, Source};
use brooklet::io::{Fault, ManualClock, MemVolume, Rng};
use brooklet::{Create, Error, Options, PartName, Progress, RecallReport, Store, View};

use crate::common::{contents, seen};

/// A place that keeps parts, and that may be out of reach.
#[derive(Clone, Default)]
struct Elsewhere {
    parts: Arc<Mutex<BTreeMap<PartName, Bytes>>>,
    gone: Arc<AtomicBool>,
    /// Bytes that each read returns beyond those that it was asked for.
    more: Arc<AtomicUsize>,
}

/// A part that is kept.
struct Kept(PartName, Elsewhere);

impl Source for Kept {
    fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        if self.1.gone.load(Ordering::Relaxed) {
            return Err(io::Error::other("out of reach"));
        }
        let data = self.1.parts.lock().unwrap()[&self.0].read(offset, len)?;
        match self.1.more.load(Ordering::Relaxed) {
            0 => Ok(data),
            more => Ok([&data[..], &vec![7; more]].concat().into()),
        }
    }
}

impl Elsewhere {
    fn keep(&self, view: &View) {
        for part in view.parts() {
            let read = || part.read(0, part.name().len as usize).unwrap();
            self.parts.lock().unwrap().entry(part.name()).or_insert_with(read);
        }
    }

    fn get(&self, name: PartName) -> Option<Arc<Kept>> {
        self.parts.lock().unwrap().contains_key(&name).then(|| Arc::new(Kept(name, self.clone())))
    }

    /// Returns a view as an archive opens it: with parts that are kept.
    fn backup(&self, view: &View) -> View {
        self.keep(view);
        View::from_parts(&view.table(), 1 << 20, |name| Ok(self.get(name).expect("it is kept"))).unwrap()
    }

    fn offload_all(&self, store: &Store) {
        self.keep(&store.view().unwrap());
        store.offload(0, |name| self.get(name), Progress::ignore).unwrap();
    }

    fn options(&self, seed: u64) -> Options {
        let kept = self.clone();
        let missing = || Error::Damaged { place: "a part".into(), what: "it is not kept".into() };
        bare(seed).offload_reader(move |name| Ok(kept.get(name).ok_or_else(missing)? as Arc<dyn Source>))
    }
}

fn bare(seed: u64) -> Options {
    let clock = Arc::new(ManualClock::default());
    clock.set_wall(Duration::from_secs(1000));
    let options = Options::new().ring_size(256 << 10).memory_budget(64 << 10).max_payload(9 << 10);
    options.threads(false).clock(clock).rng_seed(seed)
}

fn act(store: &Store, rng: &mut Rng, times: u64) {
    for _ in 0..times {
        let key = format!("log/{}", rng.below(30));
        let payload: Vec<u8> = (0..rng.below(3000)).map(|_| rng.next() as u8).collect();
        let exists = store.exists(&key).unwrap();
        let ticket = match rng.below(14) {
            0 => store.snapshot(&key, payload),
            1 if exists => store.delete(&key),
            2 | 3 if exists => store.trim(&key, store.bounds(&key).unwrap().next / 2),
            _ => store.append(&key, payload),
        };
        ticket.unwrap().wait().unwrap();
    }
}

fn recall(store: &Store, most: u64) -> Result<RecallReport, Error> {
    store.recall(most, Progress::ignore)
}

fn away(store: &Store) -> usize {
    store.info().unwrap().runs.iter().filter(|run| run.offloaded).count()
}

#[track_caller]
fn is_sound(volume: &MemVolume, options: Options) {
    let report = options.check_on(Arc::new(volume.clone()), None).unwrap();
    assert!(report.is_sound(), "{:?}", report.findings);
}

#[test]
fn recalled_runs_answer_as_before_and_are_merged() {
    let (mut recalled, mut merged) = (0, 0);
    for seed in 0..30 {
        let (volume, elsewhere) = (MemVolume::new(seed), Elsewhere::default());
        let mut rng = Rng::new(seed);
        let mut store = elsewhere.options(seed).create_on(Arc::new(volume.clone())).unwrap();
        let twin = bare(seed).create_on(Arc::new(MemVolume::new(seed))).unwrap();
        for step in 0..40 {
            let (what, times) = (rng.next(), rng.below(60));
            act(&store, &mut Rng::new(what), times);
            act(&twin, &mut Rng::new(what), times);
            match rng.below(10) {
                0 => store.compact().unwrap(),
                1 => store.checkpoint().unwrap(),
                2 | 3 => elsewhere.offload_all(&store),
                4 | 5 => recalled += recall(&store, rng.below(150_000)).unwrap().runs,
                6 => {
                    store.close().unwrap();
                    drop(store);
                    is_sound(&volume, elsewhere.options(seed));
                    store = elsewhere.options(seed).open_on(Arc::new(volume.clone())).unwrap();
                }
                7 => while store.step().unwrap() {},
                _ => {}
            }
            assert!(contents(&store).unwrap() == contents(&twin).unwrap(), "seed {seed}, step {step}");
        }
        assert_eq!(recall(&store, u64::MAX).unwrap().left, 0);
        assert_eq!(away(&store), 0);
        elsewhere.gone.store(true, Ordering::Relaxed);
        assert!(contents(&store).unwrap() == contents(&twin).unwrap());
        store.compact().unwrap();
        merged += usize::from(store.info().unwrap().runs.len() <= 1);
        assert!(contents(&store).unwrap() == contents(&twin).unwrap());
        store.close().unwrap();
        drop(store);
        // Nothing is needed from elsewhere any more.
        is_sound(&volume, bare(seed));
        let store = bare(seed).create(Create::Never).open_on(Arc::new(volume)).unwrap();
        assert!(contents(&store).unwrap() == contents(&twin).unwrap());
    }
    assert!(recalled > 50 && merged == 30, "{recalled} {merged}");
}

#[test]
fn the_newest_runs_return_first_and_no_more_than_fit() {
    let elsewhere = Elsewhere::default();
    let store = elsewhere.options(1).create_on(Arc::new(MemVolume::new(1))).unwrap();
    for log in 0..6 {
        (0..10).for_each(|_| drop(store.append(format!("log/{log}"), [7; 3000]).unwrap()));
        store.checkpoint().unwrap();
    }
    elsewhere.offload_all(&store);
    let before = store.info().unwrap().runs;
    assert!(before.len() > 3 && away(&store) == before.len());
    let free = store.info().unwrap().heap_free;
    let most = 2 * 4096;
    let (mut told, mut total) = (0, 0);
    let report = store
        .recall(most, |progress| {
            assert!(progress.bytes >= told, "{progress:?}");
            (told, total) = (progress.bytes, progress.total_bytes.unwrap());
            ControlFlow::Continue(())
        })
        .unwrap();
    let bytes = before[0].bytes + before[1].bytes;
    assert_eq!((report.runs, report.bytes, told, total), (2, bytes, bytes, bytes));
    let after = store.info().unwrap().runs;
    assert_eq!(report.left, after.iter().filter(|run| run.offloaded).map(|run| run.bytes).sum::<u64>());
    assert!(after.is_sorted_by_key(|run| run.offloaded) && away(&store) == before.len() - 2);
    // A call that is cancelled, or cannot read, keeps no space.
    let held = |store: &Store| {
        let info = store.info().unwrap();
        info.size - info.heap_offset - info.heap_free
    };
    let was = held(&store);
    assert_eq!(store.recall(u64::MAX, |_| ControlFlow::Break(())).unwrap().runs, 0);
    elsewhere.gone.store(true, Ordering::Relaxed);
    let error = recall(&store, u64::MAX).unwrap_err();
    assert!(error.to_string().contains("out of reach"), "{error}");
    assert_eq!((held(&store), away(&store)), (was, before.len() - 2), "{free}");
    elsewhere.gone.store(false, Ordering::Relaxed);
    assert_eq!(recall(&store, u64::MAX).unwrap().left, 0);
}

/// Each byte that differs is found before the run counts as returned.
#[test]
fn a_damaged_part_stays_where_it_is() {
    let elsewhere = Elsewhere::default();
    let store = elsewhere.options(1).create_on(Arc::new(MemVolume::new(1))).unwrap();
    act(&store, &mut Rng::new(1), 40);
    elsewhere.offload_all(&store);
    let want = contents(&store).unwrap();
    let sound = elsewhere.parts.lock().unwrap().clone();
    let (name, data) = sound.iter().next_back().unwrap();
    for at in (0..data.len()).step_by(data.len() / 60) {
        let mut damaged = data.to_vec();
        damaged[at] ^= 1;
        elsewhere.parts.lock().unwrap().insert(*name, damaged.into());
        let error = recall(&store, u64::MAX).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "byte {at}: {error}");
        elsewhere.parts.lock().unwrap().extend(sound.clone());
        assert!(away(&store) > 0 && contents(&store).unwrap() == want);
    }
    assert_eq!(recall(&store, u64::MAX).unwrap().left, 0);
    assert!(contents(&store).unwrap() == want);
}

/// The source of a part is code of the user. In an earlier state, a recall and a copy wrote the
/// bytes too many over the next table, or panicked.
#[test]
fn a_source_that_returns_more_than_it_was_asked_for_is_refused() {
    let elsewhere = Elsewhere::default();
    let store = elsewhere.options(1).create_on(Arc::new(MemVolume::new(1))).unwrap();
    act(&store, &mut Rng::new(1), 40);
    elsewhere.offload_all(&store);
    let want = contents(&store).unwrap();
    for more in [1, 5000, 2 << 20] {
        let backup = elsewhere.backup(&store.view().unwrap());
        elsewhere.more.store(more, Ordering::Relaxed);
        let recalled = recall(&store, u64::MAX).unwrap_err().to_string();
        assert!(recalled.contains("another length"), "{more} bytes more: {recalled}");
        let copied = bare(2).copy_on(Arc::new(MemVolume::new(2)), &backup).err();
        let copied = copied.expect("the copy fails").to_string();
        assert!(copied.contains("another length"), "{more} bytes more: {copied}");
        elsewhere.more.store(0, Ordering::Relaxed);
        assert!(away(&store) > 0 && contents(&store).unwrap() == want);
    }
    assert_eq!(recall(&store, u64::MAX).unwrap().left, 0);
    assert!(contents(&store).unwrap() == want);
}

/// A run that returns is older than the run that a merge makes meanwhile.
#[test]
fn runs_return_in_the_middle_of_merges() {
    let mut returned = 0;
    for steps in 0..40 {
        let elsewhere = Elsewhere::default();
        let options = elsewhere.options(1).ring_size(1 << 20).memory_budget(4 << 20);
        let store = options.create_on(Arc::new(MemVolume::new(1))).unwrap();
        let mut rng = Rng::new(1);
        let mut run = || {
            let noise: Vec<u8> = (0..3000).map(|_| rng.next() as u8).collect();
            (0..30).for_each(|log| drop(store.append(format!("log/{log}"), &noise[log..]).unwrap()));
            store.checkpoint().unwrap();
        };
        run();
        elsewhere.offload_all(&store);
        (0..14).for_each(|_| run());
        (0..steps).for_each(|_| _ = store.step().unwrap());
        let (merging, want) = (store.info().unwrap().compacting, contents(&store).unwrap());
        let recalled = recall(&store, u64::MAX).unwrap();
        assert_eq!((recalled.runs, recalled.left), (1, 0));
        returned += usize::from(merging);
        while store.step().unwrap() {}
        assert!(contents(&store).unwrap() == want, "{steps} steps");
        store.compact().unwrap();
        assert!(contents(&store).unwrap() == want, "{steps} steps");
        assert_eq!(store.info().unwrap().runs.len(), 1);
    }
    assert!(returned > 3, "{returned}");
}

/// The power goes, and operations fail, at each step of a recall: each run is here, or elsewhere.
#[test]
fn a_run_that_returns_is_here_or_elsewhere() {
    let error = |operations| Fault::ErrorAfter { operations, kind: io::ErrorKind::Other, sticky: false };
    let full = |operations| Fault::ErrorAfter { operations, kind: io::ErrorKind::StorageFull, sticky: false };
    let (mut here, mut there) = (0, 0);
    for fault in [&Fault::PowerOffAfter as &dyn Fn(u64) -> Fault, &error, &full] {
        for after in 0.. {
            let (volume, elsewhere) = (MemVolume::new(after), Elsewhere::default());
            let store = elsewhere.options(3).create_on(Arc::new(volume.clone())).unwrap();
            act(&store, &mut Rng::new(3), 120);
            elsewhere.offload_all(&store);
            let want = contents(&store).unwrap();
            volume.fail(fault(after));
            let recalled = recall(&store, u64::MAX);
            if let (Err(Error::Full { .. }), true) = (&recalled, after % 2 == 0) {
                // It goes on, and so does this.
                assert!(contents(&store).unwrap() == want);
                assert_eq!(recall(&store, u64::MAX).unwrap().left, 0);
            }
            store.abandon();
            let disk = MemVolume::from_image(volume.crash(), after);
            let found = elsewhere.options(1).create(Create::Never).open_on(Arc::new(disk.clone())).unwrap();
            assert!(contents(&found).unwrap() == want, "after {after}");
            match away(&found) {
                0 => here += 1,
                _ => there += 1,
            }
            act(&found, &mut Rng::new(after), 10);
            found.close().unwrap();
            drop(found);
            is_sound(&disk, elsewhere.options(1));
            if recalled.is_ok_and(|recalled| recalled.left == 0) && after > 0 {
                break;
            }
        }
    }
    assert!(here > 2 && there > 10, "{here} {there}");
}

/// A copy of a backup leaves there all that need not move.
#[test]
fn a_copy_begins_with_its_backup_offloaded() {
    let mut left = 0;
    for seed in 0..20 {
        let (elsewhere, mut rng) = (Elsewhere::default(), Rng::new(seed));
        let store = bare(seed).create_on(Arc::new(MemVolume::new(seed))).unwrap();
        for _ in 0..1 + rng.below(12) {
            let times = rng.below(60);
            act(&store, &mut rng, times);
            // Views are taken in the middle of merges, too.
            (0..rng.below(6)).for_each(|_| _ = store.step().unwrap());
        }
        let (view, volume) = (elsewhere.backup(&store.view().unwrap()), MemVolume::new(seed));
        let options = elsewhere.options(seed).leave_offloaded(true);
        let mut copy = options.copy_on(Arc::new(volume.clone()), &view).unwrap();
        assert!(contents(&copy).unwrap() == seen(&view), "seed {seed}");
        let (all, merging) = (copy.info().unwrap().runs, store.info().unwrap().compacting);
        assert!(all.is_sorted_by_key(|run| run.offloaded));
        assert!(merging || all.iter().all(|run| run.offloaded), "seed {seed}: {all:?}");
        left += away(&copy);
        let twin = bare(seed).copy_on(Arc::new(MemVolume::new(seed)), &view).unwrap();
        for step in 0..6 {
            let (what, times) = (rng.next(), rng.below(60));
            act(&copy, &mut Rng::new(what), times);
            act(&twin, &mut Rng::new(what), times);
            if step == 2 {
                copy.close().unwrap();
                drop(copy);
                is_sound(&volume, elsewhere.options(seed));
                copy = elsewhere.options(seed).open_on(Arc::new(volume.clone())).unwrap();
            }
            if step == 4 {
                assert_eq!(recall(&copy, u64::MAX).unwrap().left, 0);
            }
            assert!(contents(&copy).unwrap() == contents(&twin).unwrap(), "seed {seed}, step {step}");
        }
        copy.close().unwrap();
        drop(copy);
        is_sound(&volume, bare(seed));
    }
    assert!(left > 40, "{left}");
}

/// Runs with parts that are not kept are copied, and so are all newer ones.
#[test]
fn a_copy_takes_the_runs_that_nobody_keeps() {
    let elsewhere = Elsewhere::default();
    let store = bare(1).create_on(Arc::new(MemVolume::new(1))).unwrap();
    for log in 0..6 {
        (0..10).for_each(|_| drop(store.append(format!("log/{log}"), [7; 3000]).unwrap()));
        store.checkpoint().unwrap();
    }
    let view = store.view().unwrap();
    elsewhere.keep(&view);
    let all = view.parts().len();
    for missing in (0..all).rev() {
        let name = view.parts()[missing].name();
        let data = elsewhere.parts.lock().unwrap().remove(&name).unwrap();
        let volume = Arc::new(MemVolume::new(2));
        let copy = elsewhere.options(2).leave_offloaded(true).copy_on(volume, &view).unwrap();
        assert_eq!(away(&copy), all - 1 - missing);
        assert!(contents(&copy).unwrap() == seen(&view));
        elsewhere.parts.lock().unwrap().insert(name, data);
    }
    let copy = elsewhere.options(2).copy_on(Arc::new(MemVolume::new(2)), &view).unwrap();
    assert_eq!(away(&copy), 0, "by default, all is copied");
}
