//! The operations of a command or a transaction on logs: collected, then committed as one.
//!
//! Appends to one log that follow each other are one operation here. The last one may still change:
//! so ten changes of a long list in one transaction write its end once, and not ten times.

use brooklet::{Commit, Error, Store, Ticket};
use bytes::Bytes;
use smallvec::SmallVec;

use super::names::LogKey;

/// Most bytes of one commit of operations that are committed before the others.
const EARLY: usize = 32 << 10;
/// Bytes of an operation besides its key.
const OP: usize = 32;
/// Memory of an appended entry, or of another operation, besides its payload, in bytes.
const ENTRY: usize = 100;
/// Last entries of a run that may still change once the run is sealed.
const OPEN: usize = 1_000;

/// An operation on a log.
#[derive(Clone, Debug)]
pub enum Op {
    /// Appends entries.
    Append(SmallVec<[Bytes; 1]>),
    /// Appends an entry, and drops all earlier entries.
    Snapshot(Bytes),
    /// Drops the entries before this number.
    Trim(u64),
    /// Drops the entries from this number on.
    Truncate(u64),
    /// Deletes the log.
    Delete,
}

/// The operations of one commit.
#[derive(Debug, Default)]
pub struct Batch {
    /// Epoch of the commit.
    pub epoch: u64,
    /// Operations with their logs, in order.
    ops: Vec<(LogKey, Op)>,
    /// Operations that nobody sees, in any number of commits before the others.
    early: Vec<(LogKey, Op)>,
    /// Whether operations are early ones now.
    pub is_early: bool,
    /// Size of the appended entries of the operations, in bytes.
    pub size: u64,
    /// Number of the entries and of the other operations so far.
    count: usize,
}

impl Batch {
    /// Creates an empty batch.
    pub fn of(epoch: u64) -> Self {
        Self { epoch, ..Self::default() }
    }

    /// Returns whether there is no operation.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty() && self.early.is_empty()
    }

    /// Adds an operation that appends nothing, or a snapshot.
    pub fn push(&mut self, key: LogKey, op: Op) {
        self.count += 1;
        if let Op::Snapshot(payload) = &op {
            self.size += payload.len() as u64;
        }
        if self.is_early { self.early.push((key, op)) } else { self.ops.push((key, op)) }
    }

    /// Appends entries to a log.
    pub fn append(&mut self, key: LogKey, payloads: impl IntoIterator<Item = Bytes>) {
        if self.last_run(&key).is_none() {
            self.ops.push((key, Op::Append(SmallVec::new())));
        }
        if let Some((_, Op::Append(run))) = self.ops.last_mut() {
            let before = run.len();
            run.extend(payloads);
            self.size += run[before..].iter().map(|payload| payload.len() as u64).sum::<u64>();
            self.count += run.len() - before;
            if run.is_empty() {
                self.ops.pop();
            }
        }
    }

    /// Returns the entries that the last operation appends, if it appends to this log.
    fn last_run(&mut self, key: &LogKey) -> Option<&mut SmallVec<[Bytes; 1]>> {
        match self.ops.last_mut() {
            Some((last, Op::Append(run))) if last == key => Some(run),
            _ => None,
        }
    }

    /// Takes up to `most` of the last entries of a log back that the last operation appends. Its
    /// first entry stays: the log may exist only because of this entry. Returns their number.
    pub fn take_back(&mut self, key: &LogKey, most: u64) -> u64 {
        let Some(run) = self.last_run(key) else { return 0 };
        let kept = run.len() - most.min(run.len() as u64 - 1) as usize;
        let taken: u64 = run[kept..].iter().map(|payload| payload.len() as u64).sum();
        let count = run.len() - kept;
        run.truncate(kept);
        self.size -= taken;
        count as u64
    }

    /// Replaces an entry of a log, by its place from the end, if the last operation appends it;
    /// returns whether it does.
    pub fn replace(&mut self, key: &LogKey, from_end: u64, payload: &Bytes) -> bool {
        let Some(run) = self.last_run(key) else { return false };
        let Some(at) = (run.len() as u64).checked_sub(from_end) else { return false };
        let old = std::mem::replace(&mut run[at as usize], payload.clone());
        self.size = self.size + payload.len() as u64 - old.len() as u64;
        true
    }

    /// Returns the bytes that all operations take, the sealed ones too, about.
    pub fn memory(&self) -> usize {
        2 * self.size as usize + self.count * ENTRY
    }

    /// Returns the number of entries and of other operations so far.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Moves all operations but the last one to the end of a commit; `is_plain`: and most of a long
    /// last one. Their size stays counted.
    pub fn seal(&mut self, commit: &mut Commit, is_plain: bool) {
        let end = self.ops.len().saturating_sub(1);
        self.ops.drain(..end).for_each(|(key, op)| add(commit, &key, &op));
        if is_plain
            && let Some((key, Op::Append(run))) = self.ops.last_mut()
            && run.len() >= 2 * OPEN
        {
            let end = run.len() - OPEN;
            for payload in run.drain(..end) {
                commit.append(&*key, &payload);
            }
        }
    }

    /// Moves all operations to the end of a commit. Their size stays counted.
    pub fn seal_all(&mut self, commit: &mut Commit) {
        self.ops.drain(..).for_each(|(key, op)| add(commit, &key, &op));
    }

    /// Removes all operations.
    pub fn clear(&mut self) {
        self.ops.clear();
        self.early.clear();
        (self.size, self.count) = (0, 0);
    }

    /// Commits all operations. After an error, some of the early ones may have taken effect.
    pub fn commit(&self, store: &Store) -> Result<Ticket, Error> {
        let mut early = &self.early[..];
        while !early.is_empty() {
            let mut bytes = 0;
            let fits = |(key, _): &&(LogKey, Op)| {
                bytes += key.len() + OP;
                bytes <= EARLY
            };
            let (ops, rest) = early.split_at(early.iter().take_while(fits).count().max(1));
            // A commit is durable after those before it.
            let ticket = commit(ops, store)?;
            if rest.is_empty() && self.ops.is_empty() {
                return Ok(ticket);
            }
            early = rest;
        }
        commit(&self.ops, store)
    }
}

