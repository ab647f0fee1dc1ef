//! Offloading: runs leave the store, and it answers as before.

use crate::common;

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brooklet::codex::{Bytes, Source};
use brooklet::io::{Fault, ManualClock, MemVolume, Rng};
use brooklet::{Create, Error, OffloadReport, Options, PartName, Retention, Store};
use common::{contents, seen};

/// Where parts are kept.
#[derive(Clone, Default)]
struct Elsewhere(Arc<Mutex<BTreeMap<PartName, Bytes>>>);

impl Elsewhere {
    /// Takes in what it does not have.
    fn keep(&self, store: &Store) {
        for part in store.view().unwrap().parts() {
            let read = || part.read(0, part.name().len as usize).unwrap();
            self.0.lock().unwrap().entry(part.name()).or_insert_with(read);
        }
    }

    fn get(&self, name: PartName) -> Option<Arc<Bytes>> {
        self.0.lock().unwrap().get(&name).cloned().map(Arc::new)
    }

    fn offload(&self, store: &Store, most: u64) -> Result<OffloadReport, Error> {
        store.offload(most, |name| self.get(name), brooklet::Progress::ignore)
    }

    fn options(&self, seed: u64) -> Options {
        let kept = self.clone();
        bare(seed).offload_reader(move |name| Ok(kept.get(name).expect("it is kept") as Arc<dyn Source>))
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
        let ticket = match rng.below(14) {
            0 => store.snapshot(&key, payload),
            1 if store.exists(&key).unwrap() => store.delete(&key),
            2 => store.set_retention(&key, Retention::new().entries(4).age(Duration::from_secs(900))),
            3 if store.exists(&key).unwrap() => {
                let next = store.bounds(&key).unwrap().next;
                store.trim(&key, next / 2)
            }
            _ => store.append(&key, payload),
        };
        match ticket {
            // So that what the next one finds does not depend on when that is.
            Ok(ticket) => ticket.wait().unwrap(),
            Err(error) => panic!("{error}"),
        }
    }
}

#[track_caller]
fn is_sound(volume: &MemVolume, elsewhere: &Elsewhere) {
    let report = elsewhere.options(1).check_on(Arc::new(volume.clone()), None).unwrap();
    assert!(report.is_sound(), "{:?}", report.findings);
}

#[test]
fn whatever_was_offloaded_the_store_answers_as_before() {
    let (mut runs, mut merged) = (0, 0);
    for seed in 0..30 {
        let (volume, elsewhere) = (MemVolume::new(seed), Elsewhere::default());
        let mut rng = Rng::new(seed);
        let mut store = bare(seed).create_on(Arc::new(volume.clone())).unwrap();
        // The same is done to a store that never offloads.
        let twin = bare(seed).create_on(Arc::new(MemVolume::new(seed))).unwrap();
        for step in 0..40 {
            let (what, times) = (rng.next(), rng.below(60));
            act(&store, &mut Rng::new(what), times);
            act(&twin, &mut Rng::new(what), times);
            match rng.below(10) {
                0 => store.compact().unwrap(),
                1 => store.checkpoint().unwrap(),
                2..4 => {
                    elsewhere.keep(&store);
                    let before = contents(&store).unwrap();
                    let most = rng.below(100_000);
                    let offloaded = elsewhere.offload(&store, most).unwrap();
                    assert!(contents(&store).unwrap() == before, "seed {seed}, step {step}");
                    runs += offloaded.runs;
                }
                4 => {
                    store.close().unwrap();
                    drop(store);
                    is_sound(&volume, &elsewhere);
                    store = elsewhere.options(seed).open_on(Arc::new(volume.clone())).unwrap();
                }
                5 => while store.step().unwrap() {},
                _ => {}
            }
            if step % 8 == 7 {
                assert!(contents(&store).unwrap() == contents(&twin).unwrap(), "seed {seed}, step {step}");
            }
        }
        merged += store.info().unwrap().maintenance.compactions;
        // All of it is there for whoever takes it from a view: also what lies elsewhere.
        let view = store.view().unwrap();
        let copy = bare(seed).copy_on(Arc::new(MemVolume::new(seed)), &view).unwrap();
        assert!(contents(&copy).unwrap() == seen(&view));
        assert!(copy.info().unwrap().runs.iter().all(|run| !run.offloaded));
        copy.compact().unwrap();
        assert!(contents(&copy).unwrap() == seen(&view));
        let new = bare(seed).create_on(Arc::new(MemVolume::new(seed))).unwrap();
        new.import().view(&view, "").unwrap();
        assert!(contents(&new).unwrap() == contents(&store).unwrap());
    }
    assert!(runs > 100 && merged > 15, "{runs} {merged}");
}

