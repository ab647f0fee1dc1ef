//! The measurements: one way, size and depth at a time.
//!
//! Each ends soon once it is asked to stop; its figures are worth nothing then.
//!
//! Invariant: nothing is written outside the area; [`Area::take`] gives every position.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use brooklet::io::{
    AlignedBuf, Completion, FileVolume, Op, Persist, Queue, Rng, SECTOR, Volume, read_exact_at, write_all_at,
};
use bytes::Bytes;
use serde::Serialize;

use super::guard::PlainFile;
use super::plan::{LARGEST, Spot, Way};
use crate::latency::{Latencies, latencies};
use crate::signals;

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// The way.
    pub way: Way,
    /// Bytes of each write or read.
    pub size: usize,
    /// Writes or reads at once; for [`Way::AppendBatch`], appends to a flush.
    pub depth: usize,
    /// Times measured: writes, reads or whole windows and batches, whichever one waits for.
    pub samples: u64,
    /// Half of them took at most this, in microseconds.
    pub p50_us: f64,
    /// All but one in a hundred took at most this, in microseconds.
    pub p99_us: f64,
    /// Bandwidth in MB/s (10^6 bytes), of the passes over the spot the middle one.
    pub mb_per_s: f64,
}

impl Cell {
    /// Sums up the passes over one spot, if there were any.
    pub fn new(Spot { way, size, depth }: Spot, passes: &[Samples]) -> Option<Self> {
        let mut all = latencies();
        passes.iter().for_each(|pass| all.add(&pass.latencies).expect("histograms of the same bounds"));
        let mut rates: Vec<f64> = passes.iter().map(Samples::mb_per_s).collect();
        rates.sort_by(f64::total_cmp);
        let at = |quantile| all.value_at_quantile(quantile) as f64 / 1e3;
        Some(Self {
            way,
            size,
            depth,
            samples: all.len(),
            p50_us: at(0.5),
            p99_us: at(0.99),
            mb_per_s: *rates.get(rates.len() / 2)?,
        })
    }

    /// Writes or reads a second.
    pub fn per_second(&self) -> f64 {
        self.mb_per_s * 1e6 / self.size as f64
    }
}

/// Bytes that writes take their payload from in turn: more than a machine like this one keeps in
/// caches. A virtual disk copies the payload on its host, and the same few megabytes again and
/// again would go faster than anything that is new.
const PAYLOAD: usize = 64 << 20;

/// The part of a volume that is measured on, and what is written there.
pub struct Area<'a> {
    volume: &'a FileVolume,
    bytes: u64,
    next: u64,
    noise: Bytes,
    next_payload: usize,
}

impl<'a> Area<'a> {
    /// The first `bytes` of a volume, a multiple of 4 KiB.
    pub fn new(volume: &'a FileVolume, bytes: u64) -> Self {
        let mut rng = Rng::new(1);
        let mut noise = AlignedBuf::zeroed(PAYLOAD);
        noise.chunks_exact_mut(8).for_each(|c| c.copy_from_slice(&rng.next().to_le_bytes()));
        Self { volume, bytes, next: 0, noise: noise.freeze(), next_payload: 0 }
    }

    /// Fills the area with what does not compress, so that every block is allocated and written
    /// before it counts. Cuts the area to what was filled by the time the slice ends, but keeps
    /// enough for the largest size.
    pub fn fill(&mut self, slice: Duration) -> io::Result<()> {
        let start = Instant::now();
        let mut done = 0;
        while done < self.bytes && !signals::asked() && (done < LARGEST as u64 || start.elapsed() < slice) {
            let len = (self.bytes - done).min(LARGEST as u64) as usize;
            write_all_at(self.volume, done, &self.payload(len), Persist::Cached)?;
            done += len as u64;
        }
        self.bytes = done;
        self.volume.flush()
    }

    /// Bytes of the area.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The place of the next `size` bytes: in order, from the start again at the end.
    fn take(&mut self, size: usize) -> u64 {
        if self.next + size as u64 > self.bytes {
            self.next = 0;
        }
        let at = self.next;
        self.next += size as u64;
        assert!(self.next <= self.bytes, "{size} bytes at {at} pass the end of the area, {}", self.bytes);
        at
    }

