//! Callbacks and wakers: what they may do in a store, and what panics do to it.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake};
use std::thread::Builder;
use std::time::Duration;

use brooklet::io::{Clock, Layer, MemVolume, SystemClock, Volume};
use brooklet::{Error, Options, SpaceConfig, Store};

use crate::common::{contents, small};

/// So long that whoever waits for it waits for ever.
const LONG: Duration = Duration::from_secs(120);

fn told<T>(told: &Receiver<T>) -> T {
    told.recv_timeout(LONG).expect("it comes")
}

fn options() -> Options {
    Options::new().ring_size(2 << 20).memory_budget(512 << 10).max_payload(64 << 10)
}

/// Each entry's callback appends the next.
fn chain(store: &Store, log: usize, left: usize, done: &Arc<AtomicUsize>) {
    let (again, count) = (store.clone(), done.clone());
    let ticket = store.append(format!("log/{log}"), vec![left as u8; 60_000]).unwrap();
    ticket.on_done(move |result| {
        result.unwrap();
        count.fetch_add(1, Ordering::Relaxed);
        if left > 0 {
            chain(&again, log, left - 1, &count);
        }
    });
}

/// The first to wait for room was the committer itself, and everyone waited with it.
#[test]
fn callbacks_that_append_wait_for_room_as_others_do() {
    let store = options().create_on(Arc::new(MemVolume::new(1))).unwrap();
    let (sender, over) = channel();
    let writer = store.clone();
    let write = move || {
        let done = Arc::new(AtomicUsize::new(0));
        (0..64).for_each(|log| chain(&writer, log, 9, &done));
        while done.load(Ordering::Relaxed) < 640 {
            std::thread::yield_now();
        }
        sender.send(()).unwrap();
    };
    Builder::new().spawn(write).unwrap();
    told(&over);
    store.close().unwrap();
    let logs = store.scan("").unwrap().map(|log| log.unwrap().bounds.next);
    assert!(logs.eq([10; 64]));
}

#[test]
fn a_callback_may_do_what_any_thread_may() {
    let volume = MemVolume::new(1);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    let (sender, over) = channel();
    let within = store.clone();
    store.append("log", "first").unwrap().on_done(move |result| {
        result.unwrap();
        within.append("log", "second").unwrap().wait().unwrap();
        within.checkpoint().unwrap();
        within.create_space("space", SpaceConfig::new()).unwrap();
        within.compact().unwrap();
        sender.send(within.close()).unwrap();
        sender.send(within.append("log", "third").map(drop)).unwrap();
    });
    drop(store);
    told(&over).unwrap();
    assert!(matches!(told(&over), Err(Error::Closed)));
    small::check(&volume);
    let store = options().open_on(Arc::new(volume)).unwrap();
    assert_eq!(contents(&store).unwrap()[&b"log"[..]].entries, [b"first".to_vec(), b"second".to_vec()]);
    assert_eq!(store.spaces().len(), 1);
}

/// Closing from two sides: the one that waits for callbacks does not keep what the callback waits
/// for.
#[test]
fn a_callback_closes_a_store_that_is_being_closed() {
    for _ in 0..50 {
        let store = options().create_on(Arc::new(MemVolume::new(1))).unwrap();
        let (sender, over) = channel();
        let within = store.clone();
        store.append("log", "entry").unwrap().on_done(move |_| sender.send(within.close()).unwrap());
        store.close().unwrap();
        over.try_recv().expect("closing waits for callbacks").unwrap();
    }
}

/// Without threads whoever waits calls back: under the lock of whoever changes spaces, before.
#[test]
fn without_threads_callbacks_are_called_under_no_lock() {
    let (sender, over) = channel();
    let run = move || {
        let store = small::open(&{
            let volume = MemVolume::new(1);
            drop(small::options().create_on(Arc::new(volume.clone())).unwrap());
            volume
        })
        .unwrap();
        let within = store.clone();
        store.append("log", "entry").unwrap().on_done(move |result| {
            result.unwrap();
            within.create_space("other", SpaceConfig::new()).unwrap();
            within.close().unwrap();
        });
        store.create_space("space", SpaceConfig::new()).unwrap();
        let spaces = store.spaces().into_iter().map(|space| space.name).collect::<Vec<_>>();
        sender.send(spaces).unwrap();
    };
    Builder::new().spawn(run).unwrap();
    assert_eq!(told(&over), ["other", "space"]);
}

struct Works<F: Fn() + Send + Sync>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Works<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

/// Closing in a waker waited for the thread that it was called on.
#[test]
fn a_waker_may_close_the_store_but_not_wait_for_it() {
    let volume = Arc::new(MemVolume::new(1));
    let store = options().create_on(volume.clone()).unwrap();
    store.append("log", "entry").unwrap().wait().unwrap();
    let (sender, over) = channel();
    let (within, sender) = (Arc::new(Mutex::new(Some(store))), Mutex::new(sender));
    let held = within.clone();
    let works = move || {
        let Some(store) = within.lock().unwrap().take() else { return };
        let there_is_room = store.append("log", "another").unwrap();
        let errors = [
            there_is_room.wait(),
            store.flush(),
            store.checkpoint(),
            store.create_space("space", SpaceConfig::new()).map(drop),
            store.view().map(drop),
        ];
        let refused = errors.iter().all(|error| matches!(error, Err(Error::WouldWait)));
        let read = store.read("log", ..).unwrap().count();
        let closed = store.close().is_ok();
        // The last handle goes here, too.
        drop(store);
        sender.lock().unwrap().send((refused, read, closed)).unwrap();
    };
    let waker = Arc::new(Works(works)).into();
    // The committer may be faster than a poll: then nobody is woken. The waker waits for the lock.
    let store = held.lock().unwrap();
    let ticket = loop {
        let mut ticket = store.as_ref().unwrap().append("first", "entry").unwrap();
        if Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)).is_pending() {
            break ticket;
        }
    };
    drop(store);
    assert_eq!(told(&over), (true, 1, true));
    drop((waker, ticket));
    // Closed by another thread, it lets go of its volume.
    while Arc::strong_count(&volume) > 1 {
        std::thread::yield_now();
    }
    small::check(&volume);
    let store = options().open_on(volume).unwrap();
    assert_eq!(store.bounds("log").unwrap().next, 2);
}

