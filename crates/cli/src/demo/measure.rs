//! What waiting costs: one waiting writer and many, beside the device's own durable write.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use brooklet::Store;

use crate::device::Device;
use crate::failure::Failure;
use crate::latency::{Latencies, latencies};

/// How long each figure is measured.
const TIME: Duration = Duration::from_secs(1);
/// Turns that the device and the store take while they are compared: what else the device has to do
/// hits both.
const TURNS: u32 = 5;
/// Bytes of the plain file.
const FILE: u64 = 4 << 20;

/// Durable writes of 4 KiB, one after another, to a plain file whose space was written before; and
/// appends of 100 bytes by one waiting writer.
pub fn device_and_one_writer(plain: &Path, store: &Store) -> Result<[Latencies; 2], Failure> {
    let mut device = Device::new(plain, FILE)?;
    let mut both = [latencies(), latencies()];
    for _ in 0..TURNS {
        both[0] += measure(TIME / TURNS, || device.write())?;
        both[1] += measure(TIME / TURNS, || append(store, "waiting"))?;
    }
    Ok(both)
}

/// Appends of 100 bytes by some writers that each wait for every one of theirs.
pub fn waiting_writers(store: &Store, writers: usize) -> Result<Latencies, Failure> {
    thread::scope(|scope| {
        let write = |writer| {
            let key = format!("waiting/{writer}");
            measure(TIME, || append(store, &key))
        };
        let running: Vec<_> = (0..writers).map(|writer| scope.spawn(move || write(writer))).collect();
        running.into_iter().try_fold(latencies(), |mut all, one| {
            all += one.join().expect("no panics")?;
            Ok(all)
        })
    })
}

/// Appends a second of these writers stood for.
pub fn per_second(latencies: &Latencies) -> f64 {
    latencies.len() as f64 / TIME.as_secs_f64()
}

fn append(store: &Store, key: &str) -> Result<(), Failure> {
    Ok(store.append(key, [b'x'; 100])?.wait()?)
}

fn measure(time: Duration, mut act: impl FnMut() -> Result<(), Failure>) -> Result<Latencies, Failure> {
    let mut latencies = latencies();
    let begin = Instant::now();
    while begin.elapsed() < time {
        let start = Instant::now();
        act()?;
        latencies.saturating_record(start.elapsed().as_nanos() as u64);
    }
    Ok(latencies)
}
