//! What the fuzz targets share: inputs that get past checksums, and stores and logs to do harm to.
//!
//! A fuzzer does not guess a checksum. So a target takes something sound, lets the input write over
//! parts of it ([`Patch`]), and then makes the checksums anew ([`Seam`]) - or leaves them, where
//! the input says so: then whatever was changed must be noticed.

pub mod codex;
pub mod export;
pub mod log;
pub mod store;
#[cfg(feature = "services")]
pub mod wait;

use std::ops::Range;

use arbitrary::{Result, Unstructured};
use brooklet_io::SECTOR;
use brooklet_wal::Header;
use brooklet_wal::fuzzing::HEADER;

/// Takes what is left of the input as patches: offset (4 bytes), length (1 byte), bytes.
pub fn patches<'a>(input: &mut Unstructured<'a>, most: usize) -> Result<Vec<Patch<'a>>> {
    let mut patches = Vec::new();
    while input.len() > 5 && patches.len() < most {
        let at = u32::from_le_bytes(input.arbitrary()?) as usize;
        let len = usize::from(input.arbitrary::<u8>()?).min(input.len());
        patches.push(Patch { at, bytes: input.bytes(len)? });
    }
    Ok(patches)
}

/// Bytes to write over others.
#[derive(Clone, Copy, Debug)]
pub struct Patch<'a> {
    pub at: usize,
    pub bytes: &'a [u8],
}

impl Patch<'_> {
    /// Aims at what a checksum covers, where most of an image is not in use: bit 31 of `at` says
    /// that the other bits are an offset already; otherwise bits 16 to 30 choose a seam, and the
    /// others count from where that begins.
    pub fn aimed(self, image: &[u8], seams: &[Seam]) -> Self {
        let chosen = seams.get((self.at >> 16) % seams.len().max(1)).filter(|_| self.at >> 31 == 0);
        let Some(range) = chosen.and_then(|seam| seam.covers.bytes(image)) else {
            return Self { at: self.at & !(1 << 31), ..self };
        };
        // A little more than what is covered: the checksum itself stands there, and what comes
        // next.
        Self { at: range.start + (self.at & 0xffff) % (range.len() + 32), ..self }
    }

    /// Writes over `image`, at an offset taken round its end.
    pub fn apply(&self, image: &mut [u8]) {
        let at = self.at % image.len().max(1);
        let end = image.len().min(at + self.bytes.len());
        image[at..end].copy_from_slice(&self.bytes[..end - at]);
    }
}

/// A checksum in an image: of which bytes, and where it stands.
#[derive(Clone, Debug)]
pub struct Seam {
    pub covers: Cover,
    pub put: Vec<usize>,
}

/// The bytes under a checksum. Lengths and places that are written in the image are read there, so
/// that the sum is right for whatever they say by now.
#[derive(Clone, Debug)]
pub enum Cover {
    Bytes(Range<usize>),
    /// The frame that the pointer at `at` leads to, in a codex that starts at `base`.
    Frame {
        at: usize,
        base: usize,
    },
    /// The stored payload of the block whose header is at this place.
    Payload(usize),
}

impl Cover {
    /// Where the covered bytes are; `None` where the image says that they lie outside.
    fn bytes(&self, image: &[u8]) -> Option<Range<usize>> {
        let number = |at: usize, len: usize| {
            let mut bytes = [0; 8];
            bytes[..len].copy_from_slice(image.get(at..at + len)?);
            usize::try_from(u64::from_le_bytes(bytes)).ok()
        };
        let (start, len) = match self {
            Cover::Bytes(range) => (range.start, range.len()),
            Cover::Frame { at, base } => (base.checked_add(number(*at, 8)?)?, number(at + 8, 4)?),
            Cover::Payload(block) => (block + HEADER, number(block + 72, 4)?),
        };
        let end = start.checked_add(len).filter(|end| *end <= image.len())?;
        Some(start..end)
    }
}

/// Makes checksums anew, in the order given: what is covered first, what covers it after.
pub fn reseal(image: &mut [u8], seams: &[Seam]) {
    for seam in seams {
        let Some(range) = seam.covers.bytes(image) else { continue };
        let sum = brooklet_wal::checksum(&image[range]).to_le_bytes();
        for &at in &seam.put {
            image[at..at + 8].copy_from_slice(&sum);
        }
    }
}

/// The checksums of the blocks in a zone of an image, in the order of their numbers, with the chain
/// that names each in the next. Blocks of earlier laps are among them.
pub fn blocks(image: &[u8], zone: Range<usize>) -> Vec<Seam> {
    let mut found: Vec<(Header, u64, usize)> = zone
        .step_by(SECTOR)
        .filter_map(|at| Header::decode(&image[at..at + HEADER]).map(|(header, sum)| (header, sum, at)))
        .collect();
    found.sort_by_key(|(header, ..)| header.seq);
    let mut seams = Vec::new();
    for (n, (_, sum, at)) in found.iter().enumerate() {
        let next = found.get(n + 1).filter(|(next, ..)| next.previous == *sum);
        let put = [at + 88].into_iter().chain(next.map(|(.., next)| next + 56)).collect();
        seams.push(Seam { covers: Cover::Payload(*at), put: vec![at + 80] });
        seams.push(Seam { covers: Cover::Bytes(*at..at + 88), put });
    }
    seams
}
