//! A reader beside the store, on a disk that has lost blocks of the ring.
//!
//! The superblock knows some blocks, and the reader must name the damage of those. A damaged block
//! that the superblock does not know ends the reader's log, as a block on its way does. In both
//! cases the reader may show only what was committed.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use brooklet::io::{MemVolume, Rng, SECTOR, Volume};
use brooklet::{Bytes, Entry, Error, Store};

use super::beside::Shared;
use super::{State, World};
use crate::model::{Log, Logs, Moment, difference, shown, text};
use crate::oracle::{Seen, Violation, violated};
use crate::ring_image::{Block, RingImage};

/// Unit of torn writes, in bytes.
const PIECE: usize = 512;

/// The counts of the openings beside the store on a disk with a damaged ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AroundCounts {
    /// Number of openings.
    pub openings: u64,
    /// Number of these that named the damage.
    pub named: u64,
    /// Number of these that showed the log up to a damaged block that the superblock does not know,
    /// or that no longer needed the block.
    pub quiet: u64,
    /// Number of these that the store overtook.
    pub late: u64,
}

impl AroundCounts {
    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        self.openings += other.openings;
        self.named += other.named;
        self.quiet += other.quiet;
        self.late += other.late;
    }
}

/// A stretch of the disk that reads otherwise than it was written, until it is written again.
#[derive(Clone, Debug)]
pub(super) struct Hurt {
    /// Number of the block.
    seq: u64,
    at: usize,
    was: Vec<u8>,
    reads: Vec<u8>,
    how: &'static str,
}

impl Hurt {
    /// Changes what was read at `offset`.
    pub fn befall(&self, offset: u64, buf: &mut [u8]) {
        let (offset, end) = (offset as usize, offset as usize + buf.len());
        let (from, to) = (self.at.max(offset), (self.at + self.was.len()).min(end));
        if from < to {
            let (read, part) = (&mut buf[from - offset..to - offset], from - self.at..to - self.at);
            if *read == self.was[part.clone()] {
                read.copy_from_slice(&self.reads[part]);
            }
        }
    }
}

/// The states that a reader may show.
struct Allowed {
    /// The state just before the first damaged block that the superblock knows, if there is one.
    before: Option<Logs>,
    /// The states at the end of what the reader shows.
    states: Vec<Logs>,
    /// The logs that may ever have had limits.
    limited: BTreeSet<Bytes>,
    /// Whether the reader must name damage; `None` if the store goes on meanwhile.
    named: Option<bool>,
}

impl Allowed {
    /// Returns whether states have another entry at this place, and none has this one.
    fn denies(&self, key: &Bytes, entry: &Entry) -> bool {
        let states = || self.states.iter().chain(&self.before);
        let is_there = |log: &Arc<Log>| (log.first..log.next()).contains(&entry.seq);
        let others = states().any(|state| state.get(key).is_some_and(is_there));
        others && !states().any(|state| has(state, key, entry))
    }
}

