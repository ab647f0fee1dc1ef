//! The log and the state of one group: the storage that openraft writes.

use std::fmt::{self, Debug};
use std::io;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::Duration;

use brooklet::{Commit, Durability, Store, Ticket};
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{AsyncRuntime, ErrorSubject, ErrorVerb, LogId, LogState, OptionalSend, RaftLogId};
use openraft::{RaftLogReader, RaftTypeConfig, StorageError, Vote};

use crate::error::Cause;
use crate::format::{self, GroupState};
use crate::group::Group;
use crate::reader::LogReader;

/// The time within which the store begins to write the committed id to stable media.
const COMMITTED_WITHIN: Duration = Duration::from_secs(1);

/// The log, the vote and the other state of one Raft group, in a store that many groups share.
///
/// Open each group once. The handle belongs to one [`Raft`](openraft::Raft), and is the only
/// writer of its group: the store refuses the writes of a second handle, and openraft then stops
/// the node with an error.
///
/// # Durability
///
/// | call | durable |
/// | --- | --- |
/// | `append` | when openraft's callback is called; the entries are readable when the call returns |
/// | `save_vote`, `truncate`, `purge` | when the call returns |
/// | `save_committed` | within about a second, or with the next durable write to the store |
///
/// A restart after a power cut finds every durable write, and every write before it. So a lost
/// committed id costs nothing but the entries that openraft learns to be committed once more.
/// These promises hold in every [space](brooklet::Space) that keeps its logs on stable media. Keep
/// groups out of spaces in memory, and out of spaces with a retention: openraft alone may drop
/// entries.
///
/// # Waiting
///
/// No write blocks a thread while it waits for room or for durability. `append` waits for room
/// only. If the store has no room for its entries at once, `append` returns when they are durable.
/// A log that is not in memory is read from the volume on the thread of the call.
///
/// A write whose future is dropped may take effect or not. The next call reads the logs again, and
/// so continues from their actual state. This call waits on its thread until all earlier commits
/// are durable; so does the next call after an error, and [`open`](Self::open).
///
/// # Errors
///
/// Errors name the group and the remedy. [`ErrorSubject::Vote`] means the state of the group, and
/// [`ErrorSubject::Logs`] means its entries.
pub struct LogStore<C: RaftTypeConfig> {
    group: Arc<Group>,
    /// `None` while a write is under way, and after a write that failed or was cancelled.
    known: Option<Known<C>>,
}

/// The content of both logs of a group, as far as writes need it.
struct Known<C: RaftTypeConfig> {
    state: GroupState<C::NodeId>,
    /// Number of the next entry of the log with the state.
    state_next: u64,
    /// Index of the first entry of the log, or of its next one if it is empty.
    first: u64,
    /// Index of the next entry.
    next: u64,
    /// The id of the last entry, or of the last purged entry.
    last: Option<LogId<C::NodeId>>,
}

impl<C: RaftTypeConfig> LogStore<C> {
    /// Opens a group. A group that does not exist is empty, and begins to exist with its first
    /// write. The name of a group is the first part of the keys of its two logs: `<group>/log` and
    /// `<group>/state`.
    ///
    /// The call makes all earlier commits of the store durable, and may read the volume.
    ///
    /// # Errors
    /// An error of the store; or a group whose two logs contradict each other, are damaged, or were
    /// written by a later version.
    pub fn open(store: &Store, group: impl AsRef<[u8]>) -> Result<Self, StorageError<C::NodeId>> {
        let group = Arc::new(Group::new(store, group.as_ref()));
        let known = Some(Known::load(&group)?);
        Ok(Self { group, known })
    }

    /// Takes the knowledge about the logs for a write, which puts it back when it has succeeded.
    fn take(&mut self) -> Result<Known<C>, StorageError<C::NodeId>> {
        self.known.take().map_or_else(|| Known::load(&self.group), Ok)
    }

    fn known(&mut self) -> Result<&Known<C>, StorageError<C::NodeId>> {
        let known = self.take()?;
        Ok(self.known.insert(known))
    }

    /// Returns a commit that replaces the state.
    fn replace(&self, known: &Known<C>, state: &GroupState<C::NodeId>) -> Result<Commit, Cause> {
        let group = &self.group;
        let bytes = format::encode(state).map_err(|why| group.refused(format!("its state: {why}")))?;
        let mut commit = Commit::new();
        commit.expect_next(&group.state, known.state_next).snapshot(&group.state, bytes);
        Ok(commit)
    }

    /// Makes a commit, and waits until it is acknowledged.
    async fn commit(&self, mut commit: Commit, durability: Durability) -> Result<(), Cause> {
        commit.durability(durability);
        let committed = self.group.store.commit_async(commit).await;
        committed.map(drop).map_err(|error| self.group.failed(error))
    }

