//! The note of a log in a run: the log's bounds in four bytes. One page of the run answers whether
//! the log is there and where it ends, without its head.
//!
//! ```text
//! 0              no statement: the head has the bounds
//! 1              the log is deleted
//! 2 ..= 2^31-1   the log begins at 0, and its next entry is the note - 2
//! 2^31 ..        bits 11 to 30: the first entry; bits 0 to 10: the number of entries
//! ```
//!
//! A log with larger numbers, or with a retention, has a note without a statement.

use brooklet_io::seeded::bug;

use crate::format::run_entry::head_piece;
use crate::model::Bounds;

const NONE: u32 = 0;
const DELETED: u32 = 1;
const LEAST: u32 = 2;
const HAS_FIRST: u32 = 1 << 31;
/// Bits of the number of entries, and of the first entry, of a log that does not begin at 0.
const LEN_BITS: u32 = 11;
const FIRST_BITS: u32 = 20;

/// Returns the note of a log from its encoded head.
pub(crate) fn of_head(head: &[u8]) -> u32 {
    match head_piece(&mut &head[..]) {
        Some((piece, None)) => encode(piece.bounds),
        _ => NONE,
    }
}

fn encode(bounds: Option<Bounds>) -> u32 {
    let Some(Bounds { first, next }) = bounds else { return DELETED };
    let next = if bug("note-forgets-an-entry") && next > first { next - 1 } else { next };
    let len = next - first;
    if first == 0 && next < u64::from(HAS_FIRST - LEAST) {
        next as u32 + LEAST
    } else if first < 1 << FIRST_BITS && len < 1 << LEN_BITS {
        HAS_FIRST | (first as u32) << LEN_BITS | len as u32
    } else {
        NONE
    }
}

/// Returns the bounds of a log by its note, or `None` for a deleted log. Returns `Err` if only the
/// head has the bounds.
pub(crate) fn decode(note: u32) -> Result<Option<Bounds>, NoStatement> {
    match note {
        NONE => Err(NoStatement),
        DELETED => Ok(None),
        _ if note & HAS_FIRST == 0 => Ok(Some(Bounds { first: 0, next: u64::from(note - LEAST) })),
        _ => {
            let first = u64::from((note & !HAS_FIRST) >> LEN_BITS);
            Ok(Some(Bounds { first, next: first + u64::from(note & ((1 << LEN_BITS) - 1)) }))
        }
    }
}

/// The note makes no statement about the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoStatement;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_states_the_bounds_or_nothing() {
        let edges =
            [0, 1, 2, 2_047, 2_048, (1 << 20) - 1, 1 << 20, (1 << 31) - 3, (1 << 31) - 2, u64::MAX - 1];
        let mut stated = 0;
        for first in edges {
            for len in edges {
                let Some(next) = first.checked_add(len) else { continue };
                let bounds = Some(Bounds { first, next });
                let decoded = decode(encode(bounds));
                assert!(decoded == Ok(bounds) || decoded == Err(NoStatement), "{bounds:?}: {decoded:?}");
                stated += u32::from(decoded.is_ok());
            }
        }
        // 8 lengths from 0 on, and 4 lengths from each of 5 other numbers.
        assert_eq!(stated, 8 + 5 * 4);
        assert_eq!(decode(encode(None)), Ok(None));
    }
}