impl World {
    /// Damages blocks of the ring, and reads beside the store: once while the store rests, and once
    /// while it goes on.
    pub(super) fn read_around(&self) -> Result<(), Violation> {
        self.state().oracle.settle()?;
        let damaged = self.tolerance().damaged;
        {
            let State { oracle, faulty, .. } = &*self.state();
            if damaged || *faulty || oracle.stopped || !oracle.is_of_ring() {
                return Ok(());
            }
        }
        let volume = self.volume();
        let (image, (ring, superblock)) = (volume.disk.image(), volume.ring_zone());
        let Some(blocks) = RingImage::of(&image, ring, superblock) else {
            return violated("the disk has no superblock");
        };
        let older = self.state().ring_before.replace(image.clone());
        let hurts = hurts(&image, older.as_deref().unwrap_or_default(), &blocks, &mut self.state().rng);
        let Some(first) = hurts.iter().map(|hurt| hurt.seq).min() else { return Ok(()) };
        for hurt in &hurts {
            let known = if hurt.seq <= blocks.acked { "known to the superblock" } else { "on its way" };
            self.tell(|| format!("  block {}, {known}: {}", hurt.seq, hurt.how));
        }
        let twin = |image: Vec<u8>| self.shown_by(image);
        let known = first <= blocks.acked;
        let before = known.then(|| twin(blocks.without(&image, first))).transpose()?;
        let unknown = hurts.iter().map(|hurt| hurt.seq).filter(|seq| *seq > blocks.acked).min();
        let mut states = Vec::new();
        if let Some(seq) = unknown {
            states.push(twin(blocks.without(&image, seq))?);
        }
        if known {
            states.push(twin(image.clone())?);
        }
        let least = twin(blocks.without(&image, blocks.acked + 1))?;
        let limited = self.state().oracle.limited.clone();
        let resting = Allowed { before: before.clone(), states, limited, named: Some(known) };
        self.look_around(self.damaged_copy(image, &hurts), &resting)?;

        let moment = Moment::at(self.now());
        let mut states: Vec<Logs> = self.state().oracle.recent.iter().cloned().collect();
        let Some(at) = states.iter().position(|state| shown(state, &moment) == least) else {
            return match self.state().oracle.has_all_recent() {
                true => violated("the superblock knows a state that never was"),
                false => Ok(()),
            };
        };
        states.drain(..at);
        let outer = self.watch();
        let reader = self.open_beside(hurts.into());
        let read = reader.map(|reader| told(&reader, before.iter().chain(&states)));
        states.extend(self.watched(outer)?);
        if self.state().faulty || self.tolerance().damaged {
            return Ok(());
        }
        let limited = self.state().oracle.limited.clone();
        self.judge(read, &Allowed { before, states, limited, named: None })
    }

    /// Returns a copy of the disk with the damage.
    fn damaged_copy(&self, mut image: Vec<u8>, hurts: &[Hurt]) -> Vec<u8> {
        hurts.iter().for_each(|hurt| hurt.befall(0, &mut image));
        image
    }

    /// Opens a copy of the disk as a reader beside a store that rests.
    fn open_copy(&self, image: Vec<u8>) -> Result<Store, Error> {
        let options = self.plan.shape.options(&self.clock, 1).beside_writer(true);
        let still = |below: Arc<dyn Volume>| Arc::new(Shared::new(below, Weak::new(), [].into()));
        match self.plan.shape.volume(MemVolume::from_image(image, 1)).volumes() {
            (data, Some(ring)) => options.open_on_with_ring(still(data), still(ring)),
            (data, None) => options.open_on(still(data)),
        }
    }

    /// Returns the logs that a reader beside the store shows on a sound disk.
    fn shown_by(&self, image: Vec<u8>) -> Result<Logs, Violation> {
        let seen = match self.open_copy(image) {
            Ok(reader) => Seen::of(&reader, false, false)?,
            Err(error) => Err(error),
        };
        seen.map(|seen| seen.logs).or_else(|error| violated(format!("a sound disk does not read: {error}")))
    }

    fn look_around(&self, image: Vec<u8>, allowed: &Allowed) -> Result<(), Violation> {
        let reader = self.open_copy(image);
        let read = reader.map(|reader| told(&reader, allowed.before.iter().chain(&allowed.states)));
        self.judge(read, allowed)
    }

    /// Compares what a reader told with what it may tell.
    fn judge(
        &self,
        read: Result<Result<Result<Told, Error>, Violation>, Error>,
        allowed: &Allowed,
    ) -> Result<(), Violation> {
        self.state().stats.around.openings += 1;
        let within =
            |Violation(what)| Violation(format!("a reader beside the store, on a damaged ring: {what}"));
        let told = match read.unwrap_or_else(|error| Ok(Err(error))).map_err(within)? {
            Ok(told) => told,
            Err(Error::Replaced { .. }) if allowed.named.is_none() => {
                self.state().stats.around.late += 1;
                return Ok(());
            }
            Err(error) => return violated(format!("a reader beside the store, on a damaged ring: {error}")),
        };
        let named = told.named.is_some();
        {
            let mut state = self.state();
            let counts = &mut state.stats.around;
            *(if named { &mut counts.named } else { &mut counts.quiet }) += 1;
        }
        self.tell(|| format!("  -> {}", told.named.as_deref().unwrap_or("no damage")));
        told.compare(allowed, &Moment::at(self.now())).map_err(within)
    }
}

