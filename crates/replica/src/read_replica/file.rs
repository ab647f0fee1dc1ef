//! The file of a read replica: it follows the log, or is made from the backup and the log behind
//! it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use brooklet::{CaughtUp, Following, Kept, Options, SealedBlock, Store, View};
use brooklet_archive::Which;

use super::{Beside, ReadReplicaOptions};
use crate::error::Error;
use crate::making::{Making, io_error, remove, with_suffix};
use crate::place::StoreId;

/// Memory for the table of a backup's parts, in bytes.
const READ_AHEAD: usize = 32 << 20;

/// Bytes of blocks that are held until they are compared with a file that was found.
const PORTION: usize = 16 << 20;

pub(super) struct File {
    path: PathBuf,
    options: ReadReplicaOptions,
    /// Set when nobody needs the file any more.
    ends: Arc<AtomicBool>,
    beside: Arc<Mutex<Option<Beside>>>,
    log: Option<Log>,
    following: Option<Following>,
    /// The file that is made, or that has yet to show the blocks that came meanwhile.
    making: Option<Making>,
    /// Whether the file is opened again, after its store had stopped, or after an error while it
    /// was replaced. The log has had all of it.
    is_reopened: bool,
    /// The end of what readers saw in a store that has stopped: the next one shows no less.
    seen: u64,
    /// The end of what was read.
    read: u64,
    made_anew: u64,
}

/// The log that is read.
struct Log {
    store: StoreId,
    /// The backup behind which it begins.
    backup: Option<u64>,
    view: Option<View>,
    /// The end of the blocks before its begin.
    begin: u64,
    /// Whether no block was read yet.
    is_new: bool,
    /// What the next blocks are for.
    held: Held,
}

/// The blocks that are not shown yet.
enum Held {
    /// None: the file follows the log.
    Nothing,
    /// These are compared with the file that was found. They may be all since the log's begin.
    Compared { blocks: Vec<SealedBlock>, is_whole: bool },
    /// A file is made of all blocks since the log's begin.
    Made(Vec<SealedBlock>),
}

impl File {
    pub fn new(
        path: &Path,
        options: ReadReplicaOptions,
        ends: Arc<AtomicBool>,
        beside: Arc<Mutex<Option<Beside>>>,
    ) -> Self {
        Self {
            path: path.into(),
            options,
            ends,
            beside,
            log: None,
            following: None,
            making: None,
            is_reopened: false,
            seen: 0,
            read: 0,
            made_anew: 0,
        }
    }

    /// Takes the begin of the log, at a place in it: the next blocks may not continue those that
    /// were read before.
    pub fn begin(&mut self, store: StoreId, backup: Option<u64>, begin: u64) -> Result<(), Error> {
        while self.making.as_ref().is_some_and(Making::is_used) && !self.ends.load(Ordering::Relaxed) {
            self.go_on_making(PORTION)?;
        }
        // The log was trimmed past what was read for it.
        self.making = None;
        // A store that has stopped shows nothing more. Its file has what its last checkpoint had.
        let has_stopped = |it: &mut Following| it.store().activity().stopped.is_some();
        if let Some(stopped) = self.following.take_if(has_stopped) {
            self.seen = self.seen.max(stopped.end());
            stopped.release();
            self.is_reopened = true;
        }
        let held = match &self.following {
            Some(_) => Held::Nothing,
            None if self.path.exists() => Held::Compared { blocks: Vec::new(), is_whole: true },
            None => Held::Made(Vec::new()),
        };
        self.log = Some(Log { store, backup, view: None, begin, is_new: true, held });
        Ok(())
    }

