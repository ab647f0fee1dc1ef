//! A vector that grows in bounded steps: in chunks that stay where they are. A vector in one piece
//! moves all of its values now and then, if the allocator cannot extend its memory.

use std::ops::{Index, IndexMut};

/// Number of values of a chunk.
const CHUNK: usize = 1024;

/// Values in the order in which they were pushed.
#[derive(Debug)]
pub(crate) struct Chunks<T> {
    /// All chunks but the last are full. The first grows as vectors do, so that few values take
    /// little memory.
    chunks: Vec<Vec<T>>,
}

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

impl<T> Chunks<T> {
    pub fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len())
    }

    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub fn get(&self, i: usize) -> Option<&T> {
        self.chunks.get(i / CHUNK)?.get(i % CHUNK)
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }

    pub fn push(&mut self, value: T) {
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK => last.push(value),
            last => {
                let mut chunk = if last.is_some() { Vec::with_capacity(CHUNK) } else { Vec::new() };
                chunk.push(value);
                self.chunks.push(chunk);
            }
        }
    }

    /// Removes and returns the last value. Frees the memory of a chunk with its last value.
    pub fn pop(&mut self) -> Option<T> {
        let last = self.chunks.last_mut()?;
        let value = last.pop();
        if last.is_empty() {
            self.chunks.pop();
        }
        value
    }
}

impl<T> Index<usize> for Chunks<T> {
    type Output = T;

    fn index(&self, i: usize) -> &T {
        &self.chunks[i / CHUNK][i % CHUNK]
    }
}

impl<T> IndexMut<usize> for Chunks<T> {
    fn index_mut(&mut self, i: usize) -> &mut T {
        &mut self.chunks[i / CHUNK][i % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_hold_the_values_of_a_vector() {
        let (mut chunks, mut vec) = (Chunks::default(), Vec::new());
        let check = |chunks: &Chunks<usize>, vec: &[usize]| {
            assert_eq!((chunks.len(), chunks.is_empty()), (vec.len(), vec.is_empty()));
            assert!(chunks.iter().eq(vec));
            assert_eq!(chunks.get(vec.len()), None);
            assert_eq!(chunks.get(vec.len() / 2), vec.get(vec.len() / 2));
        };
        for value in 0..3 * CHUNK + 7 {
            chunks.push(value);
            vec.push(value);
            if value % (CHUNK / 2) < 2 || value < 9 {
                check(&chunks, &vec);
            }
        }
        chunks[CHUNK] = 0;
        vec[CHUNK] = 0;
        check(&chunks, &vec);
        while let Some(value) = vec.pop() {
            assert_eq!(chunks.pop(), Some(value));
            if value % (CHUNK / 2) < 2 {
                check(&chunks, &vec);
            }
        }
        assert_eq!((chunks.pop(), chunks.chunks.len()), (None, 0));
    }

    #[test]
    fn only_values_of_the_first_chunk_move() {
        let mut chunks = Chunks::default();
        (0..CHUNK).for_each(|value| chunks.push(value));
        let at =
            |chunks: &Chunks<usize>| -> Vec<_> { chunks.iter().map(|value| &raw const *value).collect() };
        let mut before = at(&chunks);
        for value in CHUNK..5 * CHUNK {
            chunks.push(value);
            if value % 100 == 0 {
                let now = at(&chunks);
                assert!(now.starts_with(&before), "values moved before value {value}");
                before = now;
            }
        }
    }
}