/// Draws the damage of one block or two.
fn hurts(image: &[u8], older: &[u8], ring: &RingImage, rng: &mut Rng) -> Vec<Hurt> {
    let known: Vec<&Block> = ring.blocks.iter().filter(|block| block.seq <= ring.acked).collect();
    let all: Vec<&Block> = ring.blocks.iter().collect();
    let mut hurts: Vec<Hurt> = Vec::new();
    for _ in 0..1 + rng.below(5) / 4 {
        let from = if known.is_empty() || rng.percent(25) { &all } else { &known };
        if from.is_empty() {
            break;
        }
        let hurt = hurt(image, older, from[rng.below(from.len() as u64) as usize], rng);
        let (from, to) = (hurt.at, hurt.at + hurt.was.len());
        let block = ring.blocks.iter().find(|block| block.seq == hurt.seq).expect("just drawn");
        let part = block.bytes.start.max(from) - from..block.bytes.end.min(to) - from;
        if hurt.was[part.clone()] != hurt.reads[part] && hurts.iter().all(|other| other.seq != hurt.seq) {
            hurts.push(hurt);
        }
    }
    hurts
}

/// Draws the damage of a block: a flipped bit, zeros, or a lost write.
fn hurt(image: &[u8], older: &[u8], block: &Block, rng: &mut Rng) -> Hurt {
    let whole = block.bytes.start..block.bytes.end.next_multiple_of(SECTOR).min(image.len());
    let was = image[whole.clone()].to_vec();
    let mut reads = was.clone();
    let byte = rng.below(block.bytes.len() as u64) as usize;
    let how = match rng.below(4) {
        0 => {
            reads[byte] ^= 1 << rng.below(8);
            "a bit flips"
        }
        1 => {
            let piece = byte / PIECE * PIECE;
            reads[piece..piece + PIECE].fill(0);
            "a sector is zeroed"
        }
        2 => {
            reads.fill(0);
            "it is zeroed"
        }
        _ => {
            reads.fill(0);
            let old = older.get(whole.clone()).unwrap_or_default();
            reads[..old.len()].copy_from_slice(old);
            "its write is lost"
        }
    };
    Hurt { seq: block.seq, at: whole.start, was, reads, how }
}

/// What a reader says of a log that it does not list, or that it lists and does not read.
enum Rest {
    /// The log reads to its end, or does not exist.
    Whole(Option<Log>),
    /// An error names damage: the entries before the error, and behind it.
    Doubtful(Vec<Entry>, Vec<Entry>),
    /// The log is damaged only if it is read forward.
    Unlike,
}

/// What a reader shows.
struct Told {
    /// The place of the damage that the reader names.
    named: Option<String>,
    seen: Seen,
    rest: Vec<(Bytes, Rest)>,
}

/// Reads everything. `states`: where the logs are that the reader may have.
fn told<'a>(store: &Store, states: impl Iterator<Item = &'a Logs>) -> Result<Result<Told, Error>, Violation> {
    let named =
        store.damage().into_iter().map(|damage| damage.place).find(|place| place.contains("the ring"));
    let seen = match Seen::of(store, named.is_some(), true)? {
        Ok(seen) => seen,
        Err(error) => return Ok(Err(error)),
    };
    let mut rest = Vec::new();
    if named.is_some() {
        if !seen.partial {
            return violated("a listing passes over the damage");
        }
        let mut keys: Vec<&Bytes> = states.flat_map(|state| state.keys()).collect();
        keys.sort();
        keys.dedup();
        for key in keys.into_iter().filter(|key| !seen.logs.contains_key(*key)) {
            match read_rest(store, key) {
                Ok(read) => rest.push((key.clone(), read)),
                Err(error) => return Ok(Err(error)),
            }
        }
    }
    Ok(Ok(Told { named, seen, rest }))
}

fn read_rest(store: &Store, key: &Bytes) -> Result<Rest, Error> {
    let (mut before, mut behind) = (Vec::new(), Vec::new());
    let entries = match store.read(key, ..) {
        Ok(entries) => entries,
        Err(Error::UnknownLog { .. }) => return Ok(Rest::Whole(None)),
        Err(Error::Damaged { .. }) => return Ok(Rest::Doubtful(Vec::new(), Vec::new())),
        Err(error) => return Err(error),
    };
    for entry in entries {
        match entry {
            Ok(entry) => before.push(entry),
            Err(Error::Damaged { .. }) => {
                // Backward, the entries behind the damage come first.
                for entry in store.read(key, ..)?.rev() {
                    match entry {
                        Ok(entry) => behind.push(entry),
                        Err(Error::Damaged { .. }) => return Ok(Rest::Doubtful(before, behind)),
                        Err(error) => return Err(error),
                    }
                }
                return Ok(Rest::Unlike);
            }
            Err(error) => return Err(error),
        }
    }
    let first = store.bounds(key)?.first;
    let entries = before.into_iter().map(|entry| entry.payload).collect();
    Ok(Rest::Whole(Some(Log { first, entries, retention: store.retention(key)?, times: Vec::new() })))
}