    /// Takes the next blocks of the log.
    pub fn take(&mut self, new: Vec<SealedBlock>) -> Result<(), Error> {
        let (Some(last), Some(log)) = (new.last(), &mut self.log) else { return Ok(()) };
        self.read = last.end;
        let is_new = std::mem::replace(&mut log.is_new, false);
        if let Some(making) = &mut self.making {
            making.hold(&new)?;
            return self.go_on_making(PORTION.max(2 * bytes_of(&new)));
        }
        match (&mut log.held, &mut self.following) {
            (Held::Made(blocks), _) => {
                blocks.extend(new);
                self.make()
            }
            (Held::Compared { blocks, .. }, _) => {
                blocks.extend(new);
                if bytes_of(blocks) < PORTION { Ok(()) } else { self.compare(false) }
            }
            (Held::Nothing, Some(following)) => match take_beside(following, &new, &self.beside)? {
                CaughtUp::Done | CaughtUp::Ahead => Ok(()),
                CaughtUp::Outdated if is_new => {
                    log.held = Held::Made(new);
                    self.make()
                }
                CaughtUp::Outdated | CaughtUp::Apart => {
                    let end = following.end();
                    Err(Error::Diverged { from: new[0].begin.min(end), end })
                }
            },
            (Held::Nothing, None) => Ok(()),
        }
    }

    /// Takes that the log has nothing more at the moment.
    pub fn read_all(&mut self) -> Result<(), Error> {
        self.go_on_making(PORTION)?;
        match &self.log {
            Some(Log { held: Held::Compared { .. }, is_new: false, .. }) => self.compare(true),
            _ => Ok(()),
        }
    }

    /// Compares a file that was found with blocks of the log, and lets it catch up with them. A
    /// file with commits that the log lacks is not written: they would be shown, and their owner
    /// may yet ship them.
    fn compare(&mut self, is_all: bool) -> Result<(), Error> {
        let Some(log) = &mut self.log else { return Ok(()) };
        let Held::Compared { blocks, is_whole } = &mut log.held else { return Ok(()) };
        let options = &self.options.store;
        let done = options.clone().catch_up(&self.path, log.store.0, blocks, || false);
        match done.map_err(Error::Store)? {
            CaughtUp::Done => {
                log.held = Held::Nothing;
                let following = options.clone().follow(&self.path, log.store.0).map_err(Error::Store)?;
                self.following = Some(following);
                self.made_anew += u64::from(std::mem::take(&mut self.is_reopened));
                Ok(())
            }
            CaughtUp::Ahead if !is_all => {
                (*blocks, *is_whole) = (Vec::new(), false);
                Ok(())
            }
            CaughtUp::Outdated if *is_whole => {
                log.held = Held::Made(std::mem::take(blocks));
                self.make()
            }
            _ => {
                let end = end_of(options, &self.path).map_err(Error::Store)?;
                let from = blocks.first().map_or(self.read, |first| first.begin).min(end);
                Err(Error::Diverged { from, end })
            }
        }
    }

    /// Begins to make the file, once the log reaches the backup.
    fn make(&mut self) -> Result<(), Error> {
        let Some(log) = &mut self.log else { return Ok(()) };
        let Held::Made(blocks) = &mut log.held else { return Ok(()) };
        if let (None, Some(number)) = (&log.view, log.backup) {
            let backup = self.options.backups.backup(Which::Number(number))?;
            log.view = Some(backup.view(READ_AHEAD)?);
        }
        // The owner has made the backup some blocks behind the begin of the log.
        let from = log.view.as_ref().map_or(0, View::lsn);
        if blocks.last().is_none_or(|last| last.end < from) {
            return Ok(());
        }
        let needed = blocks.iter().position(|block| block.end > from);
        blocks.drain(..needed.unwrap_or(blocks.len() - 1));
        let kept = Kept { store: log.store.0, backup: log.view.take(), blocks: std::mem::take(blocks) };
        log.held = Held::Nothing;
        let (part, ends) = (self.part(), self.ends.clone());
        remove(&part)?;
        let goes_on = move || !ends.load(Ordering::Relaxed);
        self.making = Some(Making::start(&self.options.store, &part, kept, goes_on)?);
        Ok(())
    }

