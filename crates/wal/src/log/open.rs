//! Creates and opens a log: its label, and the end of its ring.

use std::io;

use brooklet_io::{AlignedBuf, Persist, Rng, SECTOR, Volume, read_exact_at, system_seed, write_all_at};

use super::Lsn;
use super::error::LogError;
use super::index::Index;
use super::label::{Label, SLOTS};
use super::options::LogOptions;
use super::record::KIND;
use crate::core::Limits;
use crate::error::WalError;
use crate::format::Header;
use crate::recover::{Recovery, Start, recover};
use crate::ring::Cursor;
use crate::slot::{self, Slot, SlotContent};

/// Bytes at each end of a volume that must be blank before a log is created there.
const ENDS: u64 = 1 << 20;
/// Size of one write of zeros, in bytes.
const ZEROS: u64 = 1 << 20;

/// A label, as stored on the volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Labelled {
    pub label: Label,
    /// The slot that holds the newest label; the other is written next.
    pub newest: usize,
}

impl Labelled {
    /// Replaces the label in the older slot only.
    pub fn write_one(&mut self, volume: &dyn Volume, label: Label) -> Result<(), io::Error> {
        let slot = (self.newest + 1) % SLOTS;
        label.write(volume, slot)?;
        *self = Self { label, newest: slot };
        Ok(())
    }

    /// Replaces the label in both slots, the older first.
    pub fn write_both(&mut self, volume: &dyn Volume, label: Label) -> Result<(), io::Error> {
        self.write_one(volume, label)?;
        self.write_one(volume, label)
    }
}

/// Creates an empty log on a volume.
pub(crate) fn create(volume: &dyn Volume, options: &LogOptions) -> Result<(), LogError> {
    options.check()?;
    LogOptions::check_size(options.ring_size)?;
    let most = Limits::new(&options.config, options.ring_size).max_record - KIND;
    if let Some(asked) = options.largest_record.filter(|asked| *asked > most) {
        let size = options.ring_size;
        let what = format!(
            "records of {asked} bytes do not fit in a ring of {size} bytes: use at most {most} bytes, or a larger ring"
        );
        return Err(LogError::Invalid { what });
    }
    let old = volume.size()?;
    if !is_blank(volume, old)? {
        if !options.overwrite {
            return Err(LogError::NotBlank { name: volume.info().name });
        }
        // Clears the old label first: no crash leaves the old label with an incomplete ring.
        let len = (old as usize / SECTOR * SECTOR).min(SLOTS * SECTOR);
        write_all_at(volume, 0, &AlignedBuf::zeroed(len), Persist::Durable)?;
    }
    let mut rng = Rng::new(system_seed());
    let id = options.identity.unwrap_or_else(|| u128::from(rng.next()) << 64 | u128::from(rng.next()));
    let label = Label::new(id, options.ring_size);
    allocate(volume, 0, label.end())?;
    Labelled { label, newest: SLOTS - 1 }.write_both(volume, label)?;
    Ok(())
}

