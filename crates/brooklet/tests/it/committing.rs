//! Commits of tasks: they wait for room and for durability, and block no thread.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;

use brooklet::io::{Clock, Layer, ManualClock, MemVolume, Rng, SystemClock, Volume};
use brooklet::{
    Appending, Class, Commit, End, Error, MemoryConfig, Options, Retention, SpaceConfig, Store, WhenFull,
};

use crate::common::gate::Gate;
use crate::common::tasks::{Count, block_on};

fn options() -> Options {
    Options::new().ring_size(256 << 10).memory_budget(64 << 10).max_payload(9 << 10)
}

fn poll(appending: &mut Appending, waker: &Arc<Count>) -> Poll<Result<u64, Error>> {
    Pin::new(appending).poll(&mut Context::from_waker(&Waker::from(waker.clone())))
}

#[test]
fn a_task_awaits_its_commits() {
    let store = Store::in_memory(1).unwrap();
    block_on(async {
        assert_eq!(store.append_async("log", "a").await.unwrap(), 0);
        assert_eq!(store.bounds("log").unwrap().next, 1);
        let mut commit = Commit::new();
        commit.append("log", "b").append("other", "x").append("log", "c");
        assert_eq!(store.commit_async(commit.clone()).await.unwrap(), [1, 0, 2]);
        commit.expect_next("log", 1);
        assert!(matches!(store.commit_async(commit).await, Err(Error::Conflict { .. })));
        assert!(matches!(store.commit_async(Commit::new()).await, Err(Error::EmptyCommit)));
        let space = store.create_space("space", SpaceConfig::new()).unwrap();
        space.append_async("log", "a").await.unwrap();
        let mut commit = Commit::new();
        commit.append("log", "b");
        assert_eq!(space.commit_async(commit).await.unwrap(), [1]);
        let memory = SpaceConfig::new().class(Class::Memory(MemoryConfig::new(1 << 20)));
        let memory = store.create_space("memory", memory).unwrap();
        assert_eq!(memory.append_async("log", "a").await.unwrap(), 0);
    });
    store.close().unwrap();
    assert!(matches!(block_on(store.append_async("log", "x")), Err(Error::Closed)));
}

/// Appends until each commit has to wait for room until the gate is open; returns the number of
/// appended entries.
fn fill(store: &Store, gate: &Gate) -> u64 {
    let mut appended = 0;
    // The size of the later commits, which must not find the room that a larger one left.
    for len in [2000, 8] {
        let mut commit = Commit::new();
        commit.append("full", vec![7; len]);
        loop {
            // Once the checkpoint hangs and all commits are durable, nothing makes room.
            let is_last = gate.is_reached() && store.flush().is_ok();
            match store.try_commit(&commit) {
                Ok(_) => appended += 1,
                Err(_) if is_last => break,
                Err(_) => thread::yield_now(),
            }
        }
    }
    appended
}

/// Nothing makes room while the device hangs: a poll returns at once, and other tasks go on.
#[test]
fn a_task_that_waits_for_room_blocks_no_thread() {
    let gate = Gate::new(1);
    let store = options().create_on(Arc::new(gate.clone())).unwrap();
    let open = gate.close();
    let filled = fill(&store, &gate);
    let waker = Arc::new(Count::default());
    let entry = |n: u64| store.append_async("queued", n.to_le_bytes());
    let mut waiting: Vec<_> = (0..8).map(entry).collect();
    assert!(waiting.iter_mut().all(|committing| poll(committing, &waker).is_pending()));
    // The first one may be begun.
    assert!(waiting[1..].iter().all(|committing| !committing.is_made()));
    assert_eq!(store.get_bounds("queued").unwrap(), None);
    // The first is being made by a thread, and the others wait behind it.
    let cancelled = waiting.remove(4);
    drop(cancelled);
    let never_polled = entry(99);
    drop(never_polled);
    drop(open);
    // The tasks are woken although nobody polls them meanwhile.
    while waker.get() == 0 {
        thread::yield_now();
    }
    let seqs: Vec<u64> = waiting.into_iter().map(|waits| block_on(waits).unwrap()).collect();
    assert_eq!(seqs, [0, 1, 2, 3, 4, 5, 6]);
    let payloads = store.read("queued", ..).unwrap().map(|entry| entry.unwrap().payload[0]);
    assert_eq!(payloads.collect::<Vec<_>>(), [0, 1, 2, 3, 5, 6, 7], "in order, without the cancelled one");
    assert_eq!(store.bounds("full").unwrap().next, filled);
    // There is room again, and no thread is needed.
    assert_eq!(block_on(entry(9)).unwrap(), 7);
    store.close().unwrap();
}

