//! Callbacks and wakers: what they may do, where they run, and what a panic does.

use std::future::Future;
use std::panic::catch_unwind;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Wake};
use std::thread;
use std::time::Duration;

use brooklet_io::{Layer, ManualClock, MemVolume, Volume};
use brooklet_wal::{
    Ack, Block, Config, Cursor, Log, LogError, LogOptions, Opening, Sink, Waiters, Wal, WalError, Zone,
};

const ZONE: Zone = Zone { offset: 0, size: 256 << 10, store: 7 };
const FIRST: Cursor = Cursor { position: 0, seq: 1, lsn: 0, chain: 0 };
/// So long that whoever waits for it waits for ever.
const LONG: Duration = Duration::from_secs(300);

/// A log that nobody drives but who waits.
fn undriven(volume: Arc<dyn Volume>, sink: Arc<dyn Sink>) -> Wal {
    volume.grow(ZONE.size).unwrap();
    let config = Config { block_size: 4096, ..Config::default() };
    Wal::open(
        volume,
        ZONE,
        config,
        Opening { tail: 0, next: FIRST, epoch: 1 },
        Arc::new(ManualClock::default()),
        sink,
    )
}

fn log() -> Arc<Log> {
    let config = Config { block_size: 16 << 10, depth: 2, ..Config::default() };
    // Room for 640 records of three sectors, and for an empty block behind each: on a busy machine,
    // the committer may rest after each of them, and nobody trims.
    let options = LogOptions::new().ring_size(16 << 20).config(config);
    Arc::new(Log::create(Arc::new(MemVolume::new(1)), options).unwrap())
}

fn told<T>(told: &Receiver<T>) -> T {
    told.recv_timeout(LONG).expect("it comes")
}

/// Appends, and again as that is durable.
fn chain(log: &Arc<Log>, left: usize, done: &Arc<AtomicUsize>) {
    let (again, count) = (log.clone(), done.clone());
    let (_, ack) = log.append(&[left as u8; 10_000]).unwrap();
    ack.on_done(move |result| {
        result.unwrap();
        count.fetch_add(1, Ordering::Relaxed);
        if left > 0 {
            chain(&again, left - 1, &count);
        }
    });
}

/// They waited for room on the one thread that could make some.
#[test]
fn callbacks_that_append_wait_for_room_as_others_do() {
    let (log, done) = (log(), Arc::new(AtomicUsize::new(0)));
    let (begin, over) = channel();
    let (chains, count) = (log.clone(), done.clone());
    thread::Builder::new()
        .spawn(move || {
            (0..64).for_each(|_| chain(&chains, 9, &count));
            while count.load(Ordering::Relaxed) < 640 {
                chains.flush().unwrap();
                thread::yield_now();
            }
            begin.send(()).unwrap();
        })
        .unwrap();
    told(&over);
    log.close().unwrap();
}

#[test]
fn a_callback_may_close_the_log_and_drop_the_last_handle() {
    let log = log();
    let (sender, closed) = channel();
    let within = log.clone();
    let (_, ack) = log.append(b"a record").unwrap();
    ack.on_done(move |result| {
        result.unwrap();
        let (_, ack) = within.append(b"another").unwrap();
        ack.wait().unwrap();
        within.trim(within.next()).unwrap();
        sender.send(within.close()).unwrap();
        drop(within);
        sender.send(Ok(())).unwrap();
    });
    drop(log);
    told(&closed).unwrap();
    told(&closed).unwrap();
}

