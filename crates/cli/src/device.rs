//! The device by itself: a plain file whose space was written before, and how it takes durable
//! writes. Whatever the store is compared with stands on this.

use std::path::Path;

use brooklet::io::{
    AlignedBuf, FileOptions, FileVolume, OpenMode, Persist, Rng, SECTOR, Volume, write_all_at,
};

use crate::failure::Failure;

/// A plain file beside the store.
pub struct Device {
    pub volume: FileVolume,
    bytes: u64,
    next: u64,
    sector: AlignedBuf,
}

impl Device {
    /// Makes the file, `bytes` long (a multiple of 1 MiB), filled with what does not compress.
    pub fn new(path: &Path, bytes: u64) -> Result<Self, Failure> {
        let volume = FileVolume::open(path, OpenMode::Create, FileOptions::default())?;
        volume.grow(bytes)?;
        let mut rng = Rng::new(1);
        let mut noise = AlignedBuf::zeroed(1 << 20);
        noise.chunks_exact_mut(8).for_each(|c| c.copy_from_slice(&rng.next().to_le_bytes()));
        for offset in (0..bytes).step_by(noise.len()) {
            write_all_at(&volume, offset, &noise, Persist::Cached)?;
        }
        volume.flush()?;
        Ok(Self { volume, bytes, next: 0, sector: AlignedBuf::zeroed(SECTOR) })
    }

    /// Writes the next 4 KiB durably.
    pub fn write(&mut self) -> Result<(), Failure> {
        write_all_at(&self.volume, self.next, &self.sector, Persist::Durable)?;
        self.next = (self.next + SECTOR as u64) % self.bytes;
        Ok(())
    }
}