    /// The next `size` bytes to write.
    fn payload(&mut self, size: usize) -> Bytes {
        if self.next_payload + size > self.noise.len() {
            self.next_payload = 0;
        }
        let at = self.next_payload;
        self.next_payload += size.next_multiple_of(SECTOR);
        self.noise.slice(at..at + size)
    }

    /// Measures one spot for as long as `slice`, and at least once. Plain ways append to `plain`.
    pub fn measure(
        &mut self,
        spot: Spot,
        slice: Duration,
        plain: Option<&mut PlainFile>,
    ) -> io::Result<Samples> {
        match (spot.way, plain) {
            (Way::Durable | Way::Read, _) if spot.depth == 1 => self.one_by_one(spot, slice),
            (Way::Durable | Way::Read, _) => self.in_flight(spot, slice),
            (Way::Window, _) => self.windows(spot, slice),
            (Way::Append | Way::AppendBatch, Some(plain)) => self.append(spot, slice, plain),
            (Way::OpenAppend, Some(plain)) => self.open_append(spot, slice, plain),
            (_, None) => unreachable!("plain ways are planned only where there is a plain file"),
        }
    }

    /// One at a time, as a thread that waits for each would do it.
    fn one_by_one(&mut self, spot: Spot, slice: Duration) -> io::Result<Samples> {
        let mut buf = AlignedBuf::zeroed(spot.size);
        let mut samples = Samples::new();
        while samples.wants_more(slice) {
            let (at, payload) = (self.take(spot.size), self.payload(spot.size));
            samples.time(spot.size, || match spot.way {
                Way::Read => read_exact_at(self.volume, at, &mut buf),
                _ => write_all_at(self.volume, at, &payload, Persist::Durable),
            })?;
        }
        Ok(samples)
    }

    /// Several in flight, a new one for each that is done.
    fn in_flight(&mut self, spot: Spot, slice: Duration) -> io::Result<Samples> {
        let mut queue = self.volume.queue(spot.depth)?;
        let memory = || (spot.way == Way::Read).then(|| AlignedBuf::zeroed(spot.size));
        let mut idle: Vec<_> = (0..spot.depth).map(|slot| (slot, memory())).collect();
        let mut started = vec![Instant::now(); spot.depth];
        let mut done = Vec::new();
        let mut samples = Samples::new();
        let begin = Instant::now();
        loop {
            if !signals::asked() && (samples.samples() < spot.depth as u64 || begin.elapsed() < slice) {
                for (slot, buf) in idle.drain(..) {
                    let offset = self.take(spot.size);
                    started[slot] = Instant::now();
                    let op = match buf {
                        Some(buf) => Op::Read { offset, buf },
                        None => self.write(offset, spot.size, Persist::Durable),
                    };
                    queue.submit(slot as u64, op);
                }
            }
            if queue.in_flight() == 0 {
                break;
            }
            queue.reap(true, &mut done);
            for completion in done.drain(..) {
                let slot = completion.token as usize;
                samples.add(started[slot].elapsed(), spot.size);
                idle.push((slot, whole(completion, spot.size)?));
            }
        }
        samples.busy = begin.elapsed();
        Ok(samples)
    }

    /// Windows of writes, each ended by a flush.
    fn windows(&mut self, spot: Spot, slice: Duration) -> io::Result<Samples> {
        let mut queue = self.volume.queue(spot.depth)?;
        let mut done = Vec::new();
        let mut samples = Samples::new();
        while samples.wants_more(slice) {
            samples.time(spot.size * spot.depth, || {
                if spot.depth == 1 {
                    let at = self.take(spot.size);
                    write_all_at(self.volume, at, &self.payload(spot.size), Persist::Cached)?;
                } else {
                    self.write_window(spot, &mut *queue, &mut done)?;
                }
                self.volume.flush()
            })?;
        }
        Ok(samples)
    }

