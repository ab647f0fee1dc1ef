//! Acknowledgements that wait for the mirror.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use brooklet::io::MemVolume;
use brooklet::{LocalLog, Mirror, MirrorHandle, MirrorOptions, Options, SealedBlock, Waits};

/// A mirror that keeps at once what it takes.
#[derive(Default)]
struct Keeps {
    handle: OnceLock<MirrorHandle>,
    taken: AtomicU64,
}

impl Mirror for Keeps {
    fn open(&self, _: LocalLog) -> Result<(), String> {
        Ok(())
    }

    fn start(&self, handle: MirrorHandle) {
        assert!(self.handle.set(handle).is_ok());
    }

    fn take(&self, blocks: Vec<SealedBlock>) {
        let count = blocks.len() as u64;
        self.handle.get().unwrap().kept(self.taken.fetch_add(count, Ordering::Relaxed) + count);
    }
}

/// A commit that somebody waits for does not rest for the linger.
#[test]
fn waiting_for_a_time_has_the_commit_written_at_once() {
    let mirror = MirrorOptions::new(Arc::new(Keeps::default())).waits(Waits::Local).kept_space("there");
    let options = Options::new().linger(Duration::from_secs(3600)).mirror(mirror);
    let store = options.create_on(Arc::new(MemVolume::new(1))).unwrap();
    for key in ["here/log", "there/log"] {
        let ticket = store.append(key, "entry").unwrap();
        assert!(ticket.wait_timeout(Duration::from_secs(30)).unwrap(), "{key}");
        assert!(ticket.is_done());
    }
}