impl Told {
    fn compare(&self, allowed: &Allowed, moment: &Moment) -> Result<(), Violation> {
        if allowed.named.is_some_and(|named| named != self.named.is_some()) {
            let what =
                if self.named.is_some() { "names damage that it cannot know" } else { "names no damage" };
            let nearest = allowed.states.first().map(|state| self.seen.difference(state)).unwrap_or_default();
            return violated(format!("it {what}\n{nearest}"));
        }
        if self.named.is_some() {
            let Some(before) = &allowed.before else { return violated("it names damage of a sound block") };
            self.before_is_of(before)?;
        }
        let mut nearest = String::new();
        for state in allowed.states.iter().rev() {
            let state = shown(state, moment);
            nearest = self.difference(&state, allowed);
            if nearest.is_empty() {
                return Ok(());
            }
        }
        violated(format!("it shows a state that never was:\n{nearest}"))
    }

    /// Checks the entries that logs in doubt return before the damage.
    fn before_is_of(&self, before: &Logs) -> Result<(), Violation> {
        for (key, rest) in &self.rest {
            let Rest::Doubtful(entries, _) = rest else { continue };
            let start = entries.first().map_or(0, |entry| entry.seq);
            for (nth, entry) in entries.iter().enumerate() {
                if entry.seq != start + nth as u64 || !has(before, key, entry) {
                    return violated(format!(
                        "{} has another entry {} than before the damage",
                        text(key),
                        entry.seq
                    ));
                }
            }
        }
        Ok(())
    }

    /// Returns where the proven content differs from a state. A log may lack limits that lost
    /// commits set, and then has entries that these limits have removed.
    fn difference(&self, state: &Logs, allowed: &Allowed) -> String {
        let mut state = state.clone();
        let whole = self.rest.iter().filter_map(|(key, rest)| match rest {
            Rest::Whole(Some(log)) => Some((key, log)),
            _ => None,
        });
        for (key, found) in self.seen.logs.iter().map(|(key, log)| (key, &**log)).chain(whole) {
            let is_limited = allowed.limited.contains(key);
            if let Some(log) = state.get_mut(key).filter(|log| is_limited && found.lacks_limits(log)) {
                *log = Arc::new(found.clone());
            }
        }
        let state = &state;
        let mut seen = self.seen.difference(state);
        for (key, rest) in &self.rest {
            match (rest, state.get(key)) {
                (Rest::Whole(Some(found)), Some(log)) if found.exceeds_limit(log) => {}
                (Rest::Whole(found), log) => {
                    let one =
                        |log: Option<Log>| log.map(|log| (key.clone(), Arc::new(log))).into_iter().collect();
                    let log = log.map(|log| Log { times: Vec::new(), ..(**log).clone() });
                    seen += &difference(&one(found.clone()), &one(log));
                }
                (Rest::Unlike, _) => seen += &format!("{}: no damage backward\n", text(key)),
                (Rest::Doubtful(_, behind), _) => {
                    let removed = |entry: &Entry| {
                        let first = state.get(key).map_or(0, |log| log.first);
                        allowed.limited.contains(key) && entry.seq < first && !allowed.denies(key, entry)
                    };
                    for entry in behind.iter().filter(|entry| !has(state, key, entry) && !removed(entry)) {
                        seen += &format!("{}: entry {} behind the damage is wrong\n", text(key), entry.seq);
                    }
                }
            }
        }
        seen
    }
}

/// Returns whether a state has the entry at its place.
fn has(state: &Logs, key: &Bytes, entry: &Entry) -> bool {
    let at = |log: &Arc<Log>| log.entries.get(entry.seq.checked_sub(log.first)? as usize).cloned();
    state.get(key).and_then(at).as_ref() == Some(&entry.payload)
}