/// A volume whose reads hang while it is closed, and fail on the thread of the test.
#[derive(Clone, Debug)]
struct SlowReads {
    volume: MemVolume,
    closed: Arc<(Mutex<bool>, Condvar)>,
    test: ThreadId,
    held_up: Arc<AtomicUsize>,
}

impl SlowReads {
    fn new() -> Self {
        let (closed, held_up) = Default::default();
        Self { volume: MemVolume::new(1), closed, test: thread::current().id(), held_up }
    }

    fn close(&self, closed: bool) {
        *self.closed.0.lock().unwrap() = closed;
        self.closed.1.notify_all();
    }
}

impl Layer for SlowReads {
    fn below(&self) -> &dyn Volume {
        &self.volume
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let closed = self.closed.0.lock().unwrap();
        if *closed && thread::current().id() == self.test {
            return Err(io::Error::other("a read on the thread of the task"));
        }
        self.held_up.fetch_add(usize::from(*closed), Ordering::SeqCst);
        drop(self.closed.1.wait_while(closed, |closed| *closed).unwrap());
        self.volume.read_at(offset, buf)
    }

    fn read_cached(&self, _: u64, _: &mut [u8]) -> bool {
        false
    }
}

/// The state of a log is on the volume, and the volume hangs: a poll returns at once, and commits
/// on logs in memory go on.
#[test]
fn a_task_that_needs_a_read_blocks_no_thread() {
    let volume = SlowReads::new();
    let open = || options().open_on(Arc::new(volume.clone())).unwrap();
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    for n in 0..200 {
        drop(store.append(format!("log/{n}"), "first").unwrap());
    }
    store.checkpoint().unwrap();
    store.close().unwrap();
    drop(store);
    let store = open();
    store.append("hot", "x").unwrap().wait().unwrap();
    volume.close(true);
    let waker = Arc::new(Count::default());
    let mut waiting: Vec<_> = [7, 8, 9].map(|n| store.append_async(format!("log/{n}"), "second")).into();
    assert!(waiting.iter_mut().all(|committing| poll(committing, &waker).is_pending()));
    assert_eq!(block_on(store.append_async("hot", "y")).unwrap(), 1);
    drop(waiting.remove(1));
    while volume.held_up.load(Ordering::SeqCst) == 0 {
        thread::yield_now();
    }
    volume.close(false);
    // The tasks are woken although nobody polls them meanwhile.
    while waker.get() < 2 {
        thread::yield_now();
    }
    for committing in waiting {
        assert_eq!(block_on(committing).unwrap(), 1);
    }
    assert_eq!(store.bounds("log/8").unwrap().next, 1, "it was cancelled");
    // The cache has the notes of these logs now, and no thread is needed.
    volume.close(true);
    assert_eq!(block_on(store.append_async("log/10", "second")).unwrap(), 1);
    assert_eq!(volume.held_up.load(Ordering::SeqCst), 1);
    volume.close(false);
    store.close().unwrap();
}

/// A clock that panics on the store's thread for calls that wait.
#[derive(Debug, Default)]
struct Broken(SystemClock);

impl Clock for Broken {
    fn now(&self) -> Duration {
        self.0.now()
    }

    fn wall(&self) -> Duration {
        assert_ne!(thread::current().name(), Some("brooklet-block"), "an assertion of the clock's");
        self.0.wall()
    }
}

