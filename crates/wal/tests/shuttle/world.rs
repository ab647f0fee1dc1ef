//! A log on the stage, and what is known of it from outside: what it took, what it said, and
//! whether that was true.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use brooklet_io::{MemVolume, Rng, Volume};
use brooklet_wal::{
    Ack, Appended, Block, Committer, Config, Cursor, Opening, Records, Sink, Start, Waiters, Wal, WalError,
    Zone, recover,
};
use shuttle::thread::{self, JoinHandle};

use crate::stage::{Stage, Ticking, others, rng};

const ZONE: Zone = Zone { offset: 0, size: 64 << 10, store: 7 };
const FIRST: Cursor = Cursor { position: 0, seq: 1, lsn: 0, chain: 0 };

/// A log that is open, shared by the threads of a test.
#[derive(Clone)]
pub struct World {
    pub stage: Stage,
    pub wal: Wal,
    seen: Arc<Seen>,
    state: Arc<Mutex<State>>,
}

/// What is known from outside. Its lock is never held while another thread may go on.
#[derive(Default)]
struct State {
    appends: Vec<Known>,
    /// What went wrong in a callback, where a panic would be caught.
    mistakes: Vec<String>,
    trimmed: Option<Cursor>,
}

struct Known {
    lsn: u64,
    record: Vec<u8>,
    ack: Ack,
    told: Option<bool>,
}

pub struct Append {
    id: usize,
    appended: Appended,
    pub ack: Ack,
}

/// The sink: the blocks as the log shows them.
struct Seen {
    stage: Stage,
    last: Mutex<u64>,
}

impl Sink for Seen {
    fn durable(&self, blocks: &[Arc<Block>], _: &mut Waiters) {
        others();
        for block in blocks {
            assert!(self.stage.is_safe(block.seq()), "block {} is shown before it is safe", block.seq());
            let mut last = self.last.lock().unwrap();
            assert_eq!(block.seq(), *last + 1, "blocks are shown in order");
            *last = block.seq();
        }
        others();
    }
}

impl World {
    pub fn new(linger: Duration) -> Self {
        Self::paced(linger, Duration::ZERO)
    }

    pub fn paced(linger: Duration, interval: Duration) -> Self {
        let stage = Stage::new(rng().next());
        stage.disk.grow(ZONE.size).unwrap();
        stage.disk.flush().unwrap();
        let seen = Arc::new(Seen { stage: stage.clone(), last: Mutex::new(0) });
        let config = Config { block_size: 8 << 10, depth: 2, linger, interval, ..Config::default() };
        let volume = Arc::new(stage.clone());
        let wal = Wal::open(
            volume,
            ZONE,
            config,
            Opening { tail: 0, next: FIRST, epoch: 1 },
            Arc::new(Ticking::default()),
            seen.clone(),
        );
        Self { stage, wal, seen, state: Arc::default() }
    }

    pub fn spawn(&self, run: impl FnOnce(World) + Send + 'static) -> JoinHandle<()> {
        let world = self.clone();
        thread::spawn(move || run(world))
    }

    pub fn spawn_all(&self, count: u64, run: fn(&World, u64)) -> Vec<JoinHandle<()>> {
        (0..count).map(|n| self.spawn(move |world| run(&world, n))).collect()
    }

    pub fn spawn_committer(&self) -> JoinHandle<()> {
        let committer = Committer::new(&self.wal).unwrap();
        thread::spawn(move || committer.run())
    }

    /// Appends a record of about `len` bytes that no other is like.
    pub fn append(&self, writer: u64, n: u64, len: usize) -> Result<Append, WalError> {
        let mut noise = Rng::new(writer << 32 | n);
        let record: Vec<u8> = (0..len as u64 + writer).map(|_| noise.next() as u8).collect();
        let (appended, ack) = self.wal.append(&record)?;
        let mut state = self.state.lock().unwrap();
        state.appends.push(Known { lsn: appended.lsn, record, ack: ack.clone(), told: None });
        Ok(Append { id: state.appends.len() - 1, appended, ack })
    }

    pub fn wait(&self, append: &Append) -> Result<(), WalError> {
        let result = append.ack.wait();
        self.told(append, result.clone());
        result
    }

    /// Leaves a callback, and waits for it on the thread if `wait` says so.
    pub fn call_back(&self, append: &Append, wait: bool) {
        let (world, id, seq, me) = (self.clone(), append.id, append.appended.block.seq(), thread::current());
        append.ack.on_done(move |result| {
            world.notify(id, seq, result.is_ok());
            me.unpark();
        });
        while wait && self.state.lock().unwrap().appends[append.id].told.is_none() {
            thread::park();
        }
    }