/// Space is given back, the oldest goes first, and no more than has to.
#[test]
fn the_volume_holds_what_is_new() {
    let (volume, elsewhere) = (MemVolume::new(1), Elsewhere::default());
    let store = bare(1).create_on(Arc::new(volume.clone())).unwrap();
    let mut rng = Rng::new(1);
    let runs = || store.info().unwrap().runs;
    let bytes = |runs: &[brooklet::RunInfo]| {
        runs.iter().filter(|run| !run.offloaded).map(|run| run.bytes).sum::<u64>()
    };
    for log in 0..400 {
        let payload: Vec<u8> = (0..8000).map(|_| rng.next() as u8).collect();
        drop(store.append(format!("log/{log}"), payload).unwrap());
        if log % 50 == 49 {
            store.checkpoint().unwrap();
        }
    }
    elsewhere.keep(&store);
    let (before, free) = (runs(), store.info().unwrap().heap_free);
    assert!(before.len() >= 8 && bytes(&before) > 3_200_000);
    let offloaded = elsewhere.offload(&store, 1_000_000).unwrap();
    let after = runs();
    assert_eq!(offloaded.left, bytes(&after));
    assert!((500_000..=1_000_000).contains(&offloaded.left), "{offloaded:?}");
    assert_eq!(offloaded.runs, after.iter().filter(|run| run.offloaded).count());
    assert!(after.is_sorted_by_key(|run| run.offloaded), "the oldest went");
    assert_eq!(
        after.iter().map(|run| run.id).collect::<Vec<_>>(),
        before.iter().map(|run| run.id).collect::<Vec<_>>()
    );
    let info = store.info().unwrap();
    let held = info.size - info.heap_offset - info.heap_free;
    assert!(held <= offloaded.left + 100_000, "{held} bytes are held, and {free} were free");
    assert_eq!(elsewhere.offload(&store, 1_000_000).unwrap().runs, 0);
    // One that nobody keeps does not go, nor do those that are newer.
    store.append("new", "entry").unwrap().wait().unwrap();
    store.checkpoint().unwrap();
    let newest = runs()[0].id;
    assert_eq!(elsewhere.offload(&store, 0).unwrap().left, bytes(&runs()[..1]));
    assert!(runs()[0].id == newest && runs()[1].offloaded);
    // A reader keeps what it reads from.
    let view = store.view().unwrap();
    elsewhere.keep(&store);
    assert_eq!(elsewhere.offload(&store, 0).unwrap().left, 0);
    assert_eq!(seen(&view), contents(&store).unwrap());
    drop(view);
    store.close().unwrap();
    drop(store);
    is_sound(&volume, &elsewhere);
    let open = |options: Options| options.create(Create::Never).open_on(Arc::new(volume.clone()));
    assert!(matches!(open(bare(1)), Err(Error::PartsNeeded { .. })));
    assert!(matches!(open(bare(1).read_only(true)), Err(Error::PartsNeeded { .. })));
    assert_eq!(open(elsewhere.options(1).read_only(true)).unwrap().scan("").unwrap().count(), 401);
}

