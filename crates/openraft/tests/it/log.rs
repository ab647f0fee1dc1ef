//! One group: reopening, purges, truncations, and what is refused.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use brooklet::io::MemVolume;
use brooklet::{Commit, Options, Store};
use brooklet_openraft::LogStore;
use openraft::storage::{LogState, RaftLogStorage, RaftLogStorageExt};
use openraft::{Entry, EntryPayload, RaftLogReader, StorageError, Vote};

use crate::kv::machine::{Set, Types};
use crate::{entry, id, open};

async fn indexes(log: &mut LogStore<Types>) -> Vec<u64> {
    log.try_get_log_entries(..).await.unwrap().iter().map(|entry| entry.log_id.index).collect()
}

async fn state(log: &mut LogStore<Types>) -> (Option<(u64, u64)>, Option<(u64, u64)>) {
    let LogState { last_purged_log_id, last_log_id } = log.get_log_state().await.unwrap();
    let short = |id: openraft::LogId<u64>| (id.leader_id.term, id.index);
    (last_purged_log_id.map(short), last_log_id.map(short))
}

#[tokio::test]
async fn votes_purges_and_entries_survive_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("raft.brooklet");
    let options = Options::new().ring_size(1 << 20).max_payload(1 << 16);
    let store = options.clone().open(&path).unwrap();
    let mut log = open(&store);
    log.blocking_append((0..10).map(|index| entry(1, index))).await.unwrap();
    log.purge(id(1, 3)).await.unwrap();
    log.truncate(id(1, 8)).await.unwrap();
    log.save_committed(Some(id(1, 5))).await.unwrap();
    // A durable write behind the committed id makes it durable, too.
    log.save_vote(&Vote::new(2, 7)).await.unwrap();
    drop(log);
    store.abandon();

    let store = options.open(&path).unwrap();
    let mut log = open(&store);
    assert_eq!(state(&mut log).await, (Some((1, 3)), Some((1, 7))));
    assert_eq!(log.read_vote().await.unwrap(), Some(Vote::new(2, 7)));
    assert_eq!(log.read_committed().await.unwrap(), Some(id(1, 5)));
    assert_eq!(indexes(&mut log).await, [4, 5, 6, 7]);
    log.blocking_append([entry(2, 8)]).await.unwrap();
    assert_eq!(log.try_get_log_entries(8..).await.unwrap(), [entry(2, 8)]);
}

#[tokio::test]
async fn log_continues_behind_a_purge_beyond_its_end() {
    let store = Store::in_memory(1).unwrap();
    let mut log = open(&store);
    log.blocking_append((0..3).map(|index| entry(1, index))).await.unwrap();
    log.purge(id(4, 1000)).await.unwrap();
    assert_eq!(state(&mut log).await, (Some((4, 1000)), Some((4, 1000))));
    assert!(indexes(&mut log).await.is_empty());
    log.blocking_append([entry(4, 1001), entry(5, 1002)]).await.unwrap();
    let mut log = open(&store);
    assert_eq!(state(&mut log).await, (Some((4, 1000)), Some((5, 1002))));
    assert_eq!(indexes(&mut log).await, [1001, 1002]);
    // An older purge has happened already, and a purged entry stays purged.
    log.blocking_append([entry(4, 1000), entry(5, 1003)]).await.unwrap();
    assert_eq!(indexes(&mut log).await, [1001, 1002, 1003]);
    log.purge(id(1, 7)).await.unwrap();
    assert_eq!(state(&mut log).await, (Some((4, 1000)), Some((5, 1003))));
}

#[tokio::test]
async fn purge_by_a_later_leader_replaces_the_entries_behind_it() {
    let store = Store::in_memory(1).unwrap();
    let mut log = open(&store);
    log.blocking_append((0..8).map(|index| entry(1, index))).await.unwrap();
    log.purge(id(2, 4)).await.unwrap();
    assert_eq!(state(&mut log).await, (Some((2, 4)), Some((2, 4))));
    log.blocking_append([entry(2, 5)]).await.unwrap();
    assert_eq!(open(&store).try_get_log_entries(..).await.unwrap(), [entry(2, 5)]);
}

#[tokio::test]
async fn purge_at_or_beyond_the_end_drops_a_last_entry_of_a_later_term() {
    for purged in [5, 9] {
        let store = Store::in_memory(1).unwrap();
        let mut log = open(&store);
        log.blocking_append((0..=5).map(|index| entry(3, index))).await.unwrap();
        log.purge(id(2, purged)).await.unwrap();
        assert_eq!(state(&mut log).await, (Some((2, purged)), Some((2, purged))));
        log.blocking_append([entry(4, purged + 1)]).await.unwrap();
        assert_eq!(open(&store).try_get_log_entries(..).await.unwrap(), [entry(4, purged + 1)]);
    }
}

