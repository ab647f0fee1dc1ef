//! Names that a power cut takes back, or keeps without what came before: wherever the making of a
//! store ends, there is a whole store or none.

use std::io::ErrorKind::{NotFound, Other, StorageFull};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brooklet::io::{Fault, Files, ManualClock, MemFiles};
use brooklet::{Create, Error, Options, Store};

/// Outcomes that are drawn of each cut among the names, and of each within a volume.
const DRAWS: (u64, u64) = (16, 3);

/// Where a store lies: its data, and maybe its ring, in the same folder or in another.
struct Place {
    data: PathBuf,
    ring: Option<PathBuf>,
    _folder: tempfile::TempDir,
}

impl Place {
    fn all() -> Vec<Self> {
        let place = |ring: Option<&str>| {
            let folder = tempfile::tempdir().unwrap();
            std::fs::create_dir(folder.path().join("other")).unwrap();
            // Paths are resolved on this machine; nothing else is there.
            let root = folder.path().canonicalize().unwrap();
            Self { data: root.join("data"), ring: ring.map(|ring| root.join(ring)), _folder: folder }
        };
        vec![place(None), place(Some("ring")), place(Some("other/ring"))]
    }

    fn options(&self, files: &MemFiles) -> Options {
        let options = Options::new().ring_size(64 << 10).max_payload(8 << 10).threads(false);
        let options =
            options.clock(Arc::new(ManualClock::default())).rng_seed(1).files(Arc::new(files.clone()));
        self.ring.iter().fold(options, |options, ring| options.ring_at(ring))
    }

    /// Opens the store, makes it where it is missing, and has it acknowledge an entry.
    fn make(&self, files: &MemFiles) -> Result<(), Error> {
        let store = self.options(files).open(&self.data)?;
        store.append("log", "entry")?.wait()?;
        Ok(())
    }

    /// What is there is a whole store or none, and a store can be made then. `made`: an entry was
    /// acknowledged.
    fn check(&self, files: &MemFiles, made: bool, story: &str) {
        let there = |path: &Path| files.exists(path).unwrap();
        let read = |store: &Store| match store.read("log", ..) {
            Err(Error::UnknownLog { .. }) => 0,
            entries => entries.unwrap().map(Result::unwrap).count(),
        };
        match self.options(files).create(Create::Never).open(&self.data) {
            Ok(store) => assert!(read(&store) >= 1 || !made, "{story}: the entry is lost"),
            Err(Error::Io { cause, .. }) if cause.kind() == NotFound && !there(&self.data) => {
                assert!(!made, "{story}: the store is lost");
                // By itself a ring is in nobody's way; the error says what to do.
                if let Some(ring) = self.ring.as_deref().filter(|ring| there(ring)) {
                    // Who wants a new one does not wait for its data to appear.
                    let new = self.options(files).create(Create::New);
                    let refused = new.open(&self.data).unwrap_err();
                    assert!(refused.to_string().contains(&ring.display().to_string()), "{story}: {refused}");
                    files.remove(ring).unwrap();
                }
                self.make(files).unwrap_or_else(|error| panic!("{story}: no store can be made: {error}"));
            }
            Err(error) => panic!("{story}: half a store: {error}"),
        }
    }

    fn cut(&self, files: &MemFiles, draws: u64, made: bool, story: &str) {
        for draw in 0..draws {
            self.check(&files.crashed(draw), made, &format!("{story}, outcome {draw}"));
        }
    }
}

#[test]
pub fn a_power_cut_leaves_a_whole_store_or_none() {
    for place in Place::all() {
        let whole = MemFiles::new(1);
        place.make(&whole).unwrap();
        place.cut(&whole, DRAWS.0, true, "after all of it");
        for at in 0..whole.operations() {
            let files = MemFiles::new(1);
            files.cut_after(at);
            let made = place.make(&files).is_ok();
            assert!(!made, "the power went off");
            place.cut(&files, DRAWS.0, made, &format!("{:?}: cut at the name operation {at}", place.ring));
        }
        for (nth, (path, volume)) in whole.volumes().iter().enumerate() {
            for at in 0..volume.operations() {
                let files = MemFiles::new(1);
                files.fail_volume(nth as u64, Fault::PowerOffAfter(at));
                let made = place.make(&files).is_ok();
                place.cut(&files, DRAWS.1, made, &format!("cut at the operation {at} of {}", path.display()));
            }
        }
    }
}

#[test]
pub fn an_error_leaves_a_whole_store_or_none() {
    for place in Place::all() {
        let whole = MemFiles::new(1);
        place.make(&whole).unwrap();
        for (at, kind) in (0..whole.operations()).flat_map(|at| [(at, Other), (at, StorageFull)]) {
            let files = MemFiles::new(1);
            files.fail_after(at, kind);
            let made = place.make(&files).is_ok();
            let story = format!("{:?}: {kind} at the name operation {at}", place.ring);
            place.cut(&files, DRAWS.0, made, &story);
            place.check(&files, made, &story);
            // Whatever it was, the next attempt ends with a store, or says which file is in its
            // way.
            place.cut(&files, DRAWS.0, place.make(&files).is_ok(), &format!("{story}, and another attempt"));
        }
    }
}