/// A part that is not kept as it was does not become the only one.
#[test]
fn what_is_damaged_elsewhere_does_not_go() {
    let store = bare(1).create_on(Arc::new(MemVolume::new(1))).unwrap();
    act(&store, &mut Rng::new(1), 40);
    let elsewhere = Elsewhere::default();
    elsewhere.keep(&store);
    let before = contents(&store).unwrap();
    let sound = elsewhere.0.lock().unwrap().clone();
    let (name, data) = sound.iter().next_back().unwrap();
    for at in (0..data.len()).step_by(data.len() / 60) {
        let mut damaged = data.to_vec();
        damaged[at] ^= 1;
        elsewhere.0.lock().unwrap().insert(*name, damaged.into());
        let error = elsewhere.offload(&store, 0).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "byte {at}: {error}");
        assert!(contents(&store).unwrap() == before);
        elsewhere.0.lock().unwrap().extend(sound.clone());
    }
    let mut told = 0;
    let offloaded = store.offload(
        0,
        |name| elsewhere.get(name),
        |done| {
            told = done.bytes;
            ControlFlow::Break(())
        },
    );
    assert!(offloaded.unwrap().runs == 0 && told > 0);
    assert!(elsewhere.offload(&store, 0).unwrap().left == 0 && contents(&store).unwrap() == before);
}

/// While it is out of reach commits go on, and what is new is read.
#[test]
fn what_is_out_of_reach_is_told() {
    /// The bytes, whether they are out of reach, and how often somebody asked.
    struct Switch(Bytes, Arc<Mutex<bool>>, Arc<AtomicU64>);
    impl Source for Switch {
        fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
            self.2.fetch_add(1, Ordering::Relaxed);
            if *self.1.lock().unwrap() {
                Err(io::Error::other("out of reach"))
            } else {
                self.0.read(offset, len)
            }
        }
    }
    let (gone, elsewhere) = (Arc::new(Mutex::new(false)), Elsewhere::default());
    let asked = Arc::new(AtomicU64::new(0));
    let store = bare(1).bounds_cache(0).create_on(Arc::new(MemVolume::new(1))).unwrap();
    for log in 0..50 {
        drop(store.append(format!("old/{log}"), [7; 2000]).unwrap());
    }
    elsewhere.keep(&store);
    let kept = |name| Some(Arc::new(Switch((*elsewhere.get(name)?).clone(), gone.clone(), asked.clone())));
    assert_eq!(store.offload(0, kept, brooklet::Progress::ignore).unwrap().left, 0);
    *gone.lock().unwrap() = true;
    let error =
        store.read("old/7", ..).and_then(|mut entries| entries.next().expect("an entry")).unwrap_err();
    assert!(error.to_string().contains("out of reach"), "{error}");
    assert!(matches!(store.append("old/8", "more"), Err(Error::Io { .. })), "nobody knows where it ends");
    for log in 0..200 {
        store.append(format!("new/{log}"), [8; 2000]).unwrap().wait().unwrap();
    }
    store.checkpoint().unwrap();
    store.trim("new/7", 1).unwrap().wait().unwrap();
    store.delete("new/8").unwrap().wait().unwrap();
    let before = asked.load(Ordering::Relaxed);
    store.checkpoint().unwrap();
    store.compact().unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), before, "checkpoints and merges do without it");
    assert_eq!(store.bounds("new/7").unwrap().first, 1);
    *gone.lock().unwrap() = false;
    store.append("old/8", "more").unwrap().wait().unwrap();
    assert_eq!(store.read("old/8", ..).unwrap().count(), 2);
    assert_eq!(store.scan("").unwrap().count(), 249);
    // What is known to be lost is lost in what is here.
    store.trim("old/8", 1).unwrap().wait().unwrap();
    store.delete("old/9").unwrap().wait().unwrap();
    store.checkpoint().unwrap();
    assert!(store.info().unwrap().runs.iter().all(|run| !run.offloaded || run.dead == 0));
}

