//! The content of a ring record of a [`Log`](crate::Log).
//!
//! ```text
//! offset
//!      0 1 kind      0 one record: the rest is its bytes
//!                    1 a batch: the rest is the length (varint) and the bytes of each of its records
//! ```
//!
//! The LSN of a record is the log position at which its ring record starts, including the length.
//! The first record of a batch has that position as its LSN; each further record has an LSN that is
//! 1 greater. A ring record has more bytes than its batch has records, so no two records share an
//! LSN. A batch is a single ring record, so it is recovered whole or not at all.

use std::collections::VecDeque;

use bytes::Bytes;

use super::Lsn;
use crate::format::{Records, put_varint};

pub(crate) const ONE: u8 = 0;
const BATCH: u8 = 1;

/// Bytes that a record needs in the ring in addition to its content.
pub(crate) const KIND: usize = 1;

/// Returns the size of a batch in the ring, in bytes; `None` if the sum overflows.
pub(crate) fn batch_len(records: &[&[u8]]) -> Option<usize> {
    records.iter().try_fold(KIND, |sum, record| {
        let mut len = 0;
        put_varint(&mut |bytes| len += bytes.len(), record.len() as u64);
        sum.checked_add(len)?.checked_add(record.len())
    })
}

pub(crate) fn encode_batch(out: &mut dyn FnMut(&[u8]), records: &[&[u8]]) {
    out(&[BATCH]);
    for record in records {
        put_varint(&mut |bytes| out(bytes), record.len() as u64);
        out(record);
    }
}

/// Appends the records of a block that starts at `lsn` to `out`.
///
/// # Errors
/// The flaw of the first malformed record, and its LSN.
pub(crate) fn decode(
    lsn: u64,
    block: &Bytes,
    out: &mut VecDeque<(Lsn, Bytes)>,
) -> Result<(), (u64, &'static str)> {
    let mut at = lsn;
    for record in Records::new(block) {
        let (offset, record) = record.ok_or((at, "the records are malformed"))?;
        let rest = record.get(KIND..).unwrap_or_default();
        match record.first() {
            Some(&ONE) => out.push_back((Lsn(at), block.slice_ref(rest))),
            Some(&BATCH) => {
                for (lsn, record) in (at..).zip(Records::new(rest)) {
                    let (_, record) = record.ok_or((at, "a batch is malformed"))?;
                    out.push_back((Lsn(lsn), block.slice_ref(record)));
                }
            }
            _ => return Err((at, "a record is of an unknown kind")),
        }
        at = lsn + (offset + record.len()) as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(records: &[&[u8]]) -> Bytes {
        let mut payload = Vec::new();
        for record in records {
            put_varint(&mut |bytes| payload.extend_from_slice(bytes), record.len() as u64);
            payload.extend_from_slice(record);
        }
        payload.into()
    }

    #[test]
    fn records_and_batches_come_back_each_with_an_lsn_of_its_own() {
        let mut batch = Vec::new();
        let parts: [&[u8]; 4] = [b"", b"b", b"", &[7; 300]];
        encode_batch(&mut |bytes| batch.extend_from_slice(bytes), &parts);
        assert_eq!(batch.len(), batch_len(&parts).unwrap());
        let one = [ONE];
        let mut out = VecDeque::new();
        decode(100, &block(&[&one, &batch, &[BATCH], &one]), &mut out).unwrap();
        let lsns: Vec<u64> = out.iter().map(|(lsn, _)| lsn.0).collect();
        let behind = 102 + 2 + batch.len() as u64 + 2;
        assert_eq!(lsns, [100, 102, 103, 104, 105, behind]);
        assert!(out.iter().skip(1).zip(parts).all(|((_, got), part)| got == part));
    }

    #[test]
    fn what_is_malformed_is_named() {
        let mut out = VecDeque::new();
        assert_eq!(decode(5, &block(&[&[ONE], &[2]]), &mut out), Err((7, "a record is of an unknown kind")));
        assert_eq!(decode(5, &block(&[&[]]), &mut out), Err((5, "a record is of an unknown kind")));
        assert_eq!(decode(5, &block(&[&[BATCH, 9, 1]]), &mut out), Err((5, "a batch is malformed")));
    }
}