    /// Appends, and once that is durable again, `left` times in all.
    pub fn chain(&self, writer: u64, left: u64, len: usize) {
        let append = self.append(writer, left, len).expect("nothing failed");
        self.call_back(&append, false);
        let world = self.clone();
        append.ack.on_done(move |_| {
            if left > 1 {
                world.chain(writer, left - 1, len);
            }
        });
    }

    /// Takes note of how an append ended.
    pub fn told(&self, append: &Append, result: Result<(), WalError>) {
        assert_eq!(append.ack.is_done(), result.is_ok());
        self.notify(append.id, append.appended.block.seq(), result.is_ok());
    }

    fn notify(&self, id: usize, seq: u64, durable: bool) {
        let safe = self.stage.is_safe(seq);
        let shown = *self.seen.last.lock().unwrap() >= seq;
        let late = durable && !self.acks_before(id).iter().all(Ack::is_done);
        let state = &mut *self.state.lock().unwrap();
        if late {
            state.mistakes.push(format!("append {id} is acked, and one before it is not"));
        }
        if durable && !(safe && shown) {
            state.mistakes.push(format!("block {seq} is acked; safe: {safe}, shown: {shown}"));
        }
        if let Some(before) = state.appends[id].told.replace(durable) {
            state.mistakes.push(format!("append {id} ended as {before} and then as {durable}"));
        }
    }

    /// The acks of what is in the log before an append.
    fn acks_before(&self, id: usize) -> Vec<Ack> {
        let appends = &self.state.lock().unwrap().appends;
        appends.iter().filter(|other| other.lsn < appends[id].lsn).map(|other| other.ack.clone()).collect()
    }

    pub fn appends(&self) -> usize {
        self.state.lock().unwrap().appends.len()
    }

    /// Appends that were never told how they ended.
    fn pending(&self) -> usize {
        self.state.lock().unwrap().appends.iter().filter(|append| append.told.is_none()).count()
    }

    pub fn trim(&self, cursor: Cursor) {
        self.state.lock().unwrap().trimmed = Some(cursor);
        self.wal.trim(cursor);
    }

    /// Waits for `threads`, closes the log, waits for the committer, and finds exactly what the log
    /// took.
    pub fn end_and_check(
        &self,
        threads: impl IntoIterator<Item = JoinHandle<()>>,
        committer: Option<JoinHandle<()>>,
    ) {
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let end = self.wal.close().expect("nothing failed");
        assert_eq!(self.pending(), 0, "closing returns after all callbacks");
        committer.into_iter().for_each(|committer| committer.join().unwrap());
        self.check(end);
    }

    /// Finds exactly what the log took in its ring, once it is closed and ends at `end`.
    pub fn check(&self, end: Cursor) {
        let image = self.stage.disk.image();
        let (records, next) = self.read(image);
        assert_eq!(next, end, "the log ends where closing says");
        let taken = self.taken();
        assert_eq!(records, taken[taken.len() - records.len()..], "exactly what it took is there");
        assert!(self.state.lock().unwrap().trimmed.is_some() || records.len() == taken.len());
        assert_eq!(self.pending(), 0, "everyone is told how it ended");
        self.check_tales();
    }

    /// Finds a beginning of what the log took after a power cut, with all in it that was
    /// acknowledged.
    pub fn check_after_a_crash(&self) {
        let (records, _) = self.read(self.stage.disk.crash());
        assert_eq!(records, self.taken()[..records.len()], "a beginning of what it took is there");
        let state = self.state.lock().unwrap();
        let acked = state.appends.iter().filter(|append| append.told == Some(true));
        assert!(acked.clone().all(|append| records.contains(&append.record)), "what was acked is lost");
        drop(state);
        assert_eq!(self.pending(), 0, "everyone is told how it ended");
        self.check_tales();
    }

    fn check_tales(&self) {
        let state = self.state.lock().unwrap();
        assert!(state.mistakes.is_empty(), "{:?}", state.mistakes);
    }

    /// What the log took, in its order.
    fn taken(&self) -> Vec<Vec<u8>> {
        let state = self.state.lock().unwrap();
        let mut taken: Vec<_> = state.appends.iter().map(|a| (a.lsn, a.record.clone())).collect();
        taken.sort();
        taken.into_iter().map(|(_, record)| record).collect()
    }

    fn read(&self, image: Vec<u8>) -> (Vec<Vec<u8>>, Cursor) {
        let cursor = self.state.lock().unwrap().trimmed.unwrap_or(FIRST);
        let start = Start { cursor, acked: cursor.seq - 1, clean: false, epoch: 1 };
        let mut records = Vec::new();
        let found = recover(&MemVolume::from_image(image, 1), ZONE, start, |block, _| {
            records.extend(Records::new(block.data()).flatten().map(|(_, record)| record.to_vec()));
            Ok::<_, WalError>(())
        });
        (records, found.expect("the ring is sound").next)
    }
}
