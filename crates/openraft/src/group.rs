//! The two logs of a group, and checked reads of them.

use std::ops::RangeBounds;

use brooklet::{Bounds, ErrorKind, Store};
use openraft::{LogId, RaftLogId, RaftTypeConfig};
use serde::de::DeserializeOwned;

use crate::error::Cause;
use crate::format::{self, Undecodable, VERSION};

/// The end of the key of a group's log of entries.
pub(crate) const LOG: &[u8] = b"/log";

/// The end of the key of a group's state.
pub(crate) const STATE: &[u8] = b"/state";

/// A group in a store.
#[derive(Debug)]
pub(crate) struct Group {
    pub store: Store,
    /// Name of the group, in messages.
    pub name: String,
    /// Key of the log of entries.
    pub log: Vec<u8>,
    /// Key of the log that holds the state.
    pub state: Vec<u8>,
}

impl Group {
    pub fn new(store: &Store, name: &[u8]) -> Self {
        Self {
            store: store.clone(),
            name: name.escape_ascii().to_string(),
            log: [name, LOG].concat(),
            state: [name, STATE].concat(),
        }
    }

    /// Returns the cause for an error of the store.
    pub fn failed(&self, error: brooklet::Error) -> Cause {
        let group = self.name.clone();
        match error.kind() {
            ErrorKind::Conflict => Cause::OtherWriter { group, error },
            _ => Cause::Store { group, error },
        }
    }

    pub fn damaged(&self, what: impl Into<String>) -> Cause {
        Cause::Damaged { group: self.name.clone(), what: what.into() }
    }

    pub fn refused(&self, what: impl Into<String>) -> Cause {
        Cause::Refused { group: self.name.clone(), what: what.into() }
    }

    /// Returns the bounds of one of the logs, with all appended entries.
    pub fn bounds(&self, key: &[u8]) -> Result<Option<Bounds>, Cause> {
        self.store.bounds_appended(key).map_err(|error| self.failed(error))
    }

    /// Decodes the payload at `place`.
    pub fn decode<T: DeserializeOwned>(
        &self,
        payload: &[u8],
        place: impl Fn() -> String,
    ) -> Result<T, Cause> {
        format::decode(payload).map_err(|why| match why {
            Undecodable::Newer(found) => {
                Cause::NewerFormat { group: self.name.clone(), place: place(), found, known: VERSION }
            }
            Undecodable::Invalid(why) => self.damaged(format!("{} does not decode: {why}", place())),
        })
    }

    /// Returns the entries of a range that the log has, durable or not. Each entry has the index of
    /// its place. The call ends with the entry that reaches `max_bytes`.
    pub fn entries<C: RaftTypeConfig>(
        &self,
        range: impl RangeBounds<u64>,
        max_bytes: usize,
    ) -> Result<Vec<C::Entry>, Cause> {
        let stored = self.store.read_appended(&self.log, range).map_err(|error| self.failed(error))?;
        let mut entries = Vec::new();
        let mut bytes = 0;
        for stored in stored {
            let stored = stored.map_err(|error| self.failed(error))?;
            let entry: C::Entry = self.decode(&stored.payload, || format!("entry {}", stored.seq))?;
            let index = entry.get_log_id().index;
            if index != stored.seq {
                return Err(self.damaged(format!("entry {} has the Raft index {index}", stored.seq)));
            }
            entries.push(entry);
            bytes += stored.payload.len();
            if bytes >= max_bytes {
                break;
            }
        }
        Ok(entries)
    }

    /// Returns the id of an entry that the log must have.
    pub fn log_id<C: RaftTypeConfig>(&self, index: u64) -> Result<LogId<C::NodeId>, Cause> {
        let entries = self.entries::<C>(index..=index, usize::MAX)?;
        let entry = entries.first().ok_or_else(|| self.damaged(format!("entry {index} is missing")))?;
        Ok(entry.get_log_id().clone())
    }
}
