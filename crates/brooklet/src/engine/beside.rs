//! Opening a store beside the process that has it open for writing, without its lock.
//!
//! The opening reads the superblock, the runs and the ring, one after the other, while the writer
//! goes on. It is valid if the superblock names the same runs and the same start of the ring
//! afterwards: the writer frees space only after a superblock that no longer needs it. Otherwise
//! the opening starts over. Later reads are checked by the volume (`volume/beside.rs`).
//!
//! By the same rule, a table that does not read back is damaged if the superblock is the same
//! afterwards. The store then opens without the table, as it does without a writer; and so it does
//! if a block of the ring that the superblock knows does not read back.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use brooklet_io::Volume;
use brooklet_io::seeded::bug;
use brooklet_wal::{Found, Records, Start, recover_beside, slot};

use crate::engine::Inner;
use crate::engine::recovery::{Opened, load, read_manifest};
use crate::error::Error;
use crate::format::commit_record;
use crate::format::superblock::{COPIES, Slot, Superblock};
use crate::model::Effect;
use crate::model::space_config::SEPARATOR;
use crate::options::Options;
use crate::run::Run;
use crate::state::spaces::TABLE;
use crate::sync::thread;
use crate::volume::Volumes;
use crate::volume::beside::Held;

/// Most openings that start over, and the pause between two of them.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(10);
/// Openings that fail, find damage in the ring, or cannot read a run, although the superblock is
/// the same, before that counts.
const SAME: u32 = 5;

/// Reads the store on its volumes, while another process may write it.
pub(crate) fn load_beside(volumes: &Volumes, options: &Options) -> Result<Opened, Error> {
    let (mut tries, mut same) = (0, 0);
    loop {
        let before = newest(&*volumes.data).ok();
        let loaded = load(volumes, options);
        let after = newest(&*volumes.data).ok();
        let failed = match (loaded, &after) {
            (Ok(opened), Some(after)) if needs_same(&opened.superblock, after) => {
                let has_unread = |run: &Arc<Run>| run.tables.iter().any(|table| table.was_unread());
                let is_unread = opened.state.runs.iter().any(has_unread);
                if opened.state.lost.is_none() && !is_unread || same + 1 == SAME {
                    check_reads(&opened);
                    return Ok(opened);
                }
                Error::Replaced { doing: "opening the store".into() }
            }
            (Ok(_), _) => Error::Replaced { doing: "opening the store".into() },
            (Err(error @ (Error::Damaged { .. } | Error::Io { .. } | Error::WrongRing { .. })), _) => error,
            (Err(error), _) => return Err(error),
        };
        (tries, same) = (tries + 1, same + u32::from(before == after));
        if tries == TRIES || same == SAME {
            return Err(failed);
        }
        thread::park_timeout(PAUSE);
    }
}

/// Returns the newest superblock.
fn newest(volume: &dyn Volume) -> io::Result<Superblock> {
    let slots: Vec<Slot> = slot::read_copies(volume, COPIES)?;
    let (info, size) = (volume.info(), volume.size()?);
    Superblock::choose(&slots, &info.name, size, info.device.is_some()).map_err(io::Error::other)
}

/// Returns whether everything that was read by one superblock is where another needs it, too.
fn needs_same(read: &Superblock, now: &Superblock) -> bool {
    (read.id, read.manifest, read.trim) == (now.id, now.manifest, now.trim)
}

/// Lets the volume check all later reads.
fn check_reads(opened: &Opened) {
    let Some(beside) = &opened.beside else { return };
    let tables = opened.state.runs.tables_in_heap();
    let store = opened.superblock.id;
    let look = move |volume: &dyn Volume, known| look(volume, store, known);
    beside.check(opened.superblock.generation, tables, Box::new(look));
}

/// Returns the generation of the newest superblock and its tables, unless the generation is known.
fn look(volume: &dyn Volume, store: u128, known: u64) -> io::Result<Option<(u64, Vec<Held>)>> {
    for _ in 0..TRIES {
        let superblock = newest(volume)?;
        if superblock.id != store {
            return Ok(Some((superblock.generation, Vec::new())));
        }
        if superblock.generation == known {
            return Ok(None);
        }
        let size = volume.size()?;
        if let Ok((manifest, _)) = read_manifest(volume, &superblock, size) {
            let tables = manifest.runs.into_iter();
            let tables =
                tables.flat_map(|(run, tables)| tables.into_iter().map(move |table| (run.id, table)));
            let tables = tables.filter(|(_, table)| !table.is_offloaded()).collect();
            // The writer may have replaced the manifest while it was read, and filled its place
            // with another.
            if newest(volume)?.generation == superblock.generation {
                return Ok(Some((superblock.generation, tables)));
            }
        }
        thread::park_timeout(PAUSE);
    }
    Err(io::Error::other("the process that writes the store replaces its superblock all the time"))
}

/// The entries that a log lost at its end between two openings; see [`Store::cut_since`].
///
/// [`Store::cut_since`]: crate::Store::cut_since
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The log lost none.
    Nothing,
    /// The log lost the entries from this number on. The entries there are others now, if there are
    /// any. 0 if the log was deleted, or if the file now holds another store.
    From(u64),
    /// The ring does not hold all commits in between: the writer overwrites them after one lap of
    /// the ring, and commits on a space in memory are in no ring. Or the two stores are not
    /// openings beside a writer, the earlier one first.
    Unknown,
}