#[tokio::test]
async fn log_of_a_new_group_begins_at_any_index() {
    let store = Store::in_memory(1).unwrap();
    for (group, begin) in [("zero", 0), ("one", 1), ("many", 70)] {
        let mut log = LogStore::<Types>::open(&store, group).unwrap();
        log.blocking_append([entry(1, begin), entry(1, begin + 1)]).await.unwrap();
        let mut log = LogStore::open(&store, group).unwrap();
        assert_eq!(state(&mut log).await, (None, Some((1, begin + 1))));
        assert_eq!(indexes(&mut log).await, [begin, begin + 1]);
    }
}

#[tokio::test]
async fn truncated_entries_are_replaced() {
    let store = Store::in_memory(1).unwrap();
    let mut log = open(&store);
    log.blocking_append((0..6).map(|index| entry(1, index))).await.unwrap();
    log.truncate(id(1, 2)).await.unwrap();
    assert_eq!(state(&mut log).await, (None, Some((1, 1))));
    log.blocking_append([entry(3, 2)]).await.unwrap();
    assert_eq!(log.try_get_log_entries(1..).await.unwrap(), [entry(1, 1), entry(3, 2)]);
    // All entries, and none behind the end.
    log.truncate(id(3, 9)).await.unwrap();
    log.truncate(id(1, 0)).await.unwrap();
    assert_eq!(state(&mut open(&store)).await, (None, None));
    log.blocking_append([entry(4, 0)]).await.unwrap();
    assert_eq!(log.try_get_log_entries(..).await.unwrap(), [entry(4, 0)]);
}

#[tokio::test]
async fn gaps_are_refused_and_change_nothing() {
    let store = Store::in_memory(1).unwrap();
    let mut log = open(&store);
    log.blocking_append([entry(1, 0), entry(1, 1)]).await.unwrap();
    let refused = log.blocking_append([entry(1, 3)]).await.unwrap_err().to_string();
    assert!(refused.contains("entry 3 was appended where the next index is 2"), "{refused}");
    let refused = log.blocking_append([entry(1, 2), entry(1, 4)]).await.unwrap_err().to_string();
    assert!(refused.contains("\"g\"") && refused.contains("entry 4"), "{refused}");
    log.purge(id(1, 0)).await.unwrap();
    let refused = log.truncate(id(1, 0)).await.unwrap_err().to_string();
    assert!(
        refused.contains("when Delete Logs") && refused.contains("reaches entries before 1"),
        "{refused}"
    );
    log.blocking_append([entry(1, 2)]).await.unwrap();
    assert_eq!(indexes(&mut log).await, [1, 2]);
}

#[tokio::test]
async fn second_handle_cannot_write_beside_the_first() {
    let store = Store::in_memory(1).unwrap();
    let (mut first, mut second) = (open(&store), open(&store));
    first.save_vote(&Vote::new(1, 1)).await.unwrap();
    let refused = second.save_vote(&Vote::new(1, 2)).await.unwrap_err().to_string();
    assert!(refused.contains("when Write Vote") && refused.contains("open each group once"), "{refused}");
    first.blocking_append([entry(1, 0)]).await.unwrap();
    // The refused handle has read the logs again.
    assert_eq!(second.read_vote().await.unwrap(), Some(Vote::new(1, 1)));
    second.blocking_append([entry(1, 1)]).await.unwrap();
    first.blocking_append([entry(1, 1)]).await.unwrap_err();
    assert_eq!(indexes(&mut first).await, [0, 1]);
}

#[tokio::test]
async fn entries_are_readable_before_they_are_durable() {
    // Without threads, the store writes when the test says so.
    let options = Options::new().rng_seed(1).ring_size(1 << 20).max_payload(1 << 16).threads(false);
    let store = options.create_on(Arc::new(MemVolume::new(1))).unwrap();
    let mut log = open(&store);
    let mut reader = log.get_log_reader().await;
    let mut append = pin!(log.blocking_append([entry(1, 0), entry(1, 1)]));
    assert!(poll_once(append.as_mut()).await.is_none());
    assert_eq!(reader.try_get_log_entries(..).await.unwrap(), [entry(1, 0), entry(1, 1)]);
    assert_eq!(reader.limited_get_log_entries(1, 2).await.unwrap(), [entry(1, 1)]);
    assert_eq!(store.get_bounds("g/log").unwrap(), None);
    assert!(poll_once(append.as_mut()).await.is_none());
    store.flush().unwrap();
    append.await.unwrap();
    assert_eq!(store.bounds("g/log").unwrap().next, 2);
}

#[tokio::test]
async fn callback_reports_that_entries_did_not_become_durable() {
    let options = Options::new().rng_seed(1).ring_size(1 << 20).max_payload(1 << 16).threads(false);
    let store = options.create_on(Arc::new(MemVolume::new(1))).unwrap();
    let mut log = open(&store);
    let mut append = Box::pin(log.blocking_append([entry(1, 0)]));
    assert!(poll_once(append.as_mut()).await.is_none());
    store.abandon();
    let failed = append.await.unwrap_err().to_string();
    assert!(failed.contains("when Write Logs") && failed.contains("\"g\": the store is closed"), "{failed}");
    // Later calls report it, too.
    assert!(log.save_vote(&Vote::new(1, 1)).await.is_err());
}