/// What is being merged stays until it is, and nothing that is elsewhere is merged.
#[test]
fn merges_and_offloading_keep_apart() {
    let (volume, elsewhere) = (MemVolume::new(1), Elsewhere::default());
    let store = bare(1).create_on(Arc::new(volume.clone())).unwrap();
    let mut rng = Rng::new(1);
    let mut run = |store: &Store| {
        let noise: Vec<u8> = (0..3000).map(|_| rng.next() as u8).collect();
        (0..30).for_each(|log| drop(store.append(format!("log/{log}"), &noise[log..]).unwrap()));
        store.checkpoint().unwrap();
    };
    let away = |store: &Store| store.info().unwrap().runs.iter().filter(|run| run.offloaded).count();
    // One by one, and many more than there would be otherwise.
    for n in 1..=20 {
        run(&store);
        elsewhere.keep(&store);
        elsewhere.offload(&store, 0).unwrap();
        while store.step().unwrap() {}
        assert_eq!(away(&store), n);
    }
    let mut going_on = 0;
    for steps in (0..60).step_by(4) {
        (0..14).for_each(|_| run(&store));
        for _ in 0..steps {
            store.step().unwrap();
        }
        let merging = store.info().unwrap().compacting;
        let before = (away(&store), contents(&store).unwrap());
        elsewhere.keep(&store);
        let offloaded = elsewhere.offload(&store, 0).unwrap();
        if merging {
            assert_eq!(offloaded.runs, 0, "all that is here is being merged, or newer");
            going_on += 1;
        }
        assert_eq!(away(&store), before.0 + offloaded.runs);
        while store.step().unwrap() {}
        assert!(contents(&store).unwrap() == before.1, "{steps} steps");
        elsewhere.keep(&store);
        elsewhere.offload(&store, 0).unwrap();
        assert!(contents(&store).unwrap() == before.1, "{steps} steps");
    }
    assert!(going_on > 2 && store.info().unwrap().maintenance.compactions > 10, "{going_on}");
    store.close().unwrap();
    drop(store);
    is_sound(&volume, &elsewhere);
}

/// The power goes, and operations fail, at each step: each run is here, or elsewhere.
#[test]
fn a_run_is_here_or_elsewhere() {
    let make = |volume: &MemVolume, elsewhere: &Elsewhere| {
        let store = bare(3).create_on(Arc::new(volume.clone())).unwrap();
        act(&store, &mut Rng::new(3), 120);
        elsewhere.keep(&store);
        store
    };
    let error = |operations| Fault::ErrorAfter { operations, kind: io::ErrorKind::Other, sticky: false };
    let full = |operations| Fault::ErrorAfter { operations, kind: io::ErrorKind::StorageFull, sticky: false };
    let (mut here, mut there) = (0, 0);
    for fault in [&Fault::PowerOffAfter as &dyn Fn(u64) -> Fault, &error, &full] {
        for after in 0.. {
            let (volume, elsewhere) = (MemVolume::new(after), Elsewhere::default());
            let store = make(&volume, &elsewhere);
            let want = contents(&store).unwrap();
            volume.fail(fault(after));
            let offloaded = elsewhere.offload(&store, 0);
            if let (Err(Error::Full { .. }), true) = (&offloaded, after % 2 == 0) {
                // It goes on, and so does this.
                assert!(contents(&store).unwrap() == want);
                elsewhere.offload(&store, 0).unwrap();
            }
            store.abandon();
            let disk = MemVolume::from_image(volume.crash(), after);
            let found = elsewhere.options(1).create(Create::Never).open_on(Arc::new(disk.clone())).unwrap();
            assert!(contents(&found).unwrap() == want, "after {after}");
            let elsewhere_now = found.info().unwrap().runs.iter().filter(|run| run.offloaded).count();
            (here, there) = (here + usize::from(elsewhere_now == 0), there + usize::from(elsewhere_now > 0));
            act(&found, &mut Rng::new(after), 10);
            found.close().unwrap();
            drop(found);
            is_sound(&disk, &elsewhere);
            if offloaded.is_ok_and(|offloaded| offloaded.left == 0) && after > 0 {
                break;
            }
        }
    }
    assert!(here > 5 && there > 10, "{here} {there}");
}
