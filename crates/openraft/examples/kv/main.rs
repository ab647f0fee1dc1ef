//! A replicated map: three nodes in one process, each with its own store. The program writes, stops
//! a node, writes on, starts the node again, and compares the maps.
//!
//! ```sh
//! cargo run -p brooklet-openraft --example kv -- FOLDER     # kv.nodes if left out
//! ```

pub mod cluster;
pub mod machine;

use std::collections::BTreeSet;
use std::error::Error;
use std::ops::Range;
use std::path::Path;

use brooklet::Store;

use cluster::{Node, Router, leader, settle, write};
use machine::Set;

/// Runs the cluster, with its stores in a folder. Returns the number of keys.
pub async fn run(folder: &Path) -> Result<usize, Box<dyn Error>> {
    std::fs::create_dir_all(folder)?;
    let open = |id: u64| Store::open(folder.join(format!("{id}.brooklet")));

    let router = Router::default();
    let mut nodes = Vec::new();
    for id in 1..=3 {
        nodes.push(Node::start(id, open(id)?, &router).await?);
    }
    if nodes[0].raft.is_initialized().await? {
        println!("three nodes go on with {} keys", nodes[0].machine.values().len());
    } else {
        nodes[0].raft.initialize(BTreeSet::from([1, 2, 3])).await?;
        println!("three nodes form a new cluster");
    }

    let leads = leader(&nodes).await?;
    println!("node {} leads", nodes[leads].id);
    set(&nodes, 0..100).await?;
    println!("100 keys are on the disks of a majority");

    let stopped = nodes.remove((leads + 1) % 3);
    let id = stopped.id;
    stopped.stop().await?.close()?;
    set(&nodes, 100..200).await?;
    println!("node {id} is down, and 100 more keys are on disk");

    nodes.push(Node::start(id, open(id)?, &router).await?);
    settle(&nodes).await?;
    let values = nodes[0].machine.values();
    assert!(nodes.iter().all(|node| node.machine.values() == values));
    println!("node {id} is back: all nodes have the same {} keys", values.len());

    for node in nodes {
        node.stop().await?.close()?;
    }
    Ok(values.len())
}

/// Sets keys, one after another.
async fn set(nodes: &[Node], keys: Range<u64>) -> Result<(), Box<dyn Error>> {
    for n in keys {
        write(nodes, Set { key: format!("key {n}"), value: format!("value {n}") }).await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run(Path::new(std::env::args().nth(1).as_deref().unwrap_or("kv.nodes"))).await.map(drop)
}
