//! Writes held to a pace: never sooner than the interval and the rate allow, and everybody is still
//! told.

#![expect(clippy::disallowed_methods, reason = "the pace is kept in real time, by threads")]

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use brooklet_io::{Clock, Layer, ManualClock, MemVolume, Op, Persist, Queue, SystemClock, Volume};
use brooklet_wal::{Codec, Committer, Config, Cursor, Opening, Pause, Wal, Zone};

const FIRST: Cursor = Cursor { position: 0, seq: 1, lsn: 0, chain: 0 };
const RING: u64 = 8 << 20;

/// Notes when each write starts, and how long it is.
#[derive(Clone, Debug)]
struct Watched {
    within: MemVolume,
    writes: Arc<Mutex<Vec<(Instant, usize)>>>,
}

impl Watched {
    fn note(&self, data: &[u8]) {
        self.writes.lock().unwrap().push((Instant::now(), data.len()));
    }
}

impl Layer for Watched {
    fn below(&self) -> &dyn Volume {
        &self.within
    }
    fn write_at(&self, offset: u64, data: &[u8], persist: Persist) -> io::Result<usize> {
        self.note(data);
        self.below().write_at(offset, data, persist)
    }
    fn submit(&self, queue: &mut dyn Queue, token: u64, op: Op) {
        if let Op::Write { data, .. } = &op {
            self.note(data);
        }
        queue.submit(token, op);
    }
}

/// Reports when a write begins, and lets it go on once the gate is free.
#[derive(Clone, Debug)]
struct Gated {
    within: MemVolume,
    begun: Sender<()>,
    gate: Arc<Mutex<()>>,
}

impl Layer for Gated {
    fn below(&self) -> &dyn Volume {
        &self.within
    }
    fn write_at(&self, offset: u64, data: &[u8], persist: Persist) -> io::Result<usize> {
        let _ = self.begun.send(());
        let _free = self.gate.lock().unwrap();
        self.below().write_at(offset, data, persist)
    }
}

/// A log without a committer's thread, with one write in flight at most. Also returns its gate, and
/// the reports of its writes.
fn gated(clock: Arc<dyn Clock>) -> (Wal, Arc<Mutex<()>>, Receiver<()>) {
    let ((begun, begins), within, gate) = (channel(), MemVolume::new(1), Arc::default());
    within.grow(RING).unwrap();
    let volume = Gated { within, begun, gate: Arc::clone(&gate) };
    let interval = Duration::from_millis(1);
    let config = Config { interval, depth: 1, linger: Duration::ZERO, ..Config::default() };
    let wal = Wal::open(
        Arc::new(volume),
        Zone { offset: 0, size: RING, store: 7 },
        config,
        Opening { tail: 0, next: FIRST, epoch: 1 },
        clock,
        Arc::new(()),
    );
    (wal, gate, begins)
}

/// Runs `load` on a log of this pace, and returns its writes.
fn paced(config: Config, load: impl FnOnce(&Wal)) -> Vec<(Instant, usize)> {
    let within = MemVolume::new(1);
    within.grow(RING).unwrap();
    let volume = Watched { within, writes: Arc::default() };
    let zone = Zone { offset: 0, size: RING, store: 7 };
    let clock = Arc::new(SystemClock::new());
    let wal = Wal::open(
        Arc::new(volume.clone()),
        zone,
        config,
        Opening { tail: 0, next: FIRST, epoch: 1 },
        clock,
        Arc::new(()),
    );
    let committer = Committer::new(&wal).unwrap();
    let committer = thread::spawn(move || committer.run());
    load(&wal);
    wal.close().unwrap();
    committer.join().unwrap();
    let writes = volume.writes.lock().unwrap();
    writes.clone()
}

/// The clock of the log and the one of this test are read at slightly different moments.
const SLACK: Duration = Duration::from_micros(200);

/// Whether it holds once in some tries. A busy machine may keep a thread between the two moments:
/// then the first of two writes is noted late, and the time between them seems short.
fn once(what: &str, holds: impl Fn() -> Result<(), Duration>) {
    let found: Vec<_> = (0..20).map(|_| holds()).take_while(Result::is_err).collect();
    assert!(found.len() < 20, "{what}: {found:?}");
}

#[test]
fn writes_keep_the_interval_and_every_waiting_thread_is_told() {
    let interval = Duration::from_millis(4);
    once("the interval", || {
        let writes = paced(Config { interval, ..Config::default() }, |wal| {
            thread::scope(|scope| {
                for n in 0..8u8 {
                    let append = move || wal.append(&[n; 100]).unwrap().1.wait().unwrap();
                    scope.spawn(move || (0..10).for_each(|_| append()));
                }
            });
        });
        assert!(writes.len() >= 10, "ten rounds take as many blocks");
        let starts: Vec<Instant> = writes.iter().map(|(start, _)| *start).collect();
        // One that starts late may be followed by one that is on time, but over several the
        // interval shows.
        for (from, to) in starts.iter().zip(starts.iter().skip(5)) {
            if *to - *from + interval + SLACK < interval * 5 {
                return Err(*to - *from);
            }
        }
        let all = starts[starts.len() - 1] - starts[0];
        if all + interval >= interval * (starts.len() as u32 - 1) { Ok(()) } else { Err(all) }
    });
}

