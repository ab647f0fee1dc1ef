//! Memory for the bodies of all requests, and for those of all replies: each body has a share,
//! which grows with the bytes that are there.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::reply::Refusal;

/// The unit of the budget, in bytes.
const KIB: usize = 1024;
/// Longest wait for memory. Peers that are slow hold memory for longer, and nobody waits for them.
const WAIT: Duration = Duration::from_secs(2);
/// Replies up to this size, in bytes, have no share: connections are limited.
const SMALL: usize = 4 * KIB;

/// A share of a budget, which returns when it is dropped.
pub type Share = OwnedSemaphorePermit;

/// Memory that is given in shares.
pub struct Budget {
    memory: Arc<Semaphore>,
    units: usize,
}

impl Budget {
    pub fn new(bytes: usize) -> Self {
        let units = bytes.div_ceil(KIB).min(Semaphore::MAX_PERMITS);
        Self { memory: Arc::new(Semaphore::new(units)), units }
    }

    /// Returns the size of the budget.
    pub fn bytes(&self) -> usize {
        self.units.saturating_mul(KIB)
    }

    /// Returns the units for a number of bytes: at most all, so that one who needs more than the
    /// budget has it alone.
    fn units(&self, bytes: usize) -> usize {
        bytes.div_ceil(KIB).min(self.units)
    }

    /// Takes a share for a number of bytes; refuses if no memory is free for a while.
    pub async fn take(&self, bytes: usize) -> Result<Share, Refusal> {
        let units = u32::try_from(self.units(bytes)).unwrap_or(u32::MAX);
        let taken = tokio::time::timeout(WAIT, self.memory.clone().acquire_many_owned(units)).await;
        match taken {
            Ok(share) => Ok(share.expect("it is never closed")),
            Err(_) => {
                Err(Refusal::busy("all memory for bodies is in use: retry later, or send and read faster"))
            }
        }
    }

    /// Grows a share to a number of bytes.
    pub async fn grow(&self, share: &mut Share, bytes: usize) -> Result<(), Refusal> {
        let missing = self.units(bytes).saturating_sub(share.num_permits());
        if missing > 0 {
            share.merge(self.take(missing * KIB).await?);
        }
        Ok(())
    }
}

/// Bytes of a body, and their share.
struct Held {
    bytes: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns the bytes of a reply, which hold as much of a share as they need until they are sent.
pub fn hold(bytes: Bytes, share: Option<Share>) -> Bytes {
    match share {
        Some(mut share) if bytes.len() > SMALL => {
            drop(share.split(share.num_permits().saturating_sub(bytes.len().div_ceil(KIB))));
            bind(bytes, share)
        }
        _ => bytes,
    }
}

/// Returns bytes that hold a share for as long as any part of them is there: wherever they go, and
/// whether or not the client waits for that.
pub fn bind(bytes: Bytes, share: Share) -> Bytes {
    Bytes::from_owner(Held { bytes, _share: share })
}
