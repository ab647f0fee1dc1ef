//! The HTTP face.

pub mod watch;