/// Returns whether both ends of the volume are blank: every known format has a mark at one end.
fn is_blank(volume: &dyn Volume, size: u64) -> Result<bool, LogError> {
    let size = size / SECTOR as u64 * SECTOR as u64;
    let mut buf = AlignedBuf::zeroed(size.min(ENDS) as usize);
    for offset in [0, size - buf.len() as u64] {
        read_exact_at(volume, offset, &mut buf)?;
        if buf.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Allocates the volume's bytes `from..to` and writes zeros there, durably. Otherwise the first
/// write of a block would change metadata in the commit path.
pub(crate) fn allocate(volume: &dyn Volume, from: u64, to: u64) -> Result<(), io::Error> {
    volume.grow(to)?;
    let zeros = AlignedBuf::zeroed(ZEROS as usize);
    let mut offset = from;
    while offset < to {
        let len = ZEROS.min(to - offset);
        write_all_at(volume, offset, &zeros[..len as usize], Persist::Cached)?;
        offset += len;
    }
    volume.flush()
}

/// Allocates all space of the log again: every later write relies on that space, and a copied file
/// may have holes.
pub(crate) fn fill_holes(volume: &dyn Volume, label: &Label) -> Result<(), io::Error> {
    volume.allocate_range(0..label.end()).map_err(|e| {
        let what = format!("the log in {} has holes, and needs all of its space: {e}", volume.info().name);
        io::Error::new(e.kind(), what)
    })
}

/// Reads the label.
pub(crate) fn read_label(volume: &dyn Volume, options: &LogOptions) -> Result<Labelled, LogError> {
    let name = volume.info().name;
    let size = volume.size()?;
    let slots = slot::read(volume, (size as usize / SECTOR).min(SLOTS))?;
    let found = choose(&slots, &name)?;
    if let Some(expected) = options.identity.filter(|id| *id != found.label.id) {
        return Err(LogError::Foreign { name, found: found.label.id, expected });
    }
    if found.label.end() > size {
        return Err(LogError::CutShort { name, size, needed: found.label.end() });
    }
    Ok(found)
}

/// Picks the newest valid slot.
fn choose(slots: &[Slot<Label>], name: &str) -> Result<Labelled, LogError> {
    let name = name.to_owned();
    let known = Label::FORMAT;
    let newest =
        slot::choose(slots).map_err(|found| LogError::NewerFormat { name: name.clone(), found, known })?;
    if let Some((newest, label)) = newest {
        for (slot, what) in slots.iter().enumerate().filter(|(_, what)| what.flaw().is_some()) {
            tracing::warn!(
                name,
                slot,
                ?what,
                "one slot of the label is damaged; the log uses the other slot"
            );
        }
        return Ok(Labelled { label, newest });
    }
    if slots.iter().all(|slot| *slot == Slot::Blank) {
        let why = if slots.is_empty() { "it is empty" } else { "the place of its label is blank" };
        return Err(LogError::NotALog { name, why: why.into() });
    }
    if slots.iter().all(|slot| *slot == Slot::NoMagic) {
        return Err(LogError::NotALog { name, why: "it holds other data".into() });
    }
    let why = |slot: &Slot<Label>| match slot {
        Slot::Blank => "it is blank",
        slot => slot.flaw().expect("none is whole"),
    };
    let why: Vec<String> =
        slots.iter().zip('A'..).map(|(slot, c)| format!("slot {c}: {}", why(slot))).collect();
    Err(LogError::DamagedLabel { name, why: why.join("; ") })
}

/// The result of a walk along the ring.
pub(crate) struct Found {
    /// Start of the walk.
    pub start: Start,
    pub recovery: Recovery,
    /// Starts of the blocks.
    pub index: Index,
    /// Start of the newest span, while blocks of the previous span are live.
    pub settles: Option<Cursor>,
}

/// Walks the ring once, checking every block.
pub(crate) fn walk(volume: &dyn Volume, label: &Label) -> Result<Found, LogError> {
    let start = Start { cursor: label.trim, acked: label.acked, clean: label.clean, epoch: label.epoch };
    let mut index = Index::new(label.trim, Lsn(label.first));
    let mut settles = None;
    let recovery = recover(volume, label.layout(), start, |block, _| {
        let (from, to) = block.cursors();
        if from.position >= label.map.current.from {
            settles.get_or_insert(from);
        }
        index.push(from, to);
        Ok(())
    })
    .map_err(|error| foreign(volume, label, &error).unwrap_or(LogError::Wal(error)))?;
    if label.first > recovery.next.lsn {
        let Cursor { seq, position, lsn, .. } = recovery.next;
        let what = format!("the label says that records up to LSN {} were acknowledged", label.first);
        return Err(WalError::Damaged { seq, position, lsn, what }.into());
    }
    let settles = label.map.before.map(|_| settles.unwrap_or(recovery.next));
    Ok(Found { start, recovery, index, settles })
}

/// Returns an error if the damage is a block of another log: the label does not belong to the ring.
fn foreign(volume: &dyn Volume, label: &Label, error: &WalError) -> Option<LogError> {
    let WalError::Damaged { position, .. } = error else { return None };
    let layout = label.layout();
    let mut buf = AlignedBuf::zeroed(SECTOR);
    read_exact_at(volume, layout.offset(*position), &mut buf).ok()?;
    let (header, _) = Header::decode(&buf)?;
    (header.store != layout.store && header.position == *position).then(|| LogError::Foreign {
        name: volume.info().name,
        found: header.store.into(),
        expected: layout.store.into(),
    })
}
