//! The file of a standby: it follows the log, so that a takeover copies no backup.

#[cfg(test)]
mod tests;

use std::cell::OnceCell;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use brooklet::{CaughtUp, Kept, Options, SealedBlock, View, Waits};
use brooklet_replica::{Error, Followed, Making, StoreId};

use super::{APART, OUTDATED, Replication, UNREADABLE, are_whole, is_unreadable, with_suffix};

/// Bytes of blocks from which on the file catches up. A takeover replays at most so many.
pub(super) const PORTION: usize = 16 << 20;
/// Portions that are held for a file that cannot be opened for the moment.
const MOST: usize = 4;
/// Longest time for which blocks wait for a portion: a file that is killed with fewer blocks than
/// the next backup has would have to be made anew.
const LONGEST: Duration = Duration::from_secs(60);
/// Time after which a file that could not follow is tried again.
const COLD: Duration = Duration::from_secs(600);
/// Bytes, and time, after which the file catches up while the store is about to move here.
const NEAR: usize = 4 << 20;
const NEARLY: Duration = Duration::from_millis(500);
/// Longest time of merging after a portion.
const MERGING: Duration = Duration::from_secs(2);

/// The file of a host that stands by.
pub(super) struct Warm<'a> {
    host: &'a Replication,
    options: &'a Options,
    portion: usize,
    log: Option<Log>,
    /// The file that is made, or that has yet to catch up with what came meanwhile.
    making: Option<Making>,
    /// What the file may lack.
    blocks: Vec<SealedBlock>,
    bytes: usize,
    /// When the file last caught up.
    last: Instant,
    /// When the next try follows one that failed.
    next_try: Instant,
    /// When the file was last written, if the log had all of it then.
    is_of_the_log: Option<SystemTime>,
    /// Whether the file has commits that the log lacks, and whether it was moved aside.
    is_apart: bool,
    is_aside: bool,
    /// Whether the file was found to continue in this log.
    follows: bool,
    /// Whether the store is about to move here.
    approaches: bool,
    /// Set once the file cannot follow: the takeover looks at it, and makes it anew.
    is_cold: bool,
    /// Set if the log is to be read again later: the reason may be gone, or the file of no use.
    cold_since: Option<Instant>,
}

/// The log that is read.
struct Log {
    store: StoreId,
    /// The backup behind which it begins.
    backup: Option<u64>,
    view: Option<View>,
    /// Whether all blocks since its begin are held.
    is_whole: bool,
}

impl<'a> Warm<'a> {
    pub fn new(host: &'a Replication, options: &'a Options, portion: usize) -> Self {
        let (log, blocks, last) = (None, Vec::new(), Instant::now());
        let (next_try, is_of_the_log, is_cold, cold_since) = (last, None, false, None);
        Self {
            host,
            options,
            portion,
            log,
            making: None,
            blocks,
            bytes: 0,
            last,
            next_try,
            is_of_the_log,
            is_apart: false,
            is_aside: false,
            follows: false,
            approaches: false,
            is_cold,
            cold_since,
        }
    }

    /// Takes what the log has next.
    pub fn take(&mut self, followed: Followed) {
        match followed {
            Followed::Begin { store, backup } => {
                self.finish();
                self.log = Some(Log { store, backup, view: None, is_whole: true });
                (self.is_cold, self.cold_since, self.follows) = (false, None, false);
            }
            Followed::Owner { .. } => {}
            Followed::Blocks(_) if self.is_cold => {}
            Followed::Blocks(blocks) if self.making.is_some() => self.go_on_making(&blocks, true),
            Followed::Blocks(blocks) => {
                self.bytes += bytes_of(&blocks);
                self.blocks.extend(blocks);
                let is_due = self.bytes >= self.portion || self.last.elapsed() >= LONGEST;
                let is_next = self.next_try <= Instant::now();
                if self.has_most() || (is_due || !self.host.path.exists()) && is_next {
                    self.catch_up(true);
                }
            }
        }
    }

    /// Brings the file, if there is one, to the end of what was read, at the end of the wait. The
    /// store merges its runs once it is open. A takeover makes a file only while it writes signs:
    /// this host gives up a file that is not whole yet.
    pub fn finish(&mut self) {
        self.catch_up_with_held();
        self.give_up_making();
        self.log.iter_mut().for_each(|log| log.is_whole = false);
        if self.host.path.exists() {
            self.catch_up(false);
        }
        self.forget();
    }

    /// Brings the file to the end of what was read every now and then: the store is about to move
    /// here. Returns whether the file has nearly all of it.
    pub fn approach(&mut self) -> bool {
        self.approaches = true;
        self.catch_up_with_held();
        if self.making.is_some() {
            return false;
        }
        // A file that the log was trimmed past would be made anew while nobody serves.
        let is_due = !self.follows || self.bytes >= NEAR || self.last.elapsed() >= NEARLY;
        if is_due && self.next_try <= Instant::now() {
            self.catch_up(false);
        }
        self.follows && !self.is_cold && self.bytes < NEAR && self.host.path.exists()
    }