/// Polls a future once, and returns its result if it has ended.
async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

#[tokio::test]
async fn write_of_a_dropped_future_is_made_or_not() {
    let store = Store::in_memory(1).unwrap();
    let mut log = open(&store);
    for term in 1..50 {
        let vote = Vote::new(term, 1);
        tokio::select! {
            biased;
            done = log.save_vote(&vote) => done.unwrap(),
            () = std::future::ready(()) => {}
        }
        let read = log.read_vote().await.unwrap();
        assert!(read == Some(vote) || read == (term > 1).then(|| Vote::new(term - 1, 1)), "{read:?}");
        log.save_vote(&vote).await.unwrap();
        assert_eq!(open(&store).read_vote().await.unwrap(), Some(vote));
    }
}

#[tokio::test]
async fn batches_larger_than_a_commit_are_appended() {
    let store = Store::in_memory(1).unwrap();
    let mut log = open(&store);
    let large = |index| {
        let set = Set { key: "k".into(), value: "v".repeat(300 << 10) };
        Entry::<Types> { log_id: id(1, index), payload: EntryPayload::Normal(set) }
    };
    log.blocking_append((0..16).map(large)).await.unwrap();
    assert_eq!(state(&mut log).await, (None, Some((1, 15))));
    // A limited read returns a part of so much data.
    let some = log.limited_get_log_entries(0, 16).await.unwrap();
    assert_eq!(some, (0..4).map(large).collect::<Vec<_>>());
    let mut reader = log.get_log_reader().await;
    let all = reader.try_get_log_entries(0..).await.unwrap();
    assert_eq!(all, (0..16).map(large).collect::<Vec<_>>());
}

/// Damages a group of four entries, of which two are purged, and returns the error of its opening.
async fn damaged(damage: impl FnOnce(&Store)) -> StorageError<u64> {
    let store = Store::in_memory(1).unwrap();
    let mut log = open(&store);
    log.blocking_append((0..4).map(|index| entry(1, index))).await.unwrap();
    log.purge(id(1, 1)).await.unwrap();
    damage(&store);
    LogStore::<Types>::open(&store, "g").unwrap_err()
}

#[tokio::test]
async fn groups_whose_logs_disagree_are_refused() {
    let expect = |error: StorageError<u64>, parts: &[&str]| {
        let text = error.to_string();
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    };
    let trimmed = damaged(|store| store.trim("g/log", 3).unwrap().wait().unwrap()).await;
    expect(trimmed, &["when Read Logs", "\"g\"", "up to 1", "begins at 3", "restore"]);
    let missing = damaged(|store| store.delete("g/log").unwrap().wait().unwrap()).await;
    expect(missing, &["when Read Logs", "log is missing"]);
    let twice = damaged(|store| store.append("g/state", "x").unwrap().wait().unwrap()).await;
    expect(twice, &["when Read Vote", "2 entries instead of one"]);
    let foreign = damaged(|store| store.append("g/log", "\x01x").unwrap().wait().unwrap()).await;
    expect(foreign, &["when Read Logs", "entry 4 does not decode"]);
    let newer = damaged(|store| store.snapshot("g/state", "\x02").unwrap().wait().unwrap()).await;
    expect(newer, &["when Read Vote", "its state has format 2", "upgrade brooklet-openraft"]);
    let moved = damaged(|store| {
        let last = store.last("g/log").unwrap().unwrap().payload;
        store.append("g/log", last).unwrap().wait().unwrap();
    });
    expect(moved.await, &["entry 4 has the Raft index 3"]);
}

#[tokio::test]
async fn entry_at_a_wrong_place_is_an_error_of_the_read() {
    let store = Store::in_memory(1).unwrap();
    let mut log = open(&store);
    log.blocking_append((0..4).map(|index| entry(1, index))).await.unwrap();
    let payloads: Vec<_> = store.read("g/log", ..).unwrap().map(|entry| entry.unwrap().payload).collect();
    let mut swap = Commit::new();
    swap.truncate("g/log", 1);
    [2, 1, 3].iter().for_each(|from| _ = swap.append("g/log", &payloads[*from]));
    store.commit(&swap).unwrap().wait().unwrap();
    let mut log = open(&store);
    let wrong = log.try_get_log_entries(1..2).await.unwrap_err().to_string();
    assert!(wrong.contains("when Read Logs") && wrong.contains("entry 1 has the Raft index 2"), "{wrong}");
    assert_eq!(log.try_get_log_entries(3..).await.unwrap(), [entry(1, 3)]);
}