/// A commit panics on the thread that makes it. In an earlier state, its task and those behind it
/// got the error of a store that was closed.
#[test]
fn a_panic_stops_the_store_of_a_task() {
    let volume = SlowReads::new();
    let hour = Retention::new().age(Duration::from_secs(3600));
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    for n in 0..200 {
        drop(store.set_retention(format!("log/{n}"), hour).unwrap());
        drop(store.append(format!("log/{n}"), "first").unwrap());
    }
    store.checkpoint().unwrap();
    store.close().unwrap();
    drop(store);
    let options = options().clock(Arc::new(Broken::default())).rng_seed(1);
    let store = options.open_on(Arc::new(volume.clone())).unwrap();
    volume.close(true);
    let waker = Arc::new(Count::default());
    let mut waiting: Vec<_> = (7..10).map(|n| store.append_async(format!("log/{n}"), "second")).collect();
    assert!(waiting.iter_mut().all(|committing| poll(committing, &waker).is_pending()));
    volume.close(false);
    for committing in waiting {
        let ended = block_on(committing);
        assert!(matches!(ended, Err(Error::Stopped { .. })), "{ended:?}");
    }
    let ended = block_on(store.append_async("log/7", "third"));
    assert!(matches!(ended, Err(Error::Stopped { .. })), "{ended:?}");
    assert!(matches!(store.close(), Err(Error::Stopped { .. })));
}

/// A log of a space in memory did not fit into memory when the store was opened, and the volume
/// hangs.
#[test]
fn a_task_that_needs_a_log_below_memory_blocks_no_thread() {
    let (volume, mut rng) = (SlowReads::new(), Rng::new(1));
    let in_memory = |bytes| {
        let memory = MemoryConfig::new(bytes).when_full(WhenFull::DropOldest);
        SpaceConfig::new().class(Class::Memory(memory))
    };
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    let space = store.create_space("s", in_memory(4 << 20)).unwrap();
    for n in 0..1000 {
        let noise: Vec<u8> = (0..1000).map(|_| rng.next() as u8).collect();
        space.append(format!("{n:03}"), noise).unwrap().wait().unwrap();
    }
    space.configure(in_memory(128 << 10)).unwrap();
    store.close().unwrap();
    drop((space, store));
    let store = options().open_on(Arc::new(volume.clone())).unwrap();
    let space = store.space("s").unwrap();
    assert!(!space.info().unwrap().memory.unwrap().complete);
    volume.close(true);
    let waker = Arc::new(Count::default());
    let mut waiting = space.append_async("999", "second");
    let polled = poll(&mut waiting, &waker);
    assert!(polled.is_pending(), "{polled:?}");
    // Logs in memory do not wait.
    assert_eq!(block_on(space.append_async("000", "second")).unwrap(), 1);
    volume.close(false);
    assert_eq!(block_on(waiting).unwrap(), 1);
    store.close().unwrap();
}

/// A volume whose reads hang on the store's thread for calls that wait, while it is closed.
#[derive(Clone, Debug)]
struct HeldUp {
    volume: MemVolume,
    closed: Arc<(Mutex<bool>, Condvar)>,
}

impl Layer for HeldUp {
    fn below(&self) -> &dyn Volume {
        &self.volume
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        if thread::current().name() == Some("brooklet-block") {
            let closed = self.closed.0.lock().unwrap();
            drop(self.closed.1.wait_while(closed, |closed| *closed).unwrap());
        }
        self.volume.read_at(offset, buf)
    }

    fn read_cached(&self, _: u64, _: &mut [u8]) -> bool {
        false
    }
}

/// In the old state a commit overtook an earlier one of its task, on the same log, that waited for
/// a read, once the log was in memory.
#[test]
fn commits_of_a_task_on_one_log_keep_their_order() {
    let volume = HeldUp { volume: MemVolume::new(1), closed: Arc::default() };
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    for n in 0..200 {
        drop(store.append(format!("log/{n}"), "first").unwrap());
    }
    store.checkpoint().unwrap();
    store.close().unwrap();
    drop(store);
    let store = options().open_on(Arc::new(volume.clone())).unwrap();
    *volume.closed.0.lock().unwrap() = true;
    let waker = Arc::new(Count::default());
    let append = |n: u64| store.append_async("log/7", n.to_string());
    let mut waiting: Vec<_> = (0..2).map(append).collect();
    assert!(waiting.iter_mut().all(|committing| poll(committing, &waker).is_pending()));
    // Another thread brings the log to memory.
    assert_eq!(store.append("log/7", "other").unwrap().seq(), 1);
    let mut last = append(2);
    let is_pending = poll(&mut last, &waker).is_pending();
    // Other logs do not wait.
    assert_eq!(block_on(store.append_async("new", "x")).unwrap(), 0);
    *volume.closed.0.lock().unwrap() = false;
    volume.closed.1.notify_all();
    let seqs: Vec<u64> = waiting.into_iter().map(|waits| block_on(waits).unwrap()).collect();
    assert_eq!(seqs, [2, 3]);
    assert!(is_pending);
    assert_eq!(block_on(last).unwrap(), 4);
    store.close().unwrap();
}

