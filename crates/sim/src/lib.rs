//! A deterministic simulator for Brooklet: the real store, on a disk that fails, against a plain
//! model.
//!
//! ```text
//! plan ──▶ world ──▶ store ──▶ volume ─▶ disk        one thread, one seed
//!            ▲                   │
//!            └──── the hook ◀────┘                    others come in between two operations of the disk
//!            │
//!            └──▶ oracle ──▶ checker                  every crash image is opened and compared
//! ```
//!
//! A [`plan::Plan`] is drawn from a seed; a [`world::World`] carries it out. In the middle of any
//! operation the [`faulty_volume::FaultyVolume`] takes an image of the bytes that a power cut would
//! leave, or lets other callers run. A [`checker::Checker`] opens each image, cuts the power again
//! while it recovers, and compares the store with the [`oracle::Oracle`].

#![forbid(unsafe_code)]

pub mod budget;
pub mod campaign;
pub mod checker;
pub mod faulty_volume;
pub mod interrupt;
pub mod model;
pub mod mutations;
mod offload_store;
pub mod oracle;
pub mod plan;
mod ring_image;
pub mod shrink;
pub mod sweep;
pub mod world;
