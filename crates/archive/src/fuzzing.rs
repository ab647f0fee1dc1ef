//! Private functions for the fuzz targets.

use crate::note::Memory;

/// Reads a note, and returns its text as the crate would write it again.
pub fn note(text: &str) -> Option<String> {
    Memory::decode(text).map(|memory| memory.encode())
}
