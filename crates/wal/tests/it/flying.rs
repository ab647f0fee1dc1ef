//! A committer that waits for a write is woken for the next one, while a slot is free; one that
//! rests, for what is cut off.

#![expect(clippy::disallowed_methods, reason = "threads and real time are what is tested")]

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use brooklet_io::{Completion, Layer, MemVolume, Op, Queue, SystemClock, Volume};
use brooklet_wal::{Committer, Config, Cursor, Opening, Wal, Zone};

const FIRST: Cursor = Cursor { position: 0, seq: 1, lsn: 0, chain: 0 };

/// A disk that begins to write at once, and ends nothing before it is told to.
#[derive(Clone, Debug)]
struct Held {
    disk: MemVolume,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    begun: usize,
    /// Writes that may end, by the number of their block; all, once it is open.
    ending: Vec<u64>,
    open: bool,
    woken: bool,
    /// Whether the committer waits, and how often it has begun to.
    waits: bool,
    waited: usize,
}

impl Gate {
    fn change(&self, how: impl FnOnce(&mut State)) {
        how(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    /// Waits until `begun` writes have begun; whether they have.
    fn begins(&self, begun: usize) -> bool {
        let state = self.state.lock().unwrap();
        let waited =
            self.changed.wait_timeout_while(state, Duration::from_secs(120), |state| state.begun < begun);
        waited.unwrap().0.begun == begun
    }

    /// Lets the write of a block end.
    fn end(&self, block: u64) {
        self.change(|state| {
            state.ending.push(block);
            state.woken = true;
        });
    }

    /// Waits until the committer waits for a write; how often it has begun to.
    fn rests(&self) -> usize {
        let state = self.state.lock().unwrap();
        let state = self.changed.wait_while(state, |state| !state.waits || state.woken).unwrap();
        state.waited
    }
}

impl Wake for Gate {
    fn wake(self: Arc<Self>) {
        self.change(|state| state.woken = true);
    }
}

impl Layer for Held {
    fn below(&self) -> &dyn Volume {
        &self.disk
    }

    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        let (below, gate) = (self.disk.queue(depth)?, self.gate.clone());
        Ok(Box::new(HeldQueue { below, held: Vec::new(), gate }))
    }
}

struct HeldQueue {
    below: Box<dyn Queue>,
    held: Vec<Completion>,
    gate: Arc<Gate>,
}

impl Queue for HeldQueue {
    fn submit(&mut self, token: u64, op: Op) {
        self.below.submit(token, op);
        self.gate.change(|state| state.begun += 1);
    }

    fn reap(&mut self, _: bool, out: &mut Vec<Completion>) {
        while self.below.in_flight() > 0 {
            self.below.reap(true, &mut self.held);
        }
        let state = self.gate.state.lock().unwrap();
        out.extend(self.held.extract_if(.., |done| state.open || state.ending.contains(&done.token)));
    }

    fn wait(&mut self, patience: Duration) {
        self.gate.change(|state| {
            state.waits = true;
            state.waited += 1;
        });
        let state = self.gate.state.lock().unwrap();
        let waited =
            self.gate.changed.wait_timeout_while(state, patience, |state| !state.open && !state.woken);
        let mut state = waited.unwrap().0;
        (state.woken, state.waits) = (false, false);
    }

    fn waker(&self) -> Waker {
        self.gate.clone().into()
    }

