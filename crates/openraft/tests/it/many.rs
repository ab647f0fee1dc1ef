//! Many groups in one store.

use std::sync::Arc;

use brooklet::io::MemVolume;
use brooklet::{Options, Store};
use brooklet_openraft::Groups;
use openraft::storage::{RaftLogStorage, RaftLogStorageExt};
use openraft::{RaftLogReader, Vote};
use tokio::task::{JoinSet, yield_now};

use crate::kv::machine::Types;
use crate::{entry, id};

const GROUPS: u64 = 3000;

fn name(group: u64) -> String {
    format!("shard-{group:04}")
}

#[tokio::test]
async fn appends_of_thousands_of_groups_share_writes() {
    // Without threads, the store writes when the test says so.
    let options = Options::new().rng_seed(1).ring_size(8 << 20).max_payload(512 << 10);
    let store = options.threads(false).create_on(Arc::new(MemVolume::new(1))).unwrap();
    let groups = Groups::new(&store, "raft/");
    let before = store.activity();
    let mut appends = JoinSet::new();
    for group in 0..GROUPS {
        let mut log = groups.open::<Types>(name(group)).unwrap();
        appends.spawn(async move {
            log.blocking_append([entry(1, 0), entry(1, 1)]).await.unwrap();
            log
        });
    }
    while store.activity().commits < before.commits + GROUPS {
        yield_now().await;
    }
    // All appends are made, and none is durable: readers of the store see none.
    assert_eq!(store.scan("raft/").unwrap().count(), 0);
    store.flush().unwrap();
    let logs = appends.join_all().await;
    let blocks = store.activity().wal.blocks - before.wal.blocks;
    assert!(blocks * 50 <= GROUPS, "{GROUPS} appends took {blocks} writes");
    drop(logs);
    assert_eq!(groups.list().unwrap().len() as u64, GROUPS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_stay_apart_and_survive_a_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("raft.brooklet");
    let options = Options::new().ring_size(8 << 20).max_payload(512 << 10);
    let store = options.clone().open(&path).unwrap();
    let groups = Groups::new(&store, "raft/");
    let mut hosts = JoinSet::new();
    for group in 0..GROUPS {
        let mut log = groups.open::<Types>(name(group)).unwrap();
        hosts.spawn(async move {
            log.save_vote(&Vote::new(group, 1)).await.unwrap();
            for index in 0..4 {
                log.blocking_append([entry(group, index)]).await.unwrap();
            }
            log.purge(id(group, group % 4)).await.unwrap();
        });
    }
    hosts.join_all().await;
    drop(groups);
    store.close().unwrap();
    drop(store);

    let store = options.open(&path).unwrap();
    let groups = Groups::new(&store, "raft/");
    let names: Vec<_> = (0..GROUPS).map(|group| name(group).into_bytes()).collect();
    assert_eq!(groups.list().unwrap(), names);
    for group in 0..GROUPS {
        let mut log = groups.open::<Types>(name(group)).unwrap();
        assert_eq!(log.read_vote().await.unwrap(), Some(Vote::new(group, 1)));
        let expected: Vec<_> = (group % 4 + 1..4).map(|index| entry(group, index)).collect();
        assert_eq!(log.try_get_log_entries(..).await.unwrap(), expected);
    }
}

#[tokio::test]
async fn removed_groups_begin_again() {
    let store = Store::in_memory(1).unwrap();
    let groups = Groups::new(&store, "raft/");
    let others = Groups::new(&store, "other/");
    let mut log = groups.open::<Types>("a").unwrap();
    log.save_vote(&Vote::new(1, 1)).await.unwrap();
    log.blocking_append([entry(1, 0)]).await.unwrap();
    others.open::<Types>("b").unwrap().save_vote(&Vote::new(1, 1)).await.unwrap();
    assert_eq!((groups.list().unwrap(), others.list().unwrap()), (vec![b"a".into()], vec![b"b".into()]));
    groups.remove("a").await.unwrap();
    groups.remove("a").await.unwrap();
    assert!(groups.list().unwrap().is_empty());
    assert!(store.scan("raft/").unwrap().next().is_none());
    let mut log = groups.open::<Types>("a").unwrap();
    assert_eq!(log.read_vote().await.unwrap(), None);
    log.blocking_append([entry(2, 0)]).await.unwrap();
    assert_eq!(groups.list().unwrap(), [b"a"]);
}
