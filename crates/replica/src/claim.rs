//! A claim: the owner of an epoch.
//!
//! ```text
//! claim (little endian), `claims/<epoch, 20 digits>`
//!    0  8  "BRKCLAIM"
//!    8  4  version: 1
//!   12  4  0
//!   16 16  id of the store
//!   32  8  epoch
//!   40 16  number that was drawn for the claim
//!   56  …  each with its length in 4 bytes before it, at most 4096: name of the owner, address of the owner
//!   then 8 XXH3-64 of all before
//! ```
//!
//! The address is where clients and followers reach the owner; it may be empty.

use bytes::Bytes;

use crate::fields::{Defect, Reading, Writing};
use crate::place::{Epoch, StoreId, Writer};

const MAGIC: &[u8; 8] = b"BRKCLAIM";

/// The claim of an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The owner's identity.
    pub writer: Writer,
    /// Name of the owner, for people.
    pub owner: String,
    /// Address of the owner, for clients.
    pub address: String,
}

impl Claim {
    /// Returns the name of the claim's object.
    pub fn name(epoch: Epoch) -> String {
        format!("claims/{:020}", epoch.0)
    }

    /// Returns the claim as bytes.
    pub fn encode(&self) -> Bytes {
        let Writer { store, epoch, drawn } = self.writer;
        let fields = Writing::begin(MAGIC, [0; 4], store).number(epoch.0).drawn(drawn);
        fields.text(&self.owner).text(&self.address).end().into()
    }

    /// Returns the store of a claim, if the bytes begin as one.
    pub fn store(data: &[u8]) -> Option<StoreId> {
        let id = data.strip_prefix(MAGIC)?.get(8..24)?;
        Some(StoreId(u128::from_le_bytes(id.try_into().ok()?)))
    }

    /// Reads the claim of an epoch.
    ///
    /// # Errors
    /// A [`Defect`] if the bytes are not whole, or not of this store and epoch.
    pub fn decode(store: StoreId, epoch: Epoch, data: &[u8]) -> Result<Self, Defect> {
        let (mut fields, _) = Reading::begin(data, MAGIC, store)?;
        if fields.number()? != epoch.0 {
            return Err("it is the claim of another epoch".into());
        }
        let drawn = fields.drawn()?;
        let (owner, address) = (fields.text()?, fields.text()?);
        fields.end()?;
        Ok(Self { writer: Writer { store, epoch, drawn }, owner, address })
    }
}
