//! Data blocks that one thread reads and decodes for a cursor of another thread.

use std::fmt;

use crate::block::Block;

/// A decoded data block of a codex; see [`Cursor::block`](crate::Cursor::block). Cheap to clone.
#[derive(Clone, Debug)]
pub struct DataBlock {
    /// The checksum of the codex's footer, which identifies the codex.
    pub(crate) footer_sum: u64,
    pub(crate) block: Block,
}

impl DataBlock {
    /// Returns the byte offset of the block in the codex. Later keys are in blocks at higher
    /// offsets.
    pub fn offset(&self) -> u64 {
        self.block.at()
    }

    /// Returns the bytes of memory that the block holds.
    pub fn memory(&self) -> usize {
        self.block.memory()
    }
}

/// Data blocks for a cursor, decoded beforehand; see
/// [`Cursor::prefetch`](crate::Cursor::prefetch).
pub trait Prefetch: Send + Sync {
    /// Returns the block at an offset of the codex. May wait for it. `None`: the cursor reads the
    /// block itself.
    fn take(&mut self, offset: u64) -> Option<DataBlock>;
}

/// The prefetched blocks of a cursor.
#[derive(Default)]
pub(crate) struct Prefetched(pub Option<Box<dyn Prefetch>>);

impl Prefetched {
    /// Returns the block at an offset, if it is of the codex with this checksum.
    pub fn take(&mut self, footer_sum: u64, offset: u64) -> Option<Block> {
        let found = self.0.as_mut()?.take(offset)?;
        (found.footer_sum == footer_sum && found.offset() == offset).then_some(found.block)
    }
}

impl fmt::Debug for Prefetched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Prefetched" } else { "None" })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::{Builder, BuilderOptions, Error, Reader};

    struct Given(VecDeque<DataBlock>, Arc<std::sync::atomic::AtomicU64>);

    impl Prefetch for Given {
        fn take(&mut self, offset: u64) -> Option<DataBlock> {
            while self.0.front()?.offset() < offset {
                self.0.pop_front();
            }
            let found = self.0.pop_front_if(|block| block.offset() == offset);
            self.1.fetch_add(u64::from(found.is_some()), std::sync::atomic::Ordering::Relaxed);
            found
        }
    }

    fn file(value: u8) -> Bytes {
        let options = BuilderOptions { block_size: 512, ..BuilderOptions::default() };
        let mut builder = Builder::new(Vec::new(), options);
        for n in 0..1000u32 {
            builder.add(&n.to_be_bytes(), &[value; 9]).unwrap();
        }
        builder.finish().unwrap().1.into()
    }

    fn blocks(reader: &Reader<Bytes>) -> VecDeque<DataBlock> {
        let (mut cursor, mut blocks) = (reader.cursor(), VecDeque::new());
        let mut more = cursor.seek_first().unwrap();
        while more {
            blocks.push_back(cursor.block().unwrap());
            more = cursor.skip_block().unwrap();
        }
        assert!(cursor.block().is_none() && !cursor.valid());
        blocks
    }

    #[test]
    fn a_cursor_takes_the_blocks_of_its_codex_only() {
        let open = |file: &Bytes| Reader::open(file.clone(), file.len() as u64, None).unwrap();
        let (one, other) = (open(&file(1)), open(&file(2)));
        let all = blocks(&one);
        assert_eq!(all.len() as u64, one.blocks());
        assert!(all.iter().zip(all.iter().skip(1)).all(|(a, b)| a.offset() < b.offset() && a.memory() > 0));
        for (reader, value, taken) in [(&one, 1, all.len() as u64), (&other, 2, 0)] {
            let count = Arc::<std::sync::atomic::AtomicU64>::default();
            let mut cursor = reader.cursor();
            cursor.prefetch(Box::new(Given(all.clone(), count.clone())));
            for n in 0..1000u32 {
                assert!(cursor.next().unwrap());
                assert_eq!(
                    (cursor.key(), &cursor.value().unwrap()[..]),
                    (&n.to_be_bytes()[..], &[value; 9][..])
                );
            }
            assert!(!cursor.next().unwrap());
            // The blocks of another codex are offered, and the cursor reads its own.
            assert!(taken == 0 || count.load(std::sync::atomic::Ordering::Relaxed) == taken);
        }
    }

    #[test]
    fn skipping_blocks_moves_to_their_first_entries() {
        let file = file(1);
        let reader = Reader::open(file.clone(), file.len() as u64, None).unwrap();
        let mut cursor = reader.cursor();
        assert!(cursor.skip_block().unwrap(), "from before the first entry to the first");
        let mut last = 0u32.to_be_bytes().to_vec();
        assert_eq!(cursor.key(), last);
        while cursor.skip_block().unwrap() {
            assert!(cursor.key() > last.as_slice());
            last = cursor.key().to_vec();
            assert!(cursor.prev().unwrap() && cursor.next().unwrap() && cursor.key() == last);
        }
        assert!(!cursor.skip_block().unwrap());
        cursor.next_block(b"x").unwrap();
        assert!(matches!(cursor.skip_block(), Err(Error::Lost)));
    }
}