    /// Replaces the state without touching the entries.
    async fn save(
        &mut self,
        change: impl FnOnce(&mut GroupState<C::NodeId>) + OptionalSend,
        durability: Durability,
        subject: ErrorSubject<C::NodeId>,
    ) -> Result<(), StorageError<C::NodeId>> {
        let mut known = self.take()?;
        let mut state = known.state.clone();
        change(&mut state);
        if state != known.state {
            let fail = |cause: Cause| cause.at(subject.clone(), ErrorVerb::Write);
            let commit = self.replace(&known, &state).map_err(fail)?;
            self.commit(commit, durability).await.map_err(fail)?;
            (known.state, known.state_next) = (state, known.state_next + 1);
        }
        self.known = Some(known);
        Ok(())
    }

    /// Returns the payloads of entries, after a check of their indexes.
    fn encode(&self, known: &Known<C>, entries: &[C::Entry]) -> Result<Vec<Vec<u8>>, Cause> {
        let first = entries.first().map_or(0, |entry| entry.get_log_id().index);
        // An empty log begins where openraft begins it.
        let next = if known.last.is_none() { known.next.max(first) } else { known.next };
        let payloads = entries.iter().zip(next..).map(|(entry, next)| {
            let index = entry.get_log_id().index;
            if index != next {
                let what = format!("entry {index} was appended where the next index is {next}");
                return Err(self.group.refused(what));
            }
            format::encode(entry).map_err(|why| self.group.refused(format!("entry {index}: {why}")))
        });
        payloads.collect()
    }

    /// Appends payloads from index `from` on. Returns the ticket of the last one; `None` if all are
    /// durable.
    async fn add(&self, known: &Known<C>, from: u64, payloads: &[Vec<u8>]) -> Result<Option<Ticket>, Cause> {
        let Group { store, log, .. } = &*self.group;
        let (mut last, mut done, mut at_once) = (None, 0, payloads.len());
        while done < payloads.len() {
            let some = &payloads[done..payloads.len().min(done + at_once)];
            let mut commit = Commit::new();
            let begins = done == 0 && from > known.next;
            commit.expect_next(log, if begins { known.next } else { from + done as u64 });
            if begins {
                commit.begin_at(log, from);
            }
            some.iter().for_each(|payload| {
                commit.append(log, payload);
            });
            commit.durability(Durability::Durable);
            let added = match store.try_commit(&commit) {
                Err(brooklet::Error::Busy { .. }) => store.commit_async(commit).await.map(|_| None),
                added => added.map(Some),
            };
            last = match added {
                // The ring is too small for one commit of all entries. Raft needs no single commit.
                Err(brooklet::Error::CommitTooLarge { .. }) if some.len() > 1 => {
                    at_once = some.len().div_ceil(2);
                    continue;
                }
                added => added.map_err(|error| self.group.failed(error))?,
            };
            done += some.len();
        }
        Ok(last)
    }
}

impl<C: RaftTypeConfig> Known<C> {
    /// Reads both logs, and checks that they agree.
    fn load(group: &Group) -> Result<Self, StorageError<C::NodeId>> {
        let read = |subject| move |cause: Cause| cause.at(subject, ErrorVerb::Read);
        // The vote that openraft reads must be durable.
        group.store.flush().map_err(|error| read(ErrorSubject::Store)(group.failed(error)))?;
        let (state, state_next) = Self::load_state(group).map_err(read(ErrorSubject::Vote))?;
        Self::load_log(group, state, state_next).map_err(read(ErrorSubject::Logs))
    }

    fn load_state(group: &Group) -> Result<(GroupState<C::NodeId>, u64), Cause> {
        let Some(bounds) = group.bounds(&group.state)? else { return Ok((GroupState::default(), 0)) };
        let stored = group.store.read_appended(&group.state, ..).map_err(|error| group.failed(error))?;
        let stored: Vec<_> = stored.collect::<Result<_, _>>().map_err(|error| group.failed(error))?;
        let [cell] = &stored[..] else {
            return Err(group.damaged(format!("its state has {} entries instead of one", stored.len())));
        };
        Ok((group.decode(&cell.payload, || "its state".into())?, bounds.next))
    }

    fn load_log(group: &Group, state: GroupState<C::NodeId>, state_next: u64) -> Result<Self, Cause> {
        let bounds = group.bounds(&group.log)?;
        if let Some(purged) = &state.last_purged {
            let purged = purged.index;
            match bounds.map(|bounds| bounds.first) {
                Some(first) if first == purged + 1 => {}
                Some(first) => {
                    let what =
                        format!("its state purges entries up to {purged}, but its log begins at {first}");
                    return Err(group.damaged(what));
                }
                None => {
                    let what = format!("its state purges entries up to {purged}, but its log is missing");
                    return Err(group.damaged(what));
                }
            }
        }
        let (first, next) = bounds.map_or((0, 0), |bounds| (bounds.first, bounds.next));
        let last = if first < next { Some(group.log_id::<C>(next - 1)?) } else { state.last_purged.clone() };
        Ok(Self { state, state_next, first, next, last })
    }
}

impl<C: RaftTypeConfig> RaftLogReader<C> for LogStore<C> {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
        LogReader::<C>::new(&self.group).try_get_log_entries(range).await
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
        LogReader::<C>::new(&self.group).limited_get_log_entries(start, end).await
    }
}

impl<C: RaftTypeConfig> RaftLogStorage<C> for LogStore<C> {
    type LogReader = LogReader<C>;