    fn write_window(
        &mut self,
        spot: Spot,
        queue: &mut dyn Queue,
        done: &mut Vec<Completion>,
    ) -> io::Result<()> {
        for slot in 0..spot.depth {
            let offset = self.take(spot.size);
            queue.submit(slot as u64, self.write(offset, spot.size, Persist::Cached));
        }
        while queue.in_flight() > 0 {
            queue.reap(true, done);
        }
        done.drain(..).try_for_each(|completion| whole(completion, spot.size).map(drop))
    }

    fn write(&mut self, offset: u64, size: usize, persist: Persist) -> Op {
        Op::Write { offset, data: self.payload(size), persist }
    }

    /// Appends to a file that stays open, with a flush after every `depth`.
    fn append(&mut self, spot: Spot, slice: Duration, plain: &mut PlainFile) -> io::Result<Samples> {
        let mut file = OpenOptions::new().append(true).open(plain.path())?;
        let mut samples = Samples::new();
        while samples.wants_more(slice) {
            plain.make_room(spot.size * spot.depth)?;
            samples.time(spot.size * spot.depth, || {
                (0..spot.depth).try_for_each(|_| file.write_all(&self.payload(spot.size)))?;
                file.sync_data()
            })?;
        }
        Ok(samples)
    }

    /// Opens, appends, flushes and closes, each time.
    fn open_append(&mut self, spot: Spot, slice: Duration, plain: &mut PlainFile) -> io::Result<Samples> {
        let mut samples = Samples::new();
        while samples.wants_more(slice) {
            plain.make_room(spot.size)?;
            samples.time(spot.size, || {
                let mut file = OpenOptions::new().append(true).open(plain.path())?;
                file.write_all(&self.payload(spot.size))?;
                file.sync_data()
            })?;
        }
        Ok(samples)
    }
}

/// The memory of an operation that moved all its bytes; writes have none of their own.
fn whole(completion: Completion, size: usize) -> io::Result<Option<AlignedBuf>> {
    let n = completion.result?;
    if n != size {
        let message = format!("the device moved {n} bytes of {size}; figures would be wrong");
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
    }
    Ok(completion.buf)
}

/// The times of one pass over a spot.
pub struct Samples {
    latencies: Latencies,
    bytes: u64,
    /// The time in which the bytes were moved.
    busy: Duration,
    begin: Instant,
}

impl Samples {
    fn new() -> Self {
        Self { latencies: latencies(), bytes: 0, busy: Duration::ZERO, begin: Instant::now() }
    }

    fn samples(&self) -> u64 {
        self.latencies.len()
    }

    fn wants_more(&self, slice: Duration) -> bool {
        !signals::asked() && (self.samples() == 0 || self.begin.elapsed() < slice)
    }

    fn add(&mut self, took: Duration, bytes: usize) {
        self.latencies.saturating_record((took.as_nanos() as u64).max(1));
        self.bytes += bytes as u64;
    }

    /// Times one step that nothing else overlaps.
    fn time(&mut self, bytes: usize, step: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let start = Instant::now();
        step()?;
        let took = start.elapsed();
        self.add(took, bytes);
        self.busy += took;
        Ok(())
    }

    /// The times, each of a write, a read, a window or a batch.
    pub fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    /// Bandwidth in MB/s (10^6 bytes).
    pub fn mb_per_s(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.busy.as_secs_f64().max(1e-9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_in_bad_weather_does_not_move_the_bandwidth() {
        let pass = |millis: u64| {
            let mut samples = Samples::new();
            samples.add(Duration::from_millis(millis), 1 << 20);
            samples.busy = Duration::from_millis(millis);
            samples
        };
        let spot = Spot { way: Way::Durable, size: 1 << 20, depth: 1 };
        let cell = Cell::new(spot, &[pass(1), pass(500), pass(1)]).unwrap();
        assert_eq!((cell.samples, cell.mb_per_s.round()), (3, 1049.0));
        assert!(cell.p50_us < 1100.0 && cell.p99_us > 400_000.0, "{cell:?}");
        assert_eq!(Cell::new(spot, &[]), None);
    }
}