impl Inner {
    /// Returns whether the writer beside this reader has recorded anything newer.
    pub fn is_outdated(&self) -> Result<bool, Error> {
        if !self.options.beside_writer {
            return Ok(false);
        }
        let (volume, ring) = (&*self.volumes.data, &**self.volumes.ring());
        let now = newest(volume).map_err(Error::io("reading the superblock"))?;
        let opened = self.maintenance().superblock;
        if now.generation != opened.generation {
            return Ok(true);
        }
        let next = self.recovery.next;
        let start = Start { cursor: next, acked: next.seq - 1, clean: false, epoch: opened.epoch };
        let mut newer = false;
        let walked = recover_beside::<Error>(ring, opened.layout(), start, |found| {
            // An empty block only records the acknowledgement of another.
            newer |= matches!(found, Found::Block(block, _) if !block.data().is_empty());
            Ok(())
        });
        match walked {
            // The opening passed over this damage, which hides the rest of the ring from it.
            Err(Error::Io { .. }) if opened.acked >= next.seq => Ok(false),
            walked => walked.map(|_| newer),
        }
    }

    /// Returns which entries the log lost at its end between the moment of an earlier reader and
    /// the moment of this one.
    pub fn cut_since(&self, earlier: &Self, key: &[u8]) -> Result<Cut, Error> {
        let (from, to) = (earlier.recovery.next, self.recovery.next);
        // One lock after the other: both may be the same store.
        let before = earlier.maintenance().superblock;
        let superblock = self.maintenance().superblock;
        if before.id != superblock.id {
            return Ok(Cut::From(0));
        }
        if !self.options.beside_writer || !earlier.options.beside_writer || from.seq > to.seq {
            return Ok(Cut::Unknown);
        }
        // Readers see commits in memory once a dump has changed the runs.
        let same_runs = before.manifest == superblock.manifest;
        let may_be_in_memory = |reader: &Self| {
            let spaces = &reader.state().spaces;
            spaces.is_in_memory(key) || spaces.unread().is_some() && key.contains(&SEPARATOR)
        };
        if !same_runs && (may_be_in_memory(earlier) || may_be_in_memory(self)) {
            return Ok(Cut::Unknown);
        }
        if from.seq == to.seq {
            // A store that follows another moves on without blocks of its own.
            let is_same = (from.lsn, from.chain) == (to.lsn, to.chain);
            return Ok(if is_same { Cut::Nothing } else { Cut::Unknown });
        }
        // This opening has seen a proof of all blocks before its end. The ring may not hold the
        // proof of the last one: a superblock was it.
        let start = Start { cursor: from, acked: to.seq - 1, clean: false, epoch: superblock.epoch };
        if !superblock.map.maps(from.position) {
            // The ring has grown since, and no longer tells where that place was.
            return Ok(Cut::Unknown);
        }
        let (mut cuts, mut sound) = (Cuts::default(), true);
        let walked = recover_beside::<Error>(&**self.volumes.ring(), superblock.layout(), start, |found| {
            match found {
                Found::Block(block, _) if block.seq() < to.seq => {
                    sound &= cuts.add(block.data(), key).is_some();
                }
                Found::Block(..) => {}
                Found::Hole(_) => sound = false,
            }
            Ok(())
        });
        // The space of the log may have been in memory in between.
        sound &= same_runs || !cuts.changes_spaces || !key.contains(&SEPARATOR);
        match walked {
            Ok(walked) if sound && walked.next.seq >= to.seq => {
                Ok(cuts.least.map_or(Cut::Nothing, Cut::From))
            }
            Ok(_) if bug("unread-ring-cuts-nothing") => Ok(Cut::Nothing),
            // The writer has overwritten the place since.
            Ok(_) | Err(Error::Damaged { .. }) => Ok(Cut::Unknown),
            Err(error) => Err(error),
        }
    }
}

/// What the commits of some blocks did to a log, and to the spaces.
#[derive(Default)]
struct Cuts {
    /// The least number from which the commits cut off the log.
    least: Option<u64>,
    changes_spaces: bool,
}

impl Cuts {
    /// Adds the commits of a block. Returns `None` if the block is malformed.
    fn add(&mut self, block: &[u8], key: &[u8]) -> Option<()> {
        for record in Records::new(block) {
            let (_, bytes) = record?;
            let (mut rest, mut previous) = (bytes, None);
            while !rest.is_empty() {
                let entry = commit_record::decode(&mut rest, previous)?;
                previous = Some(entry.key);
                self.changes_spaces |= entry.key == TABLE;
                let from = match entry.effect {
                    Effect::Truncate(_) if bug("truncations-cut-nothing") => continue,
                    Effect::Delete if bug("deletions-cut-nothing") => continue,
                    Effect::Truncate(from) => from,
                    Effect::Delete => 0,
                    _ => continue,
                };
                if entry.key == key {
                    let least = self.least.filter(|_| !bug("latest-cut-counts"));
                    self.least = Some(least.map_or(from, |least| least.min(from)));
                }
            }
        }
        Some(())
    }
}
