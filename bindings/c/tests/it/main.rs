//! The header is up to date, and the vectors that every library plays hold in Rust.

mod header;
mod vectors;
