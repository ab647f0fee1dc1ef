//! Who is shown the blocks that became durable, before anybody else is notified.

use std::sync::Arc;

use crate::block_handle::Block;

/// Sees every block become durable, in order, before anybody is told.
pub trait Sink: Send + Sync {
    /// The blocks are on stable media, and all before them.
    fn durable(&self, blocks: &[Arc<Block>]);
}

impl Sink for () {
    fn durable(&self, _: &[Arc<Block>]) {}
}