/// Closing waited for itself; waiting waited for the thread that it was on.
#[test]
fn a_waker_that_would_wait_is_refused() {
    struct Works(Arc<Log>, Mutex<Option<Vec<String>>>);
    impl Wake for Works {
        fn wake(self: Arc<Self>) {
            let ack = self.0.append(b"there is room").unwrap().1;
            let wait = ack.wait().map_err(LogError::from);
            let patient = ack.wait_timeout(LONG).map(drop).map_err(LogError::from);
            let trimmed = self.0.trim(self.0.next());
            let all = [wait, patient, trimmed, self.0.resize(1 << 20), self.0.close()];
            *self.1.lock().unwrap() = Some(all.map(|result| result.unwrap_err().to_string()).into());
        }
    }
    let log = log();
    let works = Arc::new(Works(log.clone(), Mutex::default()));
    let waker = works.clone().into();
    // The committer may be faster than a poll: then nobody is woken.
    let _waits = loop {
        let mut ack = log.append(b"a record").unwrap().1;
        if Pin::new(&mut ack).poll(&mut Context::from_waker(&waker)).is_pending() {
            break ack;
        }
    };
    drop(waker);
    let errors = loop {
        match works.1.lock().unwrap().take() {
            Some(errors) => break errors,
            None => thread::yield_now(),
        }
    };
    assert!(errors.iter().all(|error| error.contains("a waker must not wait")), "{errors:?}");
    log.close().unwrap();
}