    /// Follows with the file once it is made, and shows the next of the blocks that came meanwhile.
    fn go_on_making(&mut self, most: usize) -> Result<(), Error> {
        let (Some(log), Some(mut making)) = (&self.log, self.making.take()) else { return Ok(()) };
        if !making.is_made()? {
            self.making = Some(making);
            return Ok(());
        }
        let store = log.store.0;
        if making.is_first_use() {
            self.replace(store)?;
        }
        let blocks = making.next_held(most)?;
        let shown = match &mut self.following {
            Some(following) if !blocks.is_empty() => take_beside(following, &blocks, &self.beside)?,
            _ => CaughtUp::Done,
        };
        if matches!(shown, CaughtUp::Outdated | CaughtUp::Apart) {
            let end = self.following.as_ref().map_or(0, Following::end);
            return Err(Error::Diverged { from: blocks[0].begin, end });
        }
        if making.holds() {
            self.making = Some(making);
        }
        Ok(())
    }

    /// Lets the file that was made take the place of the one before, and follows with it.
    fn replace(&mut self, store: u128) -> Result<(), Error> {
        let is_another = self.put_away()?;
        let part = self.part();
        std::fs::rename(&part, &self.path).map_err(|cause| io_error("renaming", &part, cause))?;
        self.is_reopened = true;
        let following = self.options.store.clone().follow(&self.path, store).map_err(Error::Store)?;
        self.following = Some(following);
        self.is_reopened = false;
        self.made_anew += u64::from(is_another);
        Ok(())
    }

    /// Returns the name of the file while it is made.
    fn part(&self) -> PathBuf {
        with_suffix(&self.path, ".new")
    }

    /// Moves a file aside that ends before the log begins, if the log may lack some of it. Returns
    /// whether there was a file.
    fn put_away(&mut self) -> Result<bool, Error> {
        if !self.path.exists() {
            return Ok(false);
        }
        let what = "the log was trimmed past the file of the replica: the file is made anew from the backup";
        if let Some(old) = self.following.take() {
            tracing::warn!(file = %self.path.display(), "{what}");
            self.is_reopened = true;
            // Those who read in it keep it until they end. The new file has all that it had.
            if let Err(error) = old.store().close() {
                tracing::warn!(%error, "the former file of the replica was not closed cleanly");
            }
            return Ok(true);
        }
        if self.is_reopened {
            // It followed the log, which has had all of it.
            tracing::warn!(file = %self.path.display(), "{what}");
            return Ok(true);
        }
        let names = (1_u64..).map(|number| with_suffix(&self.path, &format!(".replaced-{number}")));
        let is_free = |name: &PathBuf| std::fs::symlink_metadata(name).is_err();
        let aside = names.into_iter().find(is_free).expect("some number is free");
        tracing::warn!(file = %self.path.display(), aside = %aside.display(), "{what}");
        std::fs::rename(&self.path, &aside).map_err(|cause| io_error("renaming", &self.path, cause))?;
        Ok(true)
    }

    /// Closes the store, with all that it shows in the file.
    pub fn close(&mut self) -> Result<(), Error> {
        let is_made = self.making.take().is_none();
        let closed = self.following.take().map_or(Ok(()), Following::close).map_err(Error::Store);
        closed.and(if is_made { Ok(()) } else { remove(&self.part()) })
    }

    /// Returns what readers see. A file that was opened again has less at first than they saw
    /// before.
    fn visible(&self) -> Option<&Following> {
        self.following.as_ref().filter(|following| following.end() >= self.seen)
    }

    pub fn store(&self) -> Option<Store> {
        Some(self.visible()?.store().clone())
    }

    /// Returns whether readers see all that was read, and all before it: the log may have been
    /// trimmed past the file.
    pub fn is_current(&self) -> bool {
        let begin = self.log.as_ref().map_or(0, |log| log.begin);
        self.making.is_none() && self.visible().is_some_and(|following| following.end() >= begin)
    }

    /// Returns the end of what readers see.
    pub fn shown(&self) -> u64 {
        self.visible().map_or(0, Following::end)
    }