#[test]
fn bytes_keep_the_rate_whoever_waits() {
    let rate = 10_000_000;
    let config = Config { rate, codec: Codec::Raw, block_size: 64 << 10, ..Config::default() };
    once("the rate", || {
        let writes = paced(config, |wal| {
            let acks: Vec<_> = (0..100).map(|n| wal.append(&[n; 10_000]).unwrap().1).collect();
            acks.into_iter().for_each(|ack| ack.wait().unwrap());
        });
        let (last, before) = writes.split_last().expect("there are writes");
        let bytes: usize = before.iter().map(|(_, len)| len).sum();
        let least = Duration::from_secs_f64(bytes as f64 / rate as f64);
        assert!(bytes > 500_000, "most blocks come before the last");
        let all = last.0 - writes[0].0;
        if all + SLACK >= least { Ok(()) } else { Err(all) }
    });
}

#[test]
fn callbacks_are_called_at_a_pace_too() {
    let (told, waits) = channel();
    let interval = Duration::from_millis(1);
    paced(Config { interval, ..Config::default() }, |wal| {
        for n in 0..100u8 {
            let told = told.clone();
            wal.append(&[n]).unwrap().1.on_done(move |result| told.send(result.is_ok()).unwrap());
            if n % 10 == 0 {
                thread::sleep(Duration::from_millis(3));
            }
        }
        assert!((0..100).all(|_| waits.recv_timeout(Duration::from_secs(60)).expect("told in time")));
    });
}

/// The empty block that a log writes when it falls idle, to tell what is acknowledged, is paid for
/// like any other.
#[test]
fn an_empty_block_keeps_the_interval_too() {
    let volume = MemVolume::new(1);
    volume.grow(RING).unwrap();
    let zone = Zone { offset: 0, size: RING, store: 7 };
    let interval = Duration::from_secs(1);
    let config = Config { interval, linger: Duration::ZERO, ..Config::default() };
    let clock = Arc::new(ManualClock::default());
    let wal = Wal::open(
        Arc::new(volume),
        zone,
        config,
        Opening { tail: 0, next: FIRST, epoch: 1 },
        clock.clone(),
        Arc::new(()),
    );
    let mut committer = Committer::new(&wal).unwrap();
    wal.append(b"x").unwrap();
    let mut blocks_after = |time| {
        clock.advance(time);
        // More rounds than make it idle.
        (0..200).for_each(|_| _ = committer.step());
        (wal.durable(), wal.stats().blocks)
    };
    assert_eq!(blocks_after(Duration::ZERO), (1, 1));
    assert_eq!(blocks_after(interval - Duration::from_nanos(1)), (1, 1));
    assert_eq!(blocks_after(Duration::from_nanos(1)), (2, 2));
    assert_eq!(blocks_after(10 * interval), (2, 2), "it tells once");
}

/// A thread finds the only slot taken, and waits. The thread whose write ends wakes it.
#[test]
fn threads_keep_the_pace_for_each_other_without_a_committer() {
    let (wal, gate, begins) = gated(Arc::new(SystemClock::new()));
    let held = gate.lock().unwrap();
    let (told, waits) = channel();
    for n in 0..2u8 {
        let (wal, told) = (wal.clone(), told.clone());
        thread::spawn(move || told.send(wal.append(&[n]).unwrap().1.wait().is_ok()).unwrap());
        if n == 0 {
            begins.recv().unwrap();
        }
    }
    // Time enough for the second to wait; if it does not yet, the test sees less.
    thread::sleep(Duration::from_millis(50));
    drop(held);
    assert!((0..2).all(|_| waits.recv_timeout(Duration::from_secs(120)).expect("each is woken")));
}

/// A block is due while the write of another thread has the only slot: the committer waits, and
/// does not ask again at once.
#[test]
fn the_committer_rests_while_another_thread_has_the_slot() {
    let clock = Arc::new(ManualClock::default());
    let (wal, gate, begins) = gated(clock.clone());
    let mut committer = Committer::new(&wal).unwrap();
    let held = gate.lock().unwrap();
    let paused = thread::scope(|scope| {
        let writer = scope.spawn(|| wal.write_empty().unwrap());
        begins.recv().unwrap();
        wal.append(b"x").unwrap();
        clock.advance(Duration::from_secs(1));
        let paused = committer.step();
        drop(held);
        assert!(writer.join().unwrap());
        paused
    });
    assert!(matches!(paused, Pause::Sleep(time) if !time.is_zero()), "{paused:?}");
    (0..200).for_each(|_| _ = committer.step());
    assert_eq!(wal.durable(), 2);
}
