//! The bytes of an entry and of the state of a group.
//!
//! Each payload is a byte with the format's version, then one MessagePack value. Structs are maps
//! with the names of their fields, so that a field with a default may be added later.
//!
//! An entry of the log `<group>/log` holds the whole Raft entry. Its number is the Raft index. The
//! log `<group>/state` has exactly one entry, which holds a [`GroupState`].

use openraft::{LogId, NodeId, Vote};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The version that this module writes, and the newest one that it reads.
pub(crate) const VERSION: u8 = 1;

/// Everything that a group keeps outside of its entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound = "")]
pub(crate) struct GroupState<N: NodeId> {
    /// The last saved vote.
    pub vote: Option<Vote<N>>,
    /// The last saved id of a committed entry.
    pub committed: Option<LogId<N>>,
    /// The id of the last purged entry. The log begins at the next index.
    pub last_purged: Option<LogId<N>>,
}

impl<N: NodeId> Default for GroupState<N> {
    fn default() -> Self {
        Self { vote: None, committed: None, last_purged: None }
    }
}

/// The reason why bytes do not decode.
#[derive(Debug)]
pub(crate) enum Undecodable {
    /// A later version wrote the bytes.
    Newer(u8),
    /// The bytes are not valid in their version.
    Invalid(String),
}

/// Encodes a value.
pub(crate) fn encode(value: &impl Serialize) -> Result<Vec<u8>, String> {
    let mut bytes = vec![VERSION];
    rmp_serde::encode::write_named(&mut bytes, value).map_err(|error| error.to_string())?;
    Ok(bytes)
}

/// Decodes a value. Bytes behind the value are an error.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Undecodable> {
    match bytes.split_first() {
        Some((&VERSION, mut rest)) => {
            let value = rmp_serde::decode::from_read(&mut rest)
                .map_err(|error| Undecodable::Invalid(error.to_string()))?;
            if rest.is_empty() {
                return Ok(value);
            }
            Err(Undecodable::Invalid(format!("{} bytes follow its value", rest.len())))
        }
        Some((&found, _)) if found > VERSION => Err(Undecodable::Newer(found)),
        Some((found, _)) => Err(Undecodable::Invalid(format!("format {found} does not exist"))),
        None => Err(Undecodable::Invalid("it is empty".into())),
    }
}
