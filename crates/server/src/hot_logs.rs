//! The busiest logs, in bounded memory: a sketch of the logs with the most recent appends.
//!
//! It is the space-saving sketch of Metwally, Agrawal and El Abbadi. The sketch counts `SLOTS`
//! logs. A log that is not in the sketch takes the place of the log with the least count, and
//! inherits that count as its error. The true count of a log is at least its count less its error.
//! Every log with more than a `SLOTS`th of all entries is in the sketch.
//!
//! An entry counts half as much after each `HALF_LIFE`. Instead of making all counts smaller, the
//! sketch raises the weight of new entries, so that the order of the counts stays. Once weights are
//! large, all counts and weights are scaled down.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use hashbrown::{DefaultHashBuilder, HashTable};
use serde::Serialize;
use std::hash::BuildHasher;

/// Number of logs that are counted at a time.
const SLOTS: usize = 512;
/// Time after which an entry counts half.
const HALF_LIFE: Duration = Duration::from_secs(15);
/// Number of half-lives after which counts are scaled down: far below the limit of a float.
const LONG: f64 = 256.0;
/// Least entries per second of a busy log.
const LEAST: f64 = 0.01;

/// A log, and the least rate of its recent appends.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HotLog {
    /// Key of the log.
    #[serde(skip)]
    pub key: Vec<u8>,
    /// Number of entries per second.
    pub entries_per_second: f64,
    /// Number of payload bytes per second.
    pub bytes_per_second: f64,
}

/// The busiest logs. Frontends [note](Self::note) their appends; the page shows the
/// [top](Self::top) logs.
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
    /// Slots, by the keys of their logs.
    places: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// Counts of entries with their slots, as a heap: the first count is the least.
    heap: Vec<(f64, u32)>,
    /// Time at which weights were 1, and the current time.
    born: Option<Duration>,
    even: Duration,
    now: Duration,
    /// The weight of a new entry, less 1.
    more: f64,
}

struct Slot {
    key: Vec<u8>,
    hash: u64,
    /// Position of its count in the heap.
    at: usize,
    /// Largest part of the count that may belong to other logs.
    error: f64,
    bytes: f64,
}

impl HotLogs {
    /// Adds appended entries of a log, and the bytes of their payloads.
    ///
    /// Takes less than a tenth of a microsecond, and allocates nothing for a known log. If that is
    /// too slow, call it for one append of every N, with N times its entries and bytes.
    pub fn note(&self, key: &[u8], entries: u64, bytes: u64) {
        self.table().note(key, entries as f64, bytes as f64);
    }

    /// Sets the current time: `now` is the time since a fixed moment. The owner of a clock calls
    /// this about once a second.
    pub fn pass(&self, now: Duration) {
        self.table().pass(now);
    }

    /// Returns the busiest logs, at most `most`, the busiest first.
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

    /// Adds a log that has no slot, and returns its slot.
    fn admit(&mut self, key: &[u8], hash: u64) -> usize {
        let slot = if self.slots.len() < SLOTS {
            let (at, slot) = (self.heap.len(), self.slots.len());
            self.slots.push(Slot { key: key.to_vec(), hash, at, error: 0.0, bytes: 0.0 });
            self.heap.push((0.0, slot as u32));
            // A new slot has the least count, so it moves before all others.
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

    /// Returns the rate per second of a count of 1. A constant rate makes counts of at most the
    /// rate times the half-life over ln 2; young counts are smaller.
    fn scale(&self) -> f64 {
        let half_life = HALF_LIFE.as_secs_f64();
        let age = self.born.map_or(0.0, |born| self.now.saturating_sub(born).as_secs_f64()).max(1.0);
        let whole = half_life / std::f64::consts::LN_2 * (1.0 - (-age / half_life).exp2());
        1.0 / ((1.0 + self.more) * whole)
    }
}

#[cfg(test)]
mod tests;
