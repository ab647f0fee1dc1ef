//! The blocks of a log, as a host reads them that does not own the log.

use brooklet::SealedBlock;
use bytes::Bytes;

use crate::cutter::blocks;
use crate::error::Error;
use crate::object::{Kind, Object};
use crate::place::StoreId;

/// A part of a log that a [standby](crate::Replica::stand_by) reads.
#[derive(Clone, Debug)]
pub enum Followed {
    /// The log begins here: with the store, or behind a backup. The next blocks may not continue
    /// the blocks before.
    Begin {
        /// The store of the log.
        store: StoreId,
        /// Number of the backup.
        backup: Option<u64>,
    },
    /// The owner of the log, or a host that takes it over just now, as its claim says.
    Owner {
        /// Name of the owner, for people.
        name: String,
        /// Address of the owner, for clients; it may be empty.
        address: String,
    },
    /// The next blocks. No later owner can take them back. An empty list is a sign of the owner.
    Blocks(Vec<SealedBlock>),
}

/// Returns the blocks of an object.
pub(crate) fn sealed(object: &Object<Bytes>) -> Result<Vec<SealedBlock>, Error> {
    if object.kind != Kind::Blocks {
        return Ok(Vec::new());
    }
    let damaged = |what| Error::Damaged { object: object.place.to_string(), what };
    let blocks = blocks(&object.payload).map_err(|_| damaged("its blocks are cut off"))?;
    let decode = |block| SealedBlock::decode(block).ok_or_else(|| damaged("a block is not whole"));
    blocks.into_iter().map(decode).collect()
}