#[test]
fn a_callback_that_panics_changes_nothing_for_others() {
    let store = options().create_on(Arc::new(MemVolume::new(1))).unwrap();
    let (sender, over) = channel();
    let ticket = store.append("log", "entry").unwrap();
    ticket.on_done(|_| panic!("a user's mistake, made on purpose"));
    ticket.on_done(move |result| sender.send(result).unwrap());
    told(&over).unwrap();
    store.append("log", "another").unwrap().wait().unwrap();
    store.close().unwrap();
}

/// A volume that panics once it is told to.
#[derive(Clone, Debug)]
struct Panics {
    within: MemVolume,
    flush: Arc<AtomicBool>,
    write: Arc<AtomicBool>,
}

impl Panics {
    fn new() -> Self {
        Self { within: MemVolume::new(1), flush: Arc::default(), write: Arc::default() }
    }
}

impl Layer for Panics {
    fn below(&self) -> &dyn Volume {
        &self.within
    }
    fn flush(&self) -> std::io::Result<()> {
        assert!(!self.flush.load(Ordering::Relaxed), "an assertion of the volume's");
        self.within.flush()
    }
    fn write_at(&self, offset: u64, data: &[u8], persist: brooklet::io::Persist) -> std::io::Result<usize> {
        assert!(!self.write.load(Ordering::Relaxed), "an assertion of the volume's");
        self.within.write_at(offset, data, persist)
    }
}

fn stopped(error: &Error, why: &str) {
    assert!(matches!(error, Error::Stopped { why: told } if told.contains(why)), "{error}");
}

/// Writers waited for a maintenance thread that had ended, and closing panicked.
#[test]
fn a_panic_in_the_midst_of_a_checkpoint_stops_the_store_by_name() {
    let volume = Panics::new();
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    store.append("safe", "entry").unwrap().wait().unwrap();
    volume.flush.store(true, Ordering::Relaxed);
    let (sender, over) = channel();
    for writer in 0..4 {
        let (store, sender) = (store.clone(), sender.clone());
        let write = move || {
            let mut noise = brooklet::io::Rng::new(writer);
            let error = loop {
                let appended = store.append(format!("log/{writer}"), small::noise(&mut noise, 8000));
                if let Err(error) = appended.and_then(|ticket| ticket.wait()) {
                    break error;
                }
            };
            sender.send(error).unwrap();
        };
        Builder::new().spawn(write).unwrap();
    }
    let why = "flushing the volume panicked: an assertion of the volume's";
    (0..4).for_each(|_| stopped(&told(&over), why));
    assert_eq!(store.read("safe", ..).unwrap().count(), 1, "reads go on");
    stopped(&store.close().unwrap_err(), why);
}

#[test]
fn a_panic_as_a_block_is_written_stops_the_store_by_name() {
    for threads in [true, false] {
        let volume = Panics::new();
        let store = options().threads(threads).create_on(Arc::new(volume.clone())).unwrap();
        store.append("safe", "entry").unwrap().wait().unwrap();
        volume.write.store(true, Ordering::Relaxed);
        let ticket = store.append("log", "entry").unwrap();
        let (sender, over) = channel();
        let other = ticket.clone();
        Builder::new().spawn(move || sender.send(other.wait()).unwrap()).unwrap();
        let why = "writing the volume panicked: an assertion of the volume's";
        stopped(&ticket.wait().unwrap_err(), why);
        stopped(&told(&over).unwrap_err(), why);
        assert_eq!(contents(&store).unwrap().len(), 1);
        stopped(&store.append("log", "entry").unwrap_err(), why);
        stopped(&store.close().unwrap_err(), why);
    }
}

/// A clock that panics once it is told to, in one thread or in all.
#[derive(Debug, Default)]
struct Broken(SystemClock, AtomicBool);

impl Clock for Broken {
    fn now(&self) -> Duration {
        self.0.now()
    }
    fn wall(&self) -> Duration {
        assert!(!self.1.load(Ordering::Relaxed), "an assertion of the clock's");
        self.0.wall()
    }
}

/// A panic while a commit is appended: what readers see may be half changed, and nobody is given
/// anything of it.
#[test]
fn a_panic_while_the_store_changes_stops_it_by_name() {
    let clock = Arc::new(Broken::default());
    let store = options().clock(clock.clone()).rng_seed(1).create_on(Arc::new(MemVolume::new(1))).unwrap();
    store.append("safe", "entry").unwrap().wait().unwrap();
    clock.1.store(true, Ordering::Relaxed);
    let other = store.clone();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        other.set_retention("log", brooklet::Retention::new().age(LONG)).map(drop)
    }));
    clock.1.store(false, Ordering::Relaxed);
    if panicked.is_err() {
        let why = "a thread panicked while it changed what readers see";
        stopped(&store.read("safe", ..).map(drop).unwrap_err(), why);
        stopped(&store.append("log", "entry").unwrap_err(), why);
        stopped(&store.close().unwrap_err(), why);
    }
}