    /// Returns the end of what was read.
    pub fn read(&self) -> u64 {
        self.read.max(self.shown())
    }

    pub fn made_anew(&self) -> u64 {
        self.made_anew
    }
}

/// Shows blocks from within what was [attached](super::ReadReplica::attach).
fn take_beside(
    following: &mut Following,
    blocks: &[SealedBlock],
    beside: &Mutex<Option<Beside>>,
) -> Result<CaughtUp, Error> {
    // Held meanwhile: a caller that attaches something misses no part of a block.
    let beside = beside.lock().unwrap_or_else(PoisonError::into_inner);
    let taken = match &*beside {
        Some(beside) => following.take_beside(blocks, |logs, show| beside(logs, show)),
        None => following.take(blocks),
    };
    taken.map_err(Error::Store)
}

/// Returns the end of a file that is not open.
fn end_of(options: &Options, path: &Path) -> Result<u64, brooklet::Error> {
    let store = options.clone().read_only(true).open(path)?;
    let end = store.info()?.ring_head;
    store.close()?;
    Ok(end)
}

fn bytes_of(blocks: &[SealedBlock]) -> usize {
    blocks.iter().map(|block| block.bytes.len()).sum()
}

#[cfg(test)]
mod tests {
    use brooklet_archive::Bucket;
    use brooklet_archive::object_store::memory::InMemory;

    use super::*;

    /// Returns a file in a folder that follows the log of a store with one entry, and that store.
    fn follows(folder: &Path) -> (File, u128) {
        let path = folder.join("replica");
        let store = Options::new().open(&path).unwrap();
        store.append("log", "entry").unwrap().wait().unwrap();
        let id = store.info().unwrap().id;
        store.close().unwrap();
        drop(store);
        let options = ReadReplicaOptions::new(Bucket::of(Arc::new(InMemory::new()), "backups").unwrap());
        let mut file = File::new(&path, options, Arc::default(), Arc::default());
        file.following = Some(Options::new().follow(&path, id).unwrap());
        (file, id)
    }

    /// In the old state, a file that had followed the log was moved aside at the second try.
    #[test]
    fn a_file_that_followed_the_log_is_replaced_at_the_second_try() {
        let folder = tempfile::tempdir().unwrap();
        let (mut file, id) = follows(folder.path());
        let part = file.part();
        for is_lost in [true, false] {
            file.begin(StoreId(id), None, 0).unwrap();
            let kept = Kept { store: id, backup: None, blocks: Vec::new() };
            let mut making = Making::start(&Options::new(), &part, kept, || true).unwrap();
            while !making.is_made().unwrap() {
                std::thread::yield_now();
            }
            if is_lost {
                std::fs::remove_file(&part).unwrap();
            }
            file.making = Some(making);
            assert_eq!(file.go_on_making(PORTION).is_err(), is_lost);
            assert_eq!((file.store().is_some(), file.made_anew()), (!is_lost, u64::from(!is_lost)));
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no other file stays");
    }

    /// In the old state, a file counted as current past which the log was trimmed, as long as the
    /// log did not reach the backup; and one that was opened again showed an earlier state.
    #[test]
    fn a_file_shows_no_less_than_before_and_is_current_if_it_reaches_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let (mut file, id) = follows(folder.path());
        let end = file.following.as_ref().unwrap().end();
        for (begin, is_current) in [(0, true), (end, true), (end + 1, false)] {
            file.begin(StoreId(id), None, begin).unwrap();
            assert_eq!((file.is_current(), file.shown()), (is_current, end), "a log from {begin} on");
        }
        file.begin(StoreId(id), None, 0).unwrap();
        for (seen, is_shown) in [(end, true), (end + 1, false)] {
            file.seen = seen;
            assert_eq!((file.store().is_some(), file.is_current()), (is_shown, is_shown), "after {seen}");
            assert_eq!(file.shown(), if is_shown { end } else { 0 });
        }
    }
}
