//! The receiver of durable blocks, before any acknowledgement.

use std::sync::Arc;

use crate::block_handle::Block;

/// A receiver of every durable block, in order, before its acknowledgement.
pub trait Sink: Send + Sync {
    /// Receives blocks that are on stable media; all blocks before them are on stable media too.
    fn durable(&self, blocks: &[Arc<Block>]);
}

impl Sink for () {
    fn durable(&self, _: &[Arc<Block>]) {}
}
