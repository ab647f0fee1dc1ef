//! The device by itself: a file whose space was written before, and how it takes durable writes.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use brooklet::io::{
    AlignedBuf, FileOptions, FileVolume, OpenMode, Persist, Rng, SECTOR, Volume, write_all_at,
};

use crate::outcome::{Done, Result};
use crate::peer::{Op, Peer};

pub const SETTING: &str = "a durable 4 KiB write for each append that is waited for; in bulk, the same bytes in durable \
    256 KiB writes, one after another";

/// Bytes of the file.
pub const BYTES: u64 = 64 << 20;

pub struct Device {
    volume: FileVolume,
    next: AtomicU64,
    sector: AlignedBuf,
}

/// Makes a file of [`BYTES`], filled with what does not compress.
pub fn file(path: &Path) -> Result<FileVolume> {
    let volume = FileVolume::open(path, OpenMode::Create, FileOptions::default())?;
    volume.grow(BYTES)?;
    let mut rng = Rng::new(1);
    let mut noise = AlignedBuf::zeroed(1 << 20);
    noise.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&rng.next().to_le_bytes()));
    for offset in (0..BYTES).step_by(noise.len()) {
        write_all_at(&volume, offset, &noise, Persist::Cached)?;
    }
    volume.flush()?;
    Ok(volume)
}

impl Device {
    pub fn open(dir: &Path) -> Result<Self> {
        let volume = file(&dir.join("device"))?;
        Ok(Self { volume, next: AtomicU64::new(0), sector: AlignedBuf::zeroed(SECTOR) })
    }
}

impl Peer for Device {
    fn wait(&self, _: Op) -> Result<()> {
        let offset = self.next.fetch_add(SECTOR as u64, Ordering::Relaxed) % BYTES;
        Ok(write_all_at(&self.volume, offset, &self.sector, Persist::Durable)?)
    }

    fn submit(&self, _: Op, _: Done) -> Result<()> {
        Err("the device calls nobody back".into())
    }

    fn all(&self, ops: &[Op]) -> Result<()> {
        let block = AlignedBuf::zeroed(256 << 10);
        let bytes: usize = ops.iter().map(|op| op.payload.len()).sum();
        for i in 0..bytes.div_ceil(block.len()) {
            let offset = (i * block.len()) as u64 % BYTES;
            write_all_at(&self.volume, offset, &block, Persist::Durable)?;
        }
        Ok(())
    }

    fn read(&self, _: u64, _: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        Err("nothing can be read back".into())
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