fn commit(ops: &[(LogKey, Op)], store: &Store) -> Result<Ticket, Error> {
    // Most commands append one entry.
    if let [(key, Op::Append(run))] = ops
        && let [payload] = &run[..]
    {
        return store.append(key, payload);
    }
    let mut commit = Commit::new();
    ops.iter().for_each(|(key, op)| add(&mut commit, key, op));
    store.commit(&commit)
}

fn add(commit: &mut Commit, key: &LogKey, op: &Op) {
    match op {
        Op::Append(run) => run.iter().fold(commit, |commit, payload| commit.append(key, payload)),
        Op::Snapshot(payload) => commit.snapshot(key, payload),
        Op::Trim(before) => commit.trim(key, *before),
        Op::Truncate(from) => commit.truncate(key, *from),
        Op::Delete => commit.delete(key),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log that a run creates exists after the commit, or its deletion would be refused.
    #[test]
    fn the_first_entry_of_a_run_is_not_taken_back() {
        let store = Store::in_memory(1).unwrap();
        let key = LogKey::from_slice(b"log");
        let entries = |texts: &[&'static str]| -> Vec<Bytes> {
            texts.iter().map(|text| Bytes::from_static(text.as_bytes())).collect()
        };
        for most in [3, 4, 100] {
            let mut batch = Batch::of(1);
            batch.append(key.clone(), entries(&["a", "bc", "def"]));
            assert_eq!(batch.take_back(&LogKey::from_slice(b"other"), most), 0);
            assert_eq!((batch.take_back(&key, 1), batch.size), (1, 3));
            assert_eq!((batch.take_back(&key, most), batch.size), (1, 1));
            assert_eq!((batch.take_back(&key, most), batch.size), (0, 1));
            batch.append(key.clone(), entries(&["x"]));
            assert_eq!(batch.ops.len(), 1, "it is still one run");
            batch.commit(&store).unwrap().wait().unwrap();
            let read = store.read(&key, ..).unwrap().map(|entry| entry.unwrap().payload);
            assert!(read.eq(entries(&["a", "x"])));
            store.delete(&key).unwrap().wait().unwrap();
        }
    }

    #[test]
    fn entries_of_the_last_run_alone_are_replaced() {
        let (key, other) = (LogKey::from_slice(b"log"), LogKey::from_slice(b"other"));
        let bytes = Bytes::from_static;
        let mut batch = Batch::of(1);
        batch.append(key.clone(), [bytes(b"a"), bytes(b"bc")]);
        assert!(!batch.replace(&other, 1, &bytes(b"new")));
        assert!(!batch.replace(&key, 3, &bytes(b"new")), "it is from an earlier commit");
        assert!(batch.replace(&key, 2, &bytes(b"new")));
        assert_eq!(batch.size, 5);
        batch.push(other, Op::Delete);
        assert!(!batch.replace(&key, 1, &bytes(b"new")), "the order of operations counts");
        assert_eq!(batch.take_back(&key, 1), 0);
    }

    /// A portion seals about as many entries as it appends, however long the run is.
    #[test]
    fn a_long_run_is_sealed_but_for_its_end() {
        let store = Store::in_memory(1).unwrap();
        let key = LogKey::from_slice(b"log");
        let (mut batch, mut commit) = (Batch::of(1), Commit::new());
        let entry = |n: usize| Bytes::from(n.to_string());
        for portion in 0..5 {
            batch.append(key.clone(), (portion * 3_000..(portion + 1) * 3_000).map(entry));
            batch.seal(&mut commit, true);
            let left = batch.last_run(&key).unwrap().len();
            assert_eq!(left, OPEN);
        }
        assert!(batch.replace(&key, 1, &entry(7)) && !batch.replace(&key, OPEN as u64 + 1, &entry(7)));
        assert_eq!(batch.take_back(&key, 2_000), OPEN as u64 - 1);
        batch.seal_all(&mut commit);
        store.commit(&commit).unwrap().wait().unwrap();
        let read = store.read(&key, ..).unwrap().map(|entry| entry.unwrap().payload);
        assert!(read.eq((0..15_001 - OPEN).map(entry)));
    }

    /// What is sealed is committed in the same order.
    #[test]
    fn a_sealed_batch_comes_to_the_same() {
        let store = Store::in_memory(1).unwrap();
        let key = LogKey::from_slice(b"log");
        let (mut batch, mut commit) = (Batch::of(1), Commit::new());
        batch.append(key.clone(), [Bytes::from_static(b"a"), Bytes::from_static(b"b")]);
        batch.seal(&mut commit, true);
        assert!(commit.is_empty() && batch.replace(&key, 1, &Bytes::from_static(b"c")));
        batch.push(key.clone(), Op::Trim(1));
        batch.append(key.clone(), [Bytes::from_static(b"d")]);
        batch.seal(&mut commit, true);
        batch.seal_all(&mut commit);
        assert!(batch.is_empty() && batch.size == 3);
        store.commit(&commit).unwrap().wait().unwrap();
        let read: Vec<Bytes> = store.read(&key, ..).unwrap().map(|entry| entry.unwrap().payload).collect();
        assert_eq!(read, [&b"c"[..], b"d"]);
    }
}
