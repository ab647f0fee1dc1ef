//! Names of volumes in memory, on a model of the guarantees of file systems for names.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::files::Files;
use crate::seeded::bug;
use crate::{Fault, FileOptions, MemVolume, OpenMode, Rng, Volume};

/// A set of volumes in memory with paths. Clones are handles to the same set.
///
/// A change of names is visible immediately. Until the folder is synced, a power cut may undo each
/// change separately, and may keep later ones. The same power cut loses the unflushed writes of the
/// volumes.
#[derive(Clone)]
pub struct MemFiles {
    state: Arc<Mutex<State>>,
}

struct State {
    rng: Rng,
    /// The visible names.
    seen: Tree,
    /// The names that survive every power cut.
    durable: Tree,
    /// Changes that a power cut may undo, the oldest first.
    pending: Vec<Change>,
    made: u64,
    operations: u64,
    /// The planned failure of a name operation, and its time.
    fault: Option<(u64, NameFault)>,
    /// A fault for the nth created volume.
    of_volume: Option<(u64, Fault)>,
    is_off: bool,
}

/// A volume and its unique number.
type Inode = (u64, MemVolume);
type Tree = BTreeMap<PathBuf, Inode>;

/// Names that are added or removed together.
type Change = Vec<(PathBuf, Option<Inode>)>;

#[derive(Clone, Copy)]
enum NameFault {
    PowerOff,
    Error(io::ErrorKind),
}

impl MemFiles {
    /// Creates an empty set; `seed` seeds the random numbers of its volumes.
    pub fn new(seed: u64) -> Self {
        Self::of(Tree::new(), seed)
    }

    fn of(tree: Tree, seed: u64) -> Self {
        let state = State {
            rng: Rng::new(seed),
            made: tree.values().map(|(nth, _)| nth + 1).max().unwrap_or(0),
            seen: tree.clone(),
            durable: tree,
            pending: Vec::new(),
            operations: 0,
            fault: None,
            of_volume: None,
            is_off: false,
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Returns the number of changes and syncs of names so far.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Switches the power off during the name operation after `operations` more.
    pub fn cut_after(&self, operations: u64) {
        let mut state = self.state();
        state.fault = Some((state.operations + operations, NameFault::PowerOff));
    }

    /// Makes the name operation after `operations` more fail, once, without an effect.
    pub fn fail_after(&self, operations: u64, kind: io::ErrorKind) {
        let mut state = self.state();
        state.fault = Some((state.operations + operations, NameFault::Error(kind)));
    }

    /// Plans a fault for the `nth` created volume, counted from 0.
    pub fn fail_volume(&self, nth: u64, fault: Fault) {
        self.state().of_volume = Some((nth, fault));
    }

    /// Returns the volumes that have names, with these names.
    pub fn volumes(&self) -> Vec<(PathBuf, MemVolume)> {
        self.state().seen.iter().map(|(path, (_, volume))| (path.clone(), volume.clone())).collect()
    }

    /// Returns a random outcome of a power cut now, for names and volumes.
    pub fn crashed(&self, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let state = self.state();
        let mut tree = state.durable.clone();
        for change in &state.pending {
            if rng.percent(50) {
                apply(&mut tree, change);
            }
        }
        let mut crashed = BTreeMap::new();
        for (nth, volume) in tree.values_mut() {
            let left =
                crashed.entry(*nth).or_insert_with(|| MemVolume::from_image(volume.crash(), rng.next()));
            *volume = left.clone();
        }
        Self::of(tree, rng.next())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn apply(tree: &mut Tree, change: &Change) {
    for (path, inode) in change {
        match inode {
            Some(inode) => drop(tree.insert(path.clone(), inode.clone())),
            None => drop(tree.remove(path)),
        }
    }
}

impl State {
    /// Returns an error if the power of any volume is off: all volumes share one power supply.
    fn check_power(&mut self) -> io::Result<()> {
        self.is_off |= self.seen.values().any(|(_, volume)| volume.is_off());
        if self.is_off { Err(io::Error::other("the power is off")) } else { Ok(()) }
    }

    /// Counts an operation. If the power goes off during the operation, the effect stays pending.
    fn begin(&mut self) -> io::Result<bool> {
        self.check_power()?;
        let nth = self.operations;
        self.operations += 1;
        match self.fault.take_if(|(at, _)| *at == nth) {
            None => Ok(true),
            Some((_, NameFault::Error(kind))) => Err(io::Error::new(kind, "a planned fault")),
            Some((_, NameFault::PowerOff)) => {
                self.is_off = true;
                self.seen.values().for_each(|(_, volume)| volume.power_off());
                Ok(false)
            }
        }
    }

    /// Changes names; `is_on` is the result of [`begin`](Self::begin).
    fn change(&mut self, change: Change, is_on: bool) -> io::Result<()> {
        apply(&mut self.seen, &change);
        self.pending.push(change);
        if is_on { Ok(()) } else { self.check_power() }
    }

    fn find(&self, path: &Path) -> io::Result<Inode> {
        self.seen.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync(&mut self, folder: Option<&Path>) -> io::Result<()> {
        if !self.begin()? {
            return self.check_power();
        }
        let durable = &mut self.durable;
        self.pending.retain(|change| {
            // A change that spans two folders is durable with the first synced one, as in a
            // journal.
            let is_here = change.iter().any(|(path, _)| path.parent() == folder);
            if is_here {
                apply(durable, change);
            }
            !is_here
        });
        Ok(())
    }
}

impl fmt::Debug for MemFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.state().seen.keys()).finish()
    }
}

impl Files for MemFiles {
    fn open(&self, path: &Path, mode: OpenMode, _: FileOptions) -> io::Result<Arc<dyn Volume>> {
        let mut state = self.state();
        state.check_power()?;
        if mode != OpenMode::Create {
            let (_, volume) = state.find(path)?;
            if mode == OpenMode::ReadWrite && !bug("found-name-is-believed") {
                state.sync(path.parent())?;
            }
            return Ok(Arc::new(volume));
        }
        if state.seen.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let is_on = state.begin()?;
        let (nth, volume) = (state.made, MemVolume::new(state.rng.next()));
        state.made += 1;
        if let Some((_, fault)) = state.of_volume.take_if(|(which, _)| *which == nth) {
            volume.fail(fault);
        }
        state.change(vec![(path.into(), Some((nth, volume.clone())))], is_on)?;
        if let Err(error) = state.sync(path.parent()) {
            // Like the system's files: the name would be in the way of the next creation.
            if !state.is_off {
                state.change(vec![(path.into(), None)], true)?;
            }
            return Err(error);
        }
        Ok(Arc::new(volume))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let mut state = self.state();
        state.check_power()?;
        Ok(state.seen.contains_key(path))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.check_power()?;
        if state.seen.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = state.find(from)?;
        let is_on = state.begin()?;
        state.change(vec![(to.into(), Some(inode))], is_on)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let inode = state.find(from)?;
        let is_on = state.begin()?;
        state.change(vec![(to.into(), Some(inode)), (from.into(), None)], is_on)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.check_power()?;
        state.find(path)?;
        let is_on = state.begin()?;
        state.change(vec![(path.into(), None)], is_on)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.state().sync(path.parent())
    }
}