    /// Holds blocks for the file that is made. Once it is made, lets it catch up with the rest of
    /// them.
    fn go_on_making(&mut self, blocks: &[SealedBlock], merges: bool) {
        if let Err(error) = self.try_to_go_on(blocks, merges) {
            tracing::warn!(%error, "the file of the store could not be made: a takeover takes longer");
            self.give_up_making();
            (self.is_cold, self.cold_since) = (true, Some(Instant::now()));
            self.forget();
        }
    }

    /// Gives up the file that is made, or that has yet to catch up with what came meanwhile. It may
    /// be there already, and the log has all of it.
    fn give_up_making(&mut self) {
        if let Some(making) = self.making.take()
            && !making.is_used()
        {
            self.is_of_the_log = making.end();
        }
    }

    fn try_to_go_on(&mut self, blocks: &[SealedBlock], merges: bool) -> Result<(), Error> {
        let Some(making) = &mut self.making else { return Ok(()) };
        making.hold(blocks)?;
        if !making.is_made()? {
            return Ok(());
        }
        if making.is_first_use() {
            (self.follows, self.is_of_the_log) = (true, making.written());
            tracing::info!("the file of the store was made from the bucket");
        }
        // They stay if the file could not be opened for the moment.
        if self.blocks.is_empty() {
            self.blocks = making.next_held(self.portion.max(2 * bytes_of(blocks)))?;
            self.bytes = bytes_of(&self.blocks);
        }
        if self.next_try <= Instant::now() {
            self.catch_up(merges);
        }
        let is_done = |making: &Making| !making.holds();
        if self.is_cold || self.blocks.is_empty() && self.making.as_ref().is_some_and(is_done) {
            self.making = None;
        }
        Ok(())
    }

    /// Lets a file that is made catch up with all that came meanwhile.
    fn catch_up_with_held(&mut self) {
        loop {
            self.go_on_making(&[], false);
            // An error may have left blocks.
            let has_next = self.making.as_ref().is_some_and(Making::is_used) && self.blocks.is_empty();
            if !has_next || self.host.stop.is_cancelled() {
                break;
            }
        }
    }

    /// Returns the options of the file.
    pub fn options(&self) -> &Options {
        self.options
    }

    /// Returns whether the log should be read from its begin again: the file could not follow for a
    /// while, and the reason may be gone; or all of the log may show that the file is of no use.
    pub fn begins_again(&self) -> bool {
        self.is_aside || self.cold_since.is_some_and(|since| since.elapsed() >= COLD)
    }

    /// Returns whether no more blocks may wait for the file.
    fn has_most(&self) -> bool {
        // While a file is made, any number of blocks may wait.
        let made = self.making.as_ref().filter(|making| making.is_used());
        let held = made.map_or(0, Making::bytes);
        self.bytes as u64 + held >= (MOST * self.portion.max(PORTION)) as u64
    }

    /// Brings the file to the end of what was read. If that fails, the file stays as it is.
    fn catch_up(&mut self, merges: bool) {
        if self.blocks.is_empty() || self.is_cold {
            return;
        }
        self.last = Instant::now();
        // Merges would take the time in which the store is to move here.
        let done = self.follow(merges && !self.approaches);
        // A file that is ahead may have commits that the log lacks.
        self.follows |= matches!(done, Ok(Some(CaughtUp::Done)));
        match done {
            Ok(None) => self.forget(),
            Ok(Some(CaughtUp::Done)) => {
                tracing::debug!(bytes = self.bytes, "the file of the store has caught up with the log");
                self.is_of_the_log = written(&self.host.path);
                self.forget();
            }
            Ok(Some(CaughtUp::Ahead)) => self.forget(),
            // More blocks of the log are needed.
            Ok(Some(CaughtUp::Outdated)) if !self.has_most() => {}
            Ok(Some(CaughtUp::Apart)) if self.is_apart && self.host.waits == Waits::Kept => {
                self.put_aside(APART);
            }
            Ok(Some(CaughtUp::Outdated | CaughtUp::Apart)) => {
                tracing::warn!(
                    "the file of the store does not continue in the log: a takeover looks at it, and may make it anew"
                );
                self.is_cold = true;
                // The blocks that would show more may be forgotten: the whole log shows whether the
                // file is of use.
                if self.host.waits == Waits::Kept {
                    self.cold_since = Some(Instant::now());
                }
                self.forget();
            }
            Err(error) if is_of_a_moment(&error) && !self.has_most() => {
                tracing::warn!(%error, "the file of the store does not follow the log: the next try follows");
                self.next_try = Instant::now() + LONGEST;
            }
            Err(Error::Store(error)) if self.is_of_the_file(&error) && self.host.waits == Waits::Kept => {
                tracing::warn!(%error, "the file of the store cannot be opened");
                self.put_aside(UNREADABLE);
            }
            Err(error) => {
                let what = match &error {
                    Error::Store(error) if self.is_of_the_file(error) => {
                        "the file of the store cannot be opened, so this host cannot take the store over: move the file aside"
                    }
                    _ => "the file of the store does not follow the log: a takeover takes longer",
                };
                tracing::warn!(%error, "{what}");
                (self.is_cold, self.cold_since) = (true, Some(Instant::now()));
                self.forget();
            }
        }
    }