/// Closing waits for nobody who waits for room.
#[test]
fn a_task_that_waits_for_room_is_told_of_the_end() {
    let gate = Gate::new(1);
    let store = options().create_on(Arc::new(gate.clone())).unwrap();
    let open = gate.close();
    fill(&store, &gate);
    let waker = Arc::new(Count::default());
    let mut waiting: Vec<_> = (0..4).map(|_| store.append_async("queued", "x")).collect();
    assert!(waiting.iter_mut().all(|committing| poll(committing, &waker).is_pending()));
    thread::scope(|scope| {
        let closer = scope.spawn(|| store.close());
        // The checkpoint still hangs: no room comes, only the end.
        for waits in waiting {
            let end = block_on(waits);
            assert!(matches!(end, Err(Error::Closed)), "{end:?}");
        }
        drop(open);
        closer.join().unwrap().unwrap();
    });
}

/// A waker that drops its task, and with it the last handle of the store: on the thread that
/// closing waits for.
#[test]
fn the_last_handle_may_go_where_a_task_is_woken() {
    struct Drops(Mutex<Option<Appending>>);
    impl Wake for Drops {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().unwrap().take());
        }
    }
    let gate = Gate::new(1);
    let store = options().create_on(Arc::new(gate.clone())).unwrap();
    let open = gate.close();
    fill(&store, &gate);
    let mut appending = store.append_async("queued", "x");
    let waker = Arc::new(Drops(Mutex::default()));
    let task = Waker::from(waker.clone());
    assert!(Pin::new(&mut appending).poll(&mut Context::from_waker(&task)).is_pending());
    *waker.0.lock().unwrap() = Some(appending);
    drop((store, task));
    drop(open);
    // The closing ends all threads of the store, which hold the volume.
    while Arc::strong_count(&waker) > 1 || gate.handles() > 1 {
        thread::yield_now();
    }
    let store = options().open_on(Arc::new(gate)).unwrap();
    assert_eq!(store.info().unwrap().recovery.end, End::Clean);
    assert_eq!(store.bounds("queued").unwrap().next, 1);
}

/// More than the ring holds, from many tasks on two threads.
#[test]
fn many_tasks_write_more_than_the_ring_holds() {
    let store = options().create_on(Arc::new(MemVolume::new(1))).unwrap();
    let done = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..2 {
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                for round in 0..40u64 {
                    let entry = |n| store.append_async(format!("log/{thread}/{n}"), vec![n as u8; 900]);
                    let mut waiting: Vec<_> = (0..32).map(entry).map(Box::pin).collect();
                    block_on(std::future::poll_fn(|context| {
                        waiting.retain_mut(|waits| match waits.as_mut().poll(context) {
                            Poll::Ready(ticket) => {
                                assert_eq!(ticket.unwrap(), round);
                                done.fetch_add(1, Ordering::Relaxed);
                                false
                            }
                            Poll::Pending => true,
                        });
                        if waiting.is_empty() { Poll::Ready(()) } else { Poll::Pending }
                    }));
                }
            });
        }
    });
    assert_eq!(done.into_inner(), 2 * 32 * 40);
    store.close().unwrap();
}

#[test]
fn a_store_without_threads_makes_the_commit_in_the_call() {
    let options = options().threads(false).clock(Arc::new(ManualClock::default()));
    let store = options.create_on(Arc::new(MemVolume::new(1))).unwrap();
    for n in 0..300 {
        let mut committing = pin!(store.append_async("log", [1; 2000]));
        let mut poll = || committing.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let seq = match poll() {
            Poll::Ready(seq) => seq,
            Poll::Pending => {
                store.flush().unwrap();
                let Poll::Ready(seq) = poll() else { panic!("it is durable") };
                seq
            }
        };
        assert_eq!(seq.unwrap(), n);
    }
}
