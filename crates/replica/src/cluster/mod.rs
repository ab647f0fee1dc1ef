//! Many stores on many hosts: a map in the bucket assigns a host to each store.
//!
//! A *shard* is a store whose log is below `shards` of the cluster's place. The *map* is a chain
//! of numbered records, each a whole map that is created only if its number is free. So two hosts
//! that change the map at once cannot both succeed, and the second one looks again.
//!
//! The map decides no ownership: claims and fences of the log do. A map that is read late costs
//! time, and never an acknowledged commit.

mod change;
mod changer;
mod client;
pub mod doctor;
mod duty;
mod health;
mod part;

pub use change::Change;
pub use changer::{Asked, Changed, Changer, Heard};
pub use client::{Cluster, Observer};
pub use duty::{Duty, Turn};
pub use health::Health;
pub use part::Part;
