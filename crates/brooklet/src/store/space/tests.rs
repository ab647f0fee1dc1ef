use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use brooklet_io::{Clock, ManualClock, MemVolume};

use crate::run::Run;
use crate::{Options, Retention, SpaceConfig, Store};

/// A clock that notes how many hold a run when somebody looks at the wall time.
#[derive(Debug, Default)]
struct Looking {
    clock: ManualClock,
    run: Mutex<Weak<Run>>,
    most: AtomicUsize,
}

impl Clock for Looking {
    fn now(&self) -> Duration {
        self.clock.now()
    }

    fn wall(&self) -> Duration {
        let holders = self.run.lock().unwrap().strong_count();
        self.most.fetch_max(holders, Ordering::Relaxed);
        self.clock.wall()
    }
}

/// A listing keeps the room of merged runs, and each of these commits may wait for that room. A
/// commit looks at the wall time for the limit of age.
#[test]
fn no_listing_goes_on_while_a_space_sets_limits_on_its_logs() {
    let clock = Arc::new(Looking::default());
    let options = Options::new().ring_size(1 << 20).memory_budget(1 << 20).max_payload(64 << 10);
    let options = options.threads(false).clock(clock.clone()).rng_seed(5);
    let store: Store = options.create_on(Arc::new(MemVolume::new(1))).unwrap();
    let space = store.create_space("s", SpaceConfig::new()).unwrap();
    let keys: Vec<String> = (0..200).map(|n| format!("{n}")).collect();
    for key in &keys {
        space.append(key, "entry").unwrap().wait().unwrap();
    }
    store.checkpoint().unwrap();
    let run = Arc::downgrade(store.inner().state().runs.iter().next().unwrap());
    let before = run.strong_count();
    *clock.run.lock().unwrap() = run;
    let aged = Retention::new().age(Duration::from_secs(3600));
    space.configure(SpaceConfig::new().retention(aged)).unwrap();
    assert_eq!(clock.most.load(Ordering::Relaxed), before);
    for key in &keys {
        assert_eq!(space.retention(key).unwrap(), aged);
    }
}
