//! Memory for many entries, in huge pages if the system has them: entries are read in no order, and
//! with small pages nearly each read would need an address look-up.

use std::ops::Deref;

use memmap2::MmapMut;

/// Size from which huge pages are requested, in bytes.
const HUGE: usize = 2 << 20;

/// A contiguous, appendable piece of memory.
#[derive(Debug)]
pub(crate) struct Arena {
    memory: Memory,
    len: usize,
}

#[derive(Debug)]
enum Memory {
    Heap(Vec<u8>),
    Mapped(MmapMut),
}

impl Default for Arena {
    fn default() -> Self {
        Arena { memory: Memory::Heap(Vec::new()), len: 0 }
    }
}

impl Arena {
    /// Creates an empty arena with room for `room` bytes; memory is used only as bytes are
    /// appended.
    pub fn with_room(room: usize) -> Self {
        let mapped = (room >= HUGE && !cfg!(miri)).then(|| MmapMut::map_anon(room.next_multiple_of(HUGE)));
        let memory = match mapped {
            Some(Ok(mapped)) => {
                // If the system has no huge pages, small pages are used.
                #[cfg(target_os = "linux")]
                let _ = mapped.advise(memmap2::Advice::HugePage);
                Memory::Mapped(mapped)
            }
            _ => Memory::Heap(vec![0; room]),
        };
        Arena { memory, len: 0 }
    }

    fn memory(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Heap(memory) => memory,
            Memory::Mapped(memory) => memory,
        }
    }

    /// Returns the bytes of memory that the arena may take.
    pub fn room(&self) -> usize {
        match &self.memory {
            Memory::Heap(memory) => memory.len(),
            Memory::Mapped(memory) => memory.len(),
        }
    }

    /// Makes sure that `more` more bytes have room.
    #[inline]
    pub fn reserve(&mut self, more: usize) {
        if self.len + more > self.room() {
            self.grow(more);
        }
    }

    #[cold]
    fn grow(&mut self, more: usize) {
        let mut grown = Arena::with_room((self.len + more).max(2 * self.len));
        grown.extend(self);
        *self = grown;
    }

    /// Appends bytes, for which there must be room.
    #[inline]
    pub fn extend(&mut self, data: &[u8]) {
        let end = self.len + data.len();
        let start = self.len;
        self.memory()[start..end].copy_from_slice(data);
        self.len = end;
    }

    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl Deref for Arena {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Heap(memory) => &memory[..self.len],
            Memory::Mapped(memory) => &memory[..self.len],
        }
    }
}
