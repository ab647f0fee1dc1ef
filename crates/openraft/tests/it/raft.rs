//! A real cluster in one process: each node has its own store on disk.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use brooklet::{Options, Store};
use openraft::BasicNode;
use openraft::error::{ClientWriteError, RaftError};

use crate::kv;
use crate::kv::cluster::{GROUP, Node, PATIENCE, Router, leader, settle, write};
use crate::kv::machine::Set;

fn open(dir: &Path, id: u64) -> Store {
    let options = Options::new().ring_size(1 << 20).max_payload(1 << 16);
    options.open(dir.join(format!("{id}.brooklet"))).unwrap()
}

async fn set(nodes: &[Node], keys: Range<u64>) {
    for n in keys {
        write(nodes, Set { key: format!("key {n}"), value: format!("value {n}") }).await.unwrap();
    }
}

/// Waits until all nodes have applied all entries. Compares their state machines.
async fn compare(nodes: &[Node], keys: usize) {
    settle(nodes).await.unwrap();
    for node in nodes {
        assert_eq!(node.machine.values().len(), keys, "node {}", node.id);
        assert_eq!(node.machine.values(), nodes[0].machine.values(), "node {}", node.id);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_installs_snapshots_and_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let router = Router::default();
    let mut nodes = Vec::new();
    for id in 1..=3 {
        nodes.push(Node::start(id, open(dir.path(), id), &router).await.unwrap());
    }
    nodes[0].raft.initialize(BTreeSet::from([1, 2, 3])).await.unwrap();
    set(&nodes, 0..200).await;
    compare(&nodes, 200).await;

    // The nodes take snapshots and purge their logs. A new node then gets a snapshot.
    for node in &nodes {
        let applied = node.raft.metrics().borrow().last_applied.unwrap();
        node.raft.trigger().snapshot().await.unwrap();
        node.raft.wait(PATIENCE).metrics(|now| now.snapshot >= Some(applied), "a snapshot").await.unwrap();
        node.raft.trigger().purge_log(applied.index).await.unwrap();
        node.raft.wait(PATIENCE).metrics(|now| now.purged >= Some(applied), "a purge").await.unwrap();
    }
    let learner = Node::start(4, open(dir.path(), 4), &router).await.unwrap();
    loop {
        let raft = &nodes[leader(&nodes).await.unwrap()].raft;
        let mut metrics = raft.metrics();
        metrics.borrow_and_update();
        match raft.add_learner(4, BasicNode::default(), true).await {
            // A busy machine may keep a leader from its heartbeats: another election is under way.
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_))) => {
                metrics.changed().await.unwrap();
            }
            done => {
                done.unwrap();
                break;
            }
        }
    }
    nodes.push(learner);
    compare(&nodes, 200).await;
    let bounds = nodes[3].store.bounds(format!("raft/{GROUP}/log")).unwrap();
    assert!(bounds.first > 200, "the learner's log begins at {}", bounds.first);
    set(&nodes, 200..220).await;
    compare(&nodes, 220).await;

    // Each node is killed and comes back: voters, a leader among them, and the learner.
    for round in 0..4 {
        let killed = nodes.remove(0);
        let id = killed.id;
        let store = killed.stop().await.unwrap();
        store.abandon();
        set(&nodes, 220 + round * 10..230 + round * 10).await;
        nodes.push(Node::start(id, open(dir.path(), id), &router).await.unwrap());
        compare(&nodes, 230 + 10 * round as usize).await;
    }
    for node in nodes {
        node.stop().await.unwrap().close().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn example_runs_twice_on_the_same_stores() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        assert_eq!(kv::run(dir.path()).await.unwrap(), 200);
    }
}
