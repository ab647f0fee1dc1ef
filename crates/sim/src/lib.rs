//! A deterministic simulator for Brooklet: the real store, on a disk that fails, against a plain
//! model.
//!
//! ```text
//! plan ──▶ world ──▶ store ──▶ stage ──▶ disk        one thread, one seed
//!            ▲                   │
//!            └──── the door ◀────┘                    others come in between two operations of the disk
//!            │
//!            └──▶ ledger ──▶ witness                  every crash image is opened and compared
//! ```
//!
//! A [`plan::Plan`] is drawn from a seed; a [`world::World`] carries it out. In the middle of any
//! operation the [`stage::Stage`] takes what a power cut would leave, or lets other callers in. A
//! [`witness::Witness`] opens each image, cuts the power again while it recovers, and compares what
//! is there with the [`ledger::Ledger`].

#![forbid(unsafe_code)]

pub mod budget;
pub mod campaign;
mod elsewhere;
pub mod gallery;
pub mod ledger;
pub mod model;
pub mod plan;
pub mod shrink;
pub mod stage;
pub mod sweep;
pub mod witness;
pub mod world;