/// Its owner was dropped under the lock of those who listen.
#[test]
fn a_waker_is_dropped_under_no_lock() {
    struct Listens(OnceLock<Ack>);
    impl Wake for Listens {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Listens {
        fn drop(&mut self) {
            self.0.get().unwrap().on_done(|result| result.unwrap());
        }
    }
    let (sender, over) = channel();
    thread::Builder::new()
        .spawn(move || {
            let wal = undriven(Arc::new(MemVolume::new(1)), Arc::new(()));
            let (_, mut ack) = wal.append(b"a record").unwrap();
            let mut other = ack.clone();
            for ack in [&mut ack, &mut other] {
                let listens = Arc::new(Listens(OnceLock::new()));
                listens.0.set(ack.clone()).unwrap();
                let waker = listens.into();
                assert!(Pin::new(ack).poll(&mut Context::from_waker(&waker)).is_pending());
            }
            // One that is kept last is replaced, and one goes with its task.
            let noop = &mut Context::from_waker(std::task::Waker::noop());
            assert!(Pin::new(&mut ack).poll(noop).is_pending());
            drop(other);
            ack.wait().unwrap();
            sender.send(()).unwrap();
        })
        .unwrap();
    told(&over);
}

pub fn a_callback_never_runs_within_another() {
    let wal = undriven(Arc::new(MemVolume::new(1)), Arc::new(()));
    let depth = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    for _ in 0..2 {
        let (_, ack) = wal.append(&[7; 3000]).unwrap();
        let (within, depth) = (wal.clone(), depth.clone());
        ack.on_done(move |_| {
            let now = depth.0.fetch_add(1, Ordering::Relaxed) + 1;
            depth.1.fetch_max(now, Ordering::Relaxed);
            within.append(b"more").unwrap().1.wait().unwrap();
            depth.0.fetch_sub(1, Ordering::Relaxed);
        });
    }
    wal.flush().unwrap();
    assert_eq!((depth.0.load(Ordering::Relaxed), depth.1.load(Ordering::Relaxed)), (0, 1));
    wal.close().unwrap();
}

#[test]
fn without_a_committer_callbacks_run_one_after_another() {
    a_callback_never_runs_within_another();
}

pub fn closing_waits_for_a_callback_of_another_thread() {
    let wal = undriven(Arc::new(MemVolume::new(1)), Arc::new(()));
    let (started, starts) = channel();
    let called = Arc::new(AtomicUsize::new(0));
    let (_, ack) = wal.append(b"a record").unwrap();
    let count = called.clone();
    let (_open, never) = channel::<()>();
    ack.on_done(move |_| {
        started.send(()).unwrap();
        assert!(never.recv_timeout(Duration::from_millis(200)).is_err());
        count.fetch_add(1, Ordering::Relaxed);
    });
    thread::scope(|scope| {
        scope.spawn(|| ack.wait().unwrap());
        starts.recv().unwrap();
        wal.close().unwrap();
        assert_eq!(called.load(Ordering::Relaxed), 1, "all callbacks have been called");
    });
}

#[test]
fn without_a_committer_closing_waits_for_callbacks() {
    closing_waits_for_a_callback_of_another_thread();
}

pub fn a_callback_waits_for_the_end_of_a_hush() {
    let wal = undriven(Arc::new(MemVolume::new(1)), Arc::new(()));
    let called = Arc::new(AtomicUsize::new(0));
    let (_, ack) = wal.append(b"a record").unwrap();
    let count = called.clone();
    ack.on_done(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let hush = wal.hush();
    ack.wait().unwrap();
    assert_eq!(called.load(Ordering::Relaxed), 0, "a lock is held that it may ask for");
    drop(hush);
    assert_eq!(called.load(Ordering::Relaxed), 1);
}

#[test]
fn without_a_committer_callbacks_run_under_no_lock() {
    a_callback_waits_for_the_end_of_a_hush();
}

/// A log without a thread, whose own callback steps it while it is stepped.
#[test]
fn a_log_that_is_stepped_calls_back_when_the_step_is_over() {
    let options = LogOptions::new().ring_size(1 << 20).threads(false);
    let log = Arc::new(Log::create(Arc::new(MemVolume::new(1)), options).unwrap());
    let (sender, over) = channel();
    let within = log.clone();
    log.append(b"a record").unwrap().1.on_done(move |result| {
        result.unwrap();
        within.step();
        within.append(b"another").unwrap().1.wait().unwrap();
        within.trim(within.next()).unwrap();
        sender.send(()).unwrap();
    });
    log.flush().unwrap();
    assert_eq!(over.try_recv(), Ok(()));
    log.close().unwrap();
}

/// A volume that panics once it is told to.
#[derive(Clone, Debug)]
struct Panics(MemVolume, Arc<OnceLock<()>>);

impl Layer for Panics {
    fn below(&self) -> &dyn Volume {
        &self.0
    }
    fn write_at(&self, offset: u64, data: &[u8], persist: brooklet_io::Persist) -> std::io::Result<usize> {
        assert!(self.1.get().is_none(), "an assertion of the volume's");
        self.0.write_at(offset, data, persist)
    }
}

/// Everyone who waits is told that the log has stopped, and why.
fn all_are_told(wal: &Wal, acks: &mut [Ack], why: &str) {
    let told = |result: Result<(), WalError>| match result {
        Err(WalError::Stopped(error)) => assert!(error.to_string().contains(why), "{error}"),
        other => panic!("{other:?}"),
    };
    for ack in acks {
        told(ack.wait());
        let (sender, called) = channel();
        ack.on_done(move |result| sender.send(result).unwrap());
        told(called.try_recv().unwrap());
        let polled = Pin::new(ack).poll(&mut Context::from_waker(std::task::Waker::noop()));
        told(match polled {
            Poll::Ready(result) => result,
            Poll::Pending => panic!("it waits for ever"),
        });
    }
    told(wal.append(b"more").map(drop));
    told(wal.flush());
    told(wal.close().map(drop));
}

pub fn a_volume_that_panics_stops_the_log() {
    let volume = Panics(MemVolume::new(1), Arc::default());
    let wal = undriven(Arc::new(volume.clone()), Arc::new(()));
    wal.append(b"safe").unwrap().1.wait().unwrap();
    let mut acks: Vec<Ack> = (0..3).map(|n| wal.append(&[n; 3000]).unwrap().1).collect();
    volume.1.set(()).unwrap();
    all_are_told(&wal, &mut acks, "writing a block panicked: an assertion of the volume's");
}

#[test]
fn a_panic_of_the_volume_is_a_failed_write() {
    a_volume_that_panics_stops_the_log();
}

#[test]
fn a_panic_of_the_sink_stops_the_log() {
    struct Fails;
    impl Sink for Fails {
        fn durable(&self, blocks: &[Arc<Block>], _: &mut Waiters) {
            assert!(blocks[0].seq() < 2, "an assertion of the sink's");
        }
    }
    let wal = undriven(Arc::new(MemVolume::new(1)), Arc::new(Fails));
    wal.append(b"safe").unwrap().1.wait().unwrap();
    let mut acks: Vec<Ack> = (0..3).map(|n| wal.append(&[n; 3000]).unwrap().1).collect();
    all_are_told(&wal, &mut acks, "the log's sink panicked: an assertion of the sink's");
}

/// The committer's thread was gone, and everyone waited for it.
#[test]
fn a_panic_in_the_committer_stops_the_log() {
    #[derive(Clone, Debug)]
    struct PanicsInQueue(MemVolume, Arc<OnceLock<()>>);
    struct Queue(Box<dyn brooklet_io::Queue>, Arc<OnceLock<()>>);
    impl Layer for PanicsInQueue {
        fn below(&self) -> &dyn Volume {
            &self.0
        }
        fn queue(&self, depth: usize) -> std::io::Result<Box<dyn brooklet_io::Queue>> {
            Ok(Box::new(Queue(self.0.queue(depth)?, self.1.clone())))
        }
    }
    impl brooklet_io::Queue for Queue {
        fn submit(&mut self, token: u64, op: brooklet_io::Op) {
            self.0.submit(token, op);
        }
        fn reap(&mut self, wait: bool, out: &mut Vec<brooklet_io::Completion>) {
            assert!(self.1.get().is_none(), "an assertion of the queue's");
            self.0.reap(wait, out);
        }
        fn wait(&mut self, patience: Duration) {
            self.0.wait(patience);
        }
        fn waker(&self) -> std::task::Waker {
            self.0.waker()
        }
        fn in_flight(&self) -> usize {
            self.0.in_flight()
        }
    }
    let volume = PanicsInQueue(MemVolume::new(1), Arc::default());
    let log = Log::create(Arc::new(volume.clone()), LogOptions::new().ring_size(1 << 20)).unwrap();
    log.append(b"safe").unwrap().1.wait().unwrap();
    volume.1.set(()).unwrap();
    let (sender, called) = channel();
    // Some become durable by whoever waits; what the committer has, it fails.
    let error = loop {
        let appended = log.append(b"a record").and_then(|(_, ack)| {
            let sender = sender.clone();
            ack.on_done(move |result| sender.send(result).unwrap());
            told(&called)
        });
        if let Err(error) = appended {
            break error;
        }
    };
    assert!(error.to_string().contains("panicked: an assertion of the queue's"), "{error}");
    assert!(matches!(log.close(), Err(LogError::Wal(WalError::Stopped(_)))));
}

/// An acknowledgement that was kept kept the volume open.
#[test]
fn an_ack_outlives_its_log_and_keeps_nothing_open() {
    let volume = Arc::new(MemVolume::new(1));
    let log = Log::create(volume.clone(), LogOptions::new().ring_size(1 << 20)).unwrap();
    let (_, ack) = log.append(b"a record").unwrap();
    log.close().unwrap();
    drop(log);
    assert_eq!(Arc::strong_count(&volume), 1);
    ack.wait().unwrap();
    let wal = undriven(volume.clone(), Arc::new(()));
    let (_, ack) = wal.append(b"nobody drives it").unwrap();
    let (sender, called) = channel();
    ack.on_done(move |result| sender.send(result).unwrap());
    drop(wal);
    assert!(matches!(told(&called), Err(WalError::Closed)));
    assert!(matches!(ack.wait(), Err(WalError::Closed)) && !ack.is_done());
    assert_eq!(Arc::strong_count(&volume), 1);
}

/// A panic while the core is changed: whoever comes next is told, and those who wait.
#[test]
fn a_record_that_panics_while_it_is_encoded_stops_the_log() {
    let wal = undriven(Arc::new(MemVolume::new(1)), Arc::new(()));
    let mut acks = [wal.append(b"a record").unwrap().1];
    let within = wal.clone();
    let panicked = catch_unwind(std::panic::AssertUnwindSafe(|| {
        within.try_append(9, false, LONG, |_| panic!("it must not panic")).map(drop)
    }));
    assert!(panicked.is_err());
    all_are_told(&wal, &mut acks, "a thread panicked while it changed the log");
}