    /// Returns whether the file is the reason of an error, and not the blocks.
    fn is_of_the_file(&self, error: &brooklet::Error) -> bool {
        is_unreadable(error) && are_whole(&self.blocks)
    }

    /// Moves a file aside that is of no use, so that another one is made from the begin of the log.
    fn put_aside(&mut self, why: &str) {
        match self.host.move_aside(why) {
            Ok(()) => self.is_aside = true,
            Err(error) => {
                tracing::warn!(%error, "the file of the store stays: a takeover looks at it");
                self.cold_since = Some(Instant::now());
            }
        }
        self.is_cold = true;
        self.forget();
    }

    /// Returns [`CaughtUp::Outdated`] if a file would have to be made, and cannot be made yet.
    /// Returns `None` once a file is being made of all that was read.
    fn follow(&mut self, merges: bool) -> Result<Option<CaughtUp>, Error> {
        let host = self.host;
        let goes_on = || !host.stop.is_cancelled();
        let Some(log) = &mut self.log else { return Ok(Some(CaughtUp::Ahead)) };
        if host.path.exists() {
            let begin = OnceCell::new();
            let is_early = || begin.get_or_init(Instant::now).elapsed() < MERGING;
            let merges = || merges && goes_on() && is_early();
            let file = self.options.clone();
            let done = file.catch_up(&host.path, log.store.0, &self.blocks, merges).map_err(Error::Store)?;
            self.is_apart = done == CaughtUp::Apart;
            if done != CaughtUp::Outdated {
                return Ok(Some(done));
            }
        }
        if !log.is_whole {
            return Ok(Some(CaughtUp::Apart));
        }
        if !goes_on() {
            return Ok(Some(CaughtUp::Outdated));
        }
        if let (None, Some(number)) = (&log.view, log.backup) {
            log.view = Some(host.backup(number)?);
        }
        // The owner has made the backup some blocks behind the begin of the log.
        let from = log.view.as_ref().map_or(0, View::lsn);
        let needed = self.blocks.iter().position(|block| block.end > from);
        self.blocks.drain(..needed.unwrap_or(self.blocks.len() - 1));
        self.bytes = bytes_of(&self.blocks);
        if self.blocks.last().is_none_or(|last| last.end < from) {
            return Ok(Some(CaughtUp::Outdated));
        }
        if host.path.exists() {
            let has_nothing_else = self.is_of_the_log.is_some_and(|at| written(&host.path) == Some(at));
            host.put_away(has_nothing_else).map_err(Error::Store)?;
        }
        let kept = Kept { store: log.store.0, backup: log.view.clone(), blocks: self.blocks.clone() };
        let stop = host.stop.clone();
        self.making = Some(Making::start(self.options, &host.path, kept, move || !stop.is_cancelled())?);
        Ok(None)
    }

    /// Returns whether the file does not follow the log.
    #[cfg(test)]
    pub fn is_cold(&self) -> bool {
        self.is_cold
    }

    fn forget(&mut self) {
        (self.blocks, self.bytes) = (Vec::new(), 0);
        self.log.iter_mut().for_each(|log| (log.is_whole, log.view) = (false, None));
    }
}

fn bytes_of(blocks: &[SealedBlock]) -> usize {
    blocks.iter().map(|block| block.bytes.len()).sum()
}

/// Returns when a file was last written.
fn written(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|found| found.modified()).ok()
}

/// Returns whether a later try may succeed.
fn is_of_a_moment(error: &Error) -> bool {
    match error {
        Error::Store(error) => {
            use brooklet::Error::{Full, Io, Locked};
            matches!(error, Locked { .. } | Io { .. } | Full { .. })
        }
        error => super::is_of_a_moment(error),
    }
}

impl Replication {
    /// Moves a file aside that ends before the log begins. If the log has had all of it, the file
    /// replaces the last such file: a standby that often falls behind would else fill its disk.
    fn put_away(&self, has_nothing_else: bool) -> Result<(), brooklet::Error> {
        if !has_nothing_else {
            return self.move_aside(OUTDATED);
        }
        self.move_to(&with_suffix(&self.real_path(), ".behind"), OUTDATED)
    }
}