    async fn get_log_state(&mut self) -> Result<LogState<C>, StorageError<C::NodeId>> {
        let known = self.known()?;
        Ok(LogState { last_purged_log_id: known.state.last_purged.clone(), last_log_id: known.last.clone() })
    }

    async fn get_log_reader(&mut self) -> LogReader<C> {
        LogReader::new(&self.group)
    }

    async fn save_vote(&mut self, vote: &Vote<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        let vote = Some(vote.clone());
        self.save(|state| state.vote = vote, Durability::Durable, ErrorSubject::Vote).await
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<C::NodeId>>, StorageError<C::NodeId>> {
        Ok(self.known()?.state.vote.clone())
    }

    async fn save_committed(
        &mut self,
        committed: Option<LogId<C::NodeId>>,
    ) -> Result<(), StorageError<C::NodeId>> {
        let deferred = Durability::Deferred(COMMITTED_WITHIN);
        self.save(|state| state.committed = committed, deferred, ErrorSubject::Vote).await
    }

    async fn read_committed(&mut self) -> Result<Option<LogId<C::NodeId>>, StorageError<C::NodeId>> {
        Ok(self.known()?.state.committed.clone())
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<C>) -> Result<(), StorageError<C::NodeId>>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut known = self.take()?;
        // A snapshot has the purged entries. They stay purged.
        let purged = known.state.last_purged.as_ref().map(|id| id.index);
        let is_kept = |entry: &C::Entry| Some(entry.get_log_id().index) > purged;
        let entries: Vec<C::Entry> = entries.into_iter().filter(is_kept).collect();
        let Some(last) = entries.last().map(|entry| entry.get_log_id().clone()) else {
            self.known = Some(known);
            callback.log_io_completed(Ok(()));
            return Ok(());
        };
        let fail = |cause: Cause| cause.at(ErrorSubject::Logs, ErrorVerb::Write);
        let payloads = self.encode(&known, &entries).map_err(fail)?;
        let from = entries[0].get_log_id().index;
        let ticket = self.add(&known, from, &payloads).await.map_err(fail)?;
        if known.last.is_none() {
            known.first = from;
        }
        (known.next, known.last) = (from + entries.len() as u64, Some(last));
        self.known = Some(known);
        let Some(ticket) = ticket else {
            callback.log_io_completed(Ok(()));
            return Ok(());
        };
        let group = self.group.clone();
        drop(C::AsyncRuntime::spawn(async move {
            let flushed = ticket.await.map_err(|error| io::Error::other(group.failed(error)));
            callback.log_io_completed(flushed);
        }));
        Ok(())
    }

    async fn truncate(&mut self, log_id: LogId<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        let mut known = self.take()?;
        let from = log_id.index;
        if from < known.next {
            let fail = |cause: Cause| cause.at(ErrorSubject::Logs, ErrorVerb::Delete);
            let Group { log, .. } = &*self.group;
            if from < known.first {
                let what = format!("a truncation from {from} on reaches entries before {}", known.first);
                return Err(fail(self.group.refused(what)));
            }
            let last = match from.checked_sub(1).filter(|before| *before >= known.first) {
                Some(before) => Some(self.group.log_id::<C>(before).map_err(fail)?),
                None => known.state.last_purged.clone(),
            };
            let mut commit = Commit::new();
            commit.expect_next(log, known.next).truncate(log, from);
            self.commit(commit, Durability::Durable).await.map_err(fail)?;
            (known.next, known.last) = (from, last);
        }
        self.known = Some(known);
        Ok(())
    }

    async fn purge(&mut self, log_id: LogId<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        let mut known = self.take()?;
        let first = log_id.index.saturating_add(1);
        let is_purged = known.state.last_purged.as_ref().is_some_and(|last| last.index >= log_id.index);
        if !is_purged {
            let fail = |cause: Cause| cause.at(ErrorSubject::Logs, ErrorVerb::Delete);
            if first < known.first {
                let what = format!("a purge up to {} leaves a gap before {}", log_id.index, known.first);
                return Err(fail(self.group.refused(what)));
            }
            let state = GroupState { last_purged: Some(log_id.clone()), ..known.state.clone() };
            let Group { log, .. } = &*self.group;
            // Entries and state change in one step, so that no crash parts them.
            let mut commit = self.replace(&known, &state).map_err(fail)?;
            commit.expect_next(log, known.next).begin_at(log, first);
            // Nothing is behind it, or a later leader has replaced the entries there.
            let replaces_all = first >= known.next || known.last.as_ref() <= Some(&log_id);
            if replaces_all && first < known.next {
                commit.truncate(log, first);
            }
            self.commit(commit, Durability::Durable).await.map_err(fail)?;
            known.next = if replaces_all { first } else { known.next };
            known.last = if replaces_all { Some(log_id) } else { known.last };
            (known.state, known.state_next, known.first) = (state, known.state_next + 1, first);
        }
        self.known = Some(known);
        Ok(())
    }
}

impl<C: RaftTypeConfig> Debug for LogStore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogStore({})", self.group.name)
    }
}
