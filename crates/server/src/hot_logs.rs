//! The busiest logs, in bounded memory: a sketch of those that were appended to most of late.
//!
//! It is the space-saving sketch of Metwally, Agrawal and El Abbadi. `SLOTS` logs are counted; one
//! that is not among them takes the place of that with the least count, and inherits that count as
//! its error. What a log surely had is its count less its error, and every log with more than a
//! `SLOTS`th of all entries is in the sketch.
//!
//! What is old counts less, by half every `HALF_LIFE`. Instead of making all counts smaller, what
//! comes is given more weight, so that the order of the counts stays; only when weights become
//! large are all of them brought down.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use hashbrown::{DefaultHashBuilder, HashTable};
use serde::Serialize;
use std::hash::BuildHasher;

/// Logs that are counted at a time.
const SLOTS: usize = 512;
/// After so long an entry counts half.
const HALF_LIFE: Duration = Duration::from_secs(15);
/// Half-lives after which counts are brought down: far below what a number can hold.
const LONG: f64 = 256.0;
/// What has less than that of an entry a second is not busy.
const LEAST: f64 = 0.01;

/// A log, and what was surely appended to it of late.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HotLog {
    /// Its key.
    #[serde(skip)]
    pub key: Vec<u8>,
    /// Entries in a second.
    pub entries_per_second: f64,
    /// Bytes of their payloads in a second.
    pub bytes_per_second: f64,
}

/// The busiest logs. Frontends [note](Self::note) what they append; the page shows the
/// [top](Self::top).
///
/// ```
/// use brooklet_server::hot_logs::HotLogs;
///
/// let hot_logs = HotLogs::default();
/// hot_logs.note(b"orders", 2, 150);
/// hot_logs.note(b"users", 1, 80);
/// assert_eq!(hot_logs.top(1)[0].key, b"orders");
/// ```
#[derive(Default)]
pub struct HotLogs(Mutex<Table>);

#[derive(Default)]
struct Table {
    slots: Vec<Slot>,
    /// Slots, by their keys.
    places: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// Counts of entries, and whose they are, as a heap: none is lower than the first.
    heap: Vec<(f64, u32)>,
    /// When the first moment was, when weights were 1, and when it is now.
    born: Option<Duration>,
    even: Duration,
    now: Duration,
    /// How much more than 1 an entry weighs now.
    more: f64,
}

struct Slot {
    key: Vec<u8>,
    hash: u64,
    /// Where its count is in the heap.
    at: usize,
    /// So much of that may be others' entries.
    error: f64,
    bytes: f64,
}

impl HotLogs {
    /// Takes note of entries that were appended to a log, and of the bytes of their payloads.
    ///
    /// It takes less than a tenth of a microsecond and allocates nothing for a log that is known.
    /// Where even that is too much, call it for one append in so many, with so many times what was
    /// appended.
    pub fn note(&self, key: &[u8], entries: u64, bytes: u64) {
        self.table().note(key, entries as f64, bytes as f64);
    }

    /// Tells that time passed: `now` is since a fixed moment. Who owns a clock calls it once a
    /// second or so.
    pub fn pass(&self, now: Duration) {
        self.table().pass(now);
    }

    /// The busiest logs, at most `most`, busiest first.
    pub fn top(&self, most: usize) -> Vec<HotLog> {
        let table = self.table();
        let scale = table.scale();
        let counted = table.heap.iter().map(|&(count, slot)| (count, &table.slots[slot as usize]));
        let rates = counted.map(|(count, slot)| ((count - slot.error) * scale, slot));
        let mut hot_logs: Vec<(f64, &Slot)> = rates.filter(|(rate, _)| *rate >= LEAST).collect();
        hot_logs.sort_by(|(a, x), (b, y)| b.total_cmp(a).then_with(|| x.key.cmp(&y.key)));
        hot_logs.truncate(most);
        let told = |(entries_per_second, slot): (f64, &Slot)| {
            let (key, bytes_per_second) = (slot.key.clone(), slot.bytes * scale);
            HotLog { key, entries_per_second, bytes_per_second }
        };
        hot_logs.into_iter().map(told).collect()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().expect("no panics")
    }
}

impl Table {
    fn note(&mut self, key: &[u8], entries: f64, bytes: f64) {
        let (entries, bytes) = (entries * (1.0 + self.more), bytes * (1.0 + self.more));
        let hash = self.hasher.hash_one(key);
        let slot = match self.places.find(hash, |&slot| self.slots[slot as usize].key == key) {
            Some(&slot) => slot as usize,
            None => self.admit(key, hash),
        };
        let noted = &mut self.slots[slot];
        noted.bytes += bytes;
        let at = noted.at;
        self.heap[at].0 += entries;
        self.sink(at);
    }

    /// The slot of a log that has none.
    fn admit(&mut self, key: &[u8], hash: u64) -> usize {
        let slot = if self.slots.len() < SLOTS {
            let (at, slot) = (self.heap.len(), self.slots.len());
            self.slots.push(Slot { key: key.to_vec(), hash, at, error: 0.0, bytes: 0.0 });
            self.heap.push((0.0, slot as u32));
            // Nothing is less than nothing, so that it belongs before all that have a count.
            self.rise(at);
            slot
        } else {
            let (count, slot) = self.heap[0];
            let taken = &mut self.slots[slot as usize];
            if let Ok(place) = self.places.find_entry(taken.hash, |&other| other == slot) {
                place.remove();
            }
            taken.key.clear();
            taken.key.extend_from_slice(key);
            (taken.hash, taken.error, taken.bytes) = (hash, count, 0.0);
            slot as usize
        };
        let slots = &self.slots;
        self.places.insert_unique(hash, slot as u32, |&slot| slots[slot as usize].hash);
        slot
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.slots[self.heap[a].1 as usize].at = a;
        self.slots[self.heap[b].1 as usize].at = b;
    }

    fn rise(&mut self, mut at: usize) {
        while at > 0 && self.heap[at].0 < self.heap[(at - 1) / 2].0 {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            if left >= self.heap.len() {
                return;
            }
            let is_right = right < self.heap.len() && self.heap[right].0 < self.heap[left].0;
            let least = if is_right { right } else { left };
            if self.heap[at].0 <= self.heap[least].0 {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }

    fn pass(&mut self, now: Duration) {
        if self.born.is_none() {
            (self.born, self.even) = (Some(now), now);
        }
        self.now = now;
        let lives = now.saturating_sub(self.even).as_secs_f64() / HALF_LIFE.as_secs_f64();
        if lives > LONG {
            let scale = (-lives).exp2();
            self.heap.iter_mut().for_each(|(count, _)| *count *= scale);
            for slot in &mut self.slots {
                slot.error *= scale;
                slot.bytes *= scale;
            }
            (self.even, self.more) = (now, 0.0);
        } else {
            self.more = lives.exp2() - 1.0;
        }
    }

    /// What a count of 1 is in a second. A rate that does not change makes counts that are no more
    /// than it times the half-life over ln 2; in the beginning they are less.
    fn scale(&self) -> f64 {
        let half_life = HALF_LIFE.as_secs_f64();
        let age = self.born.map_or(0.0, |born| self.now.saturating_sub(born).as_secs_f64()).max(1.0);
        let whole = half_life / std::f64::consts::LN_2 * (1.0 - (-age / half_life).exp2());
        1.0 / ((1.0 + self.more) * whole)
    }
}

#[cfg(test)]
mod tests;
