//! Payloads in memory. They share the memory of the blocks of the log: a view of a thousand entries
//! refers to their blocks, each once, and not to a thousand payloads.

use bytes::Bytes;

/// The payloads of consecutive entries.
#[derive(Debug, Default)]
pub(crate) struct Payloads {
    blocks: Vec<Bytes>,
    places: Vec<Place>,
}

/// A range in a block.
#[derive(Clone, Copy, Debug)]
struct Place {
    block: u32,
    offset: u32,
    len: u32,
}

impl Payloads {
    pub fn with_capacity(count: usize) -> Self {
        Self { blocks: Vec::new(), places: Vec::with_capacity(count) }
    }

    /// Adds a block, which the payloads that follow are in.
    pub fn add_block(&mut self, block: Bytes) {
        self.blocks.push(block);
    }

    /// Adds a payload: a range of the last block.
    pub fn add(&mut self, offset: u32, len: u32) {
        let block = self.blocks.len() as u32 - 1;
        self.places.push(Place { block, offset, len });
    }

    /// Returns a payload.
    pub fn bytes(&self, index: usize) -> &[u8] {
        let Place { block, offset, len } = self.places[index];
        &self.blocks[block as usize][offset as usize..][..len as usize]
    }

    /// Returns a payload that keeps its block in memory.
    pub fn shared(&self, index: usize) -> Bytes {
        let Place { block, offset, len } = self.places[index];
        let start = offset as usize;
        self.blocks[block as usize].slice(start..start + len as usize)
    }
}

impl From<Vec<Bytes>> for Payloads {
    /// Takes payloads that have memory of their own.
    fn from(blocks: Vec<Bytes>) -> Self {
        let place = |(block, payload): (u32, &Bytes)| {
            let len = payload.len().try_into().expect("a payload has less than 4 GiB");
            Place { block, offset: 0, len }
        };
        let places = (0..).zip(&blocks).map(place).collect();
        Self { blocks, places }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_found_in_their_blocks() {
        let mut payloads = Payloads::with_capacity(3);
        let block = Bytes::from_static(b"abcdef");
        payloads.add_block(block.clone());
        payloads.add(1, 2);
        payloads.add(6, 0);
        payloads.add_block(Bytes::from_static(b"xyz"));
        payloads.add(0, 3);
        let found: Vec<&[u8]> = (0..3).map(|index| payloads.bytes(index)).collect();
        assert_eq!(found, [&b"bc"[..], b"", b"xyz"]);
        assert!((0..3).all(|index| payloads.shared(index) == found[index]));
        assert_eq!(payloads.shared(0).as_ptr(), block[1..].as_ptr(), "it is no copy");

        let payloads = Payloads::from(vec![Bytes::from_static(b"one"), Bytes::new()]);
        assert_eq!([payloads.bytes(0), payloads.bytes(1)], [&b"one"[..], b""]);
    }
}