    fn in_flight(&self) -> usize {
        self.below.in_flight() + self.held.len()
    }
}

fn held(config: Config, test: impl FnOnce(&Wal, &Gate)) {
    let disk = MemVolume::new(1);
    disk.grow(1 << 20).unwrap();
    let held = Held { disk, gate: Arc::default() };
    let gate = held.gate.clone();
    let zone = Zone { offset: 0, size: 1 << 20, store: 7 };
    let clock = Arc::new(SystemClock::new());
    let wal = Wal::open(
        Arc::new(held),
        zone,
        config,
        Opening { tail: 0, next: FIRST, epoch: 1 },
        clock,
        Arc::new(()),
    );
    let committer = Committer::new(&wal).unwrap();
    let committer = thread::spawn(move || committer.run());
    test(&wal, &gate);
    gate.change(|state| state.open = true);
    wal.close().unwrap();
    committer.join().unwrap();
}

const RECORD: [u8; 3000] = [7; 3000];

/// Blocks of one record, which start when they are full or cut off, and never for being due.
fn full_only(depth: usize) -> Config {
    Config { block_size: 4096, depth, linger: Duration::from_secs(3600), ..Config::default() }
}

#[test]
fn a_block_that_is_full_starts_while_another_is_in_flight() {
    held(full_only(3), |wal, gate| {
        wal.append(&RECORD).unwrap();
        wal.cut();
        assert!(gate.begins(1));
        // Nobody waits: each record closes the block before it.
        wal.append(&RECORD).unwrap();
        for begun in 2..4 {
            gate.rests();
            wal.append(&RECORD).unwrap();
            assert!(gate.begins(begun), "write {begun} waits for one before it");
        }
        let waited = gate.rests();
        wal.append(&RECORD).unwrap();
        thread::sleep(Duration::from_millis(20));
        assert!(
            gate.begins(3) && gate.rests() == waited,
            "no slot is free: there is nothing to be woken for"
        );
    });
}

#[test]
fn a_write_that_takes_long_holds_up_no_more_than_the_window() {
    held(full_only(2), |wal, gate| {
        let append = || wal.append(&RECORD).unwrap().1;
        let mut acks = vec![append()];
        wal.cut();
        assert!(gate.begins(1));
        acks.push(append());
        // Each record closes the block before it.
        acks.push(append());
        assert!(gate.begins(2));
        for ended in 2..4 {
            acks.push(append());
            gate.end(ended);
            assert!(gate.begins(ended as usize + 1), "the first write goes on, and there is a slot");
        }
        append();
        gate.end(4);
        gate.rests();
        thread::sleep(Duration::from_millis(20));
        assert!(gate.begins(4), "the window is full");
        assert!(acks.iter().all(|ack| !ack.is_done()));
        gate.end(1);
        assert!(gate.begins(5));
        for ack in &acks[..4] {
            assert!(ack.wait_timeout(Duration::from_secs(120)).unwrap());
        }
    });
}

#[test]
fn a_paced_write_starts_when_it_is_due_while_another_is_in_flight() {
    let interval = Duration::from_millis(20);
    held(Config { block_size: 4096, depth: 3, interval, ..Config::default() }, |wal, gate| {
        let start = Instant::now();
        wal.append(&RECORD).unwrap();
        assert!(gate.begins(1));
        // It waits without an end, since nothing is due, until something is.
        gate.rests();
        wal.append(&RECORD).unwrap();
        assert!(gate.begins(2) && start.elapsed() >= interval);
    });
}

#[test]
fn what_is_cut_off_starts_before_it_is_due() {
    let linger = Duration::from_secs(3600);
    held(Config { linger, ..Config::default() }, |wal, gate| {
        wal.append(&RECORD).unwrap();
        thread::sleep(Duration::from_millis(50));
        assert!(gate.begins(0), "nobody waits for it");
        wal.cut();
        assert!(gate.begins(1));
    });
}

#[test]
fn a_task_that_stops_awaiting_is_let_go() {
    struct Task;
    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }
    held(Config::default(), |wal, _| {
        let task = Arc::new(Task);
        let mut ack = wal.append(&RECORD).unwrap().1;
        let polled = Pin::new(&mut ack).poll(&mut Context::from_waker(&task.clone().into()));
        assert!(polled.is_pending() && Arc::strong_count(&task) == 2);
        drop(ack);
        assert_eq!(Arc::strong_count(&task), 1);
    });
}
