//! Readers of the entries of a group.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

use openraft::{ErrorSubject, ErrorVerb, OptionalSend, RaftLogReader, RaftTypeConfig, StorageError};

use crate::group::Group;

/// Number of bytes after which a limited read ends.
const MAX_BYTES: usize = 1 << 20;

/// A reader of the entries of one Raft group. Clones are cheap.
///
/// A reader returns an entry as soon as it is appended, durable or not, as openraft expects it. A
/// read takes entries from memory, or waits for a read of the volume.
///
/// A limited read (`limited_get_log_entries`) ends with the entry that reaches 1 MiB.
#[derive(Clone, Debug)]
pub struct LogReader<C: RaftTypeConfig> {
    group: Arc<Group>,
    config: PhantomData<C>,
}

impl<C: RaftTypeConfig> LogReader<C> {
    pub(crate) fn new(group: &Arc<Group>) -> Self {
        Self { group: group.clone(), config: PhantomData }
    }
}

impl<C: RaftTypeConfig> RaftLogReader<C> for LogReader<C> {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
        let read = self.group.entries::<C>(range, usize::MAX);
        read.map_err(|cause| cause.at(ErrorSubject::Logs, ErrorVerb::Read))
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
        let read = self.group.entries::<C>(start..end, MAX_BYTES);
        read.map_err(|cause| cause.at(ErrorSubject::Logs, ErrorVerb::Read))
    }
}
