//! A small codex to do harm to.

use arbitrary::{Result, Unstructured};
use brooklet_codex::fuzzing::{FOOTER, pages, pointers};
use brooklet_codex::{Builder, BuilderOptions, key_hash};

use crate::{Cover, Seam};

/// A codex, what is in it, and where its checksums are.
#[derive(Debug)]
pub struct Sample {
    pub file: Vec<u8>,
    pub entries: Vec<(Vec<u8>, Vec<u8>)>,
    pub footer_sum: u64,
    pub seams: Vec<Seam>,
}

/// Builds a codex of some shape: three bytes of the input choose the number of entries,
/// their size, the blocks, and whether there are notes.
pub fn sample(input: &mut Unstructured<'_>) -> Result<Sample> {
    let [count, shape, blocks]: [u8; 3] = input.arbitrary()?;
    let stride = usize::from(shape >> 4);
    let block_size = 64 << (blocks & 7);
    // Uncompressed, so that pointers have places of their own, and a frame's head says how the rest
    // is read anyway.
    let bits_per_item = u32::from(blocks >> 4);
    let apart_from = if blocks & 8 == 0 { usize::MAX } else { 40 };
    let options =
        BuilderOptions { block_size, compress: false, bits_per_item, filter_seed: 3, id: 7, apart_from };
    let mut builder = Builder::new(Vec::new(), options);
    let mut entries = Vec::new();
    for n in 0..count % 128 {
        let key = [&b"brook/"[..usize::from(shape & 3)], &[n], &vec![n; stride]].concat();
        let value = vec![!n; usize::from(n % 7) * stride];
        if count & 128 == 0 {
            builder.add_filter(u64::from(n));
        } else {
            builder.add_note(u64::from(n), note_hash(&key), u32::from(n));
        }
        builder.add(&key, &value).expect("keys ascend");
        entries.push((key, value));
    }
    let metadata = vec![1; usize::from(shape >> 2 & 3)];
    let (summary, file) = builder.finish_with(&metadata).expect("memory takes writes");
    let seams = seams(&file, 0, vec![file.len() - 8]).expect("nothing is compressed");
    Ok(Sample { file, entries, footer_sum: summary.footer_sum, seams })
}

/// The hash of a key for its note.
pub fn note_hash(key: &[u8]) -> u128 {
    u128::from(key_hash(1, key)) << 64 | u128::from(key_hash(2, key))
}

/// The checksums of the codex `file` that lies at `base` of an image; `footer` tells where the
/// footer's own stands.
pub fn seams(file: &[u8], base: usize, footer: Vec<usize>) -> Option<Vec<Seam>> {
    let mut seams = Vec::new();
    for (page, sum) in pages(file)? {
        seams.push(Seam { covers: Cover::Bytes(base + page.start..base + page.end), put: vec![base + sum] });
    }
    for pointer in pointers(file)? {
        let at = base + pointer.start;
        seams.push(Seam { covers: Cover::Frame { at, base }, put: vec![at + 12] });
    }
    let end = base + file.len();
    seams.push(Seam { covers: Cover::Bytes(end - FOOTER..end - 8), put: footer });
    Some(seams)
}
