//! Nodes in one process, and the network between them: plain calls.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brooklet::Store;
use brooklet_openraft::Groups;
use openraft::error::Unreachable;
use openraft::error::{ClientWriteError, InstallSnapshotError, RPCError, RaftError, RemoteError};
use openraft::network::RPCOption;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest};
use openraft::raft::{InstallSnapshotResponse, VoteRequest, VoteResponse};
use openraft::{BasicNode, Config, Raft, RaftNetwork, RaftNetworkFactory, SnapshotPolicy};

use super::machine::{Machine, Set, Types};

/// The longest wait for one event.
pub const PATIENCE: Option<Duration> = Some(Duration::from_secs(60));

/// The name of the group.
pub const GROUP: &str = "kv";

/// The reachable nodes. Clones share them.
#[derive(Clone, Default)]
pub struct Router {
    nodes: Arc<Mutex<BTreeMap<u64, Raft<Types>>>>,
}

impl Router {
    /// Returns a node, if it is reachable.
    fn node(&self, id: u64) -> Result<Raft<Types>, Unreachable> {
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let down = || Unreachable::new(&io::Error::other(format!("node {id} is down")));
        nodes.get(&id).cloned().ok_or_else(down)
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<u64, Raft<Types>>)) {
        change(&mut self.nodes.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// The way to one node.
pub struct Way {
    router: Router,
    target: u64,
}

impl RaftNetworkFactory<Types> for Router {
    type Network = Way;

    async fn new_client(&mut self, target: u64, _: &BasicNode) -> Way {
        Way { router: self.clone(), target }
    }
}

type Failure<E> = RPCError<u64, BasicNode, E>;

impl Way {
    /// Returns the error of a call that the node answered with an error.
    fn refused<E: Error>(&self) -> impl FnOnce(E) -> Failure<E> {
        let target = self.target;
        move |error| RemoteError::new(target, error).into()
    }
}

impl RaftNetwork<Types> for Way {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, Failure<RaftError<u64>>> {
        self.router.node(self.target)?.append_entries(request).await.map_err(self.refused())
    }

    async fn install_snapshot(
        &mut self,
        request: InstallSnapshotRequest<Types>,
        _: RPCOption,
    ) -> Result<InstallSnapshotResponse<u64>, Failure<RaftError<u64, InstallSnapshotError>>> {
        self.router.node(self.target)?.install_snapshot(request).await.map_err(self.refused())
    }

    async fn vote(
        &mut self,
        request: VoteRequest<u64>,
        _: RPCOption,
    ) -> Result<VoteResponse<u64>, Failure<RaftError<u64>>> {
        self.router.node(self.target)?.vote(request).await.map_err(self.refused())
    }
}

/// A node: one host with its own store.
pub struct Node {
    /// The number of the node.
    pub id: u64,
    /// The store of the host.
    pub store: Store,
    /// The group's Raft on this host.
    pub raft: Raft<Types>,
    /// The group's state machine on this host.
    pub machine: Machine,
    router: Router,
}

impl Node {
    /// Starts a node on its store.
    pub async fn start(id: u64, store: Store, router: &Router) -> Result<Self, Box<dyn Error>> {
        let config = Config {
            heartbeat_interval: 200,
            election_timeout_min: 1000,
            election_timeout_max: 2000,
            snapshot_policy: SnapshotPolicy::Never,
            max_in_snapshot_log_to_keep: 0,
            ..Config::default()
        };
        let log = Groups::new(&store, "raft/").open(GROUP)?;
        let machine = Machine::open(&store, GROUP)?;
        let config = Arc::new(config.validate()?);
        let raft = Raft::new(id, config, router.clone(), log, machine.clone()).await?;
        router.change(|nodes| _ = nodes.insert(id, raft.clone()));
        Ok(Self { id, store, raft, machine, router: router.clone() })
    }

    /// Stops the node. The others no longer reach it. Returns its store, which stays open.
    pub async fn stop(self) -> Result<Store, Box<dyn Error>> {
        self.router.change(|nodes| _ = nodes.remove(&self.id));
        self.raft.shutdown().await?;
        Ok(self.store)
    }
}

/// Waits until the first node knows a leader that is one of the nodes. Returns the leader's place.
pub async fn leader(nodes: &[Node]) -> Result<usize, Box<dyn Error>> {
    let wait = nodes[0].raft.wait(PATIENCE);
    loop {
        let seen = wait.metrics(|now| now.current_leader.is_some(), "a leader").await?.current_leader;
        if let Some(at) = nodes.iter().position(|node| Some(node.id) == seen) {
            return Ok(at);
        }
        // The leader is down, and the first node has not noticed it yet.
        wait.metrics(|now| now.current_leader != seen, "another leader").await?;
    }
}

/// Sets a key, by the leader. The value is on the disks of a majority when the call returns.
pub async fn write(nodes: &[Node], set: Set) -> Result<(), Box<dyn Error>> {
    loop {
        let raft = &nodes[leader(nodes).await?].raft;
        let mut metrics = raft.metrics();
        metrics.borrow_and_update();
        match raft.client_write(set.clone()).await {
            // Another election is under way.
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_))) => metrics.changed().await?,
            done => return Ok(done.map(drop)?),
        }
    }
}

/// Waits until all nodes have applied what the leader has in its log.
pub async fn settle(nodes: &[Node]) -> Result<(), Box<dyn Error>> {
    let index = nodes[leader(nodes).await?].raft.metrics().borrow().last_log_index;
    for node in nodes {
        node.raft.wait(PATIENCE).applied_index_at_least(index, "the last entry").await?;
    }
    Ok(())
}
