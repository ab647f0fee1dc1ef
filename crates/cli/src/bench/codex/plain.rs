//! What building a file is compared with: sorting alone, writing alone, and the plainest way that
//! does all of it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::thread;

use super::entries::{Entries, Numbers, Titles};
use crate::failure::Failure;

/// Entries of a segment, in the plain way.
const SEGMENT: usize = 1_000_000;

/// The keys, each with a number that goes with it, as two halves: of keys that begin with a 0, and
/// with a 1.
pub fn halves(entries: &Numbers) -> [Vec<(u128, u64)>; 2] {
    [false, true].map(|high| {
        let all = entries.keys().iter().map(|key| u128::from_be_bytes(*key)).zip(0..);
        all.filter(|(key, _)| (key >> 127 == 1) == high).collect()
    })
}

/// Sorts both by a thread each.
pub fn sort([low, high]: &mut [Vec<(u128, u64)>; 2]) {
    thread::scope(|scope| {
        scope.spawn(|| low.sort_unstable_by_key(|&(key, _)| key));
        high.sort_unstable_by_key(|&(key, _)| key);
    });
}

/// Writes so many bytes from front to back, and waits until they are on the medium.
pub fn write(path: &Path, mut bytes: u64) -> Result<(), Failure> {
    let (mut file, buffer) = (File::create(path)?, vec![0xa5; 1 << 20]);
    while bytes > 0 {
        let now = bytes.min(buffer.len() as u64);
        file.write_all(&buffer[..now as usize])?;
        bytes -= now;
    }
    Ok(file.sync_all()?)
}

/// Sorts and writes titles as the write-up does: segments of a million, each sorted by comparing
/// keys where they lie, in a thread while the next is taken in; at the end all are merged, entry by
/// entry.
pub fn segments(path: &Path, titles: &Titles) -> Result<(), Failure> {
    let sorted: Vec<Vec<u32>> = thread::scope(|scope| {
        let starts = (0..titles.len()).step_by(SEGMENT);
        let sorts = starts.map(|start| {
            let end = titles.len().min(start + SEGMENT);
            let mut places: Vec<u32> = (start as u32..end as u32).collect();
            scope.spawn(move || {
                places.sort_unstable_by(|&a, &b| titles.key(a as usize).cmp(titles.key(b as usize)));
                places
            })
        });
        // One at a time, beside the thread that takes in.
        sorts.map(|sort| sort.join().expect("sorting does not panic")).collect()
    });
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let first = |segment: usize| Reverse((titles.key(sorted[segment][0] as usize), segment, 0));
    let mut heads: BinaryHeap<_> = (0..sorted.len()).map(first).collect();
    while let Some(Reverse((key, segment, at))) = heads.pop() {
        let (_, value) = titles.get(sorted[segment][at] as usize);
        file.write_all(&(key.len() as u16).to_le_bytes())?;
        file.write_all(key)?;
        file.write_all(&value)?;
        if let Some(&next) = sorted[segment].get(at + 1) {
            heads.push(Reverse((titles.key(next as usize), segment, at + 1)));
        }
    }
    Ok(file.into_inner().map_err(|error| error.into_error())?.sync_all()?)
}
