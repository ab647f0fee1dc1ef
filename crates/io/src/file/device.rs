//! The properties of a block device: its size and the sizes of its blocks.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use super::inner::FileInner;
use crate::{AlignedBuf, BlockDevice, SECTOR};

/// Describes the block device `file`, if it is one, and refuses a device that cannot hold a volume.
pub(super) fn describe(file: &File, path: &Path) -> io::Result<Option<BlockDevice>> {
    if !file.metadata()?.file_type().is_block_device() {
        return Ok(None);
    }
    let device = blocks(file)?;
    check(device, path)?;
    Ok(Some(device))
}

/// Refuses a device whose logical block is larger than a sector of a volume.
fn check(device: BlockDevice, path: &Path) -> io::Result<()> {
    if device.logical_block as usize <= SECTOR {
        return Ok(());
    }
    let message = format!(
        "{} has logical blocks of {} bytes; a volume writes {SECTOR} bytes at a time and needs blocks of at most that",
        path.display(),
        device.logical_block,
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

impl FileInner {
    /// Writes zeros behind the last whole sector of a device, in the device's blocks. The store's
    /// files have no such rest.
    pub(super) fn zero_rest(&self) -> io::Result<()> {
        let Some(BlockDevice { logical_block, .. }) = self.device else { return Ok(()) };
        self.check_writable()?;
        let whole = |unit: u64| self.size() / unit * unit;
        let (start, end) = (whole(SECTOR as u64), whole(logical_block.into()));
        let zeros = AlignedBuf::zeroed(SECTOR);
        let mut at = start;
        while at < end {
            match self.write(at, &zeros[..(end - at) as usize])? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                n => at += n as u64,
            }
        }
        Ok(())
    }
}

#[cfg(target_os = "linux")]
fn blocks(file: &File) -> io::Result<BlockDevice> {
    Ok(BlockDevice {
        logical_block: rustix::fs::ioctl_blksszget(file)?,
        physical_block: rustix::fs::ioctl_blkpbszget(file)?,
    })
}

#[cfg(not(target_os = "linux"))]
fn blocks(_file: &File) -> io::Result<BlockDevice> {
    Ok(BlockDevice { logical_block: SECTOR as u32, physical_block: SECTOR as u32 })
}

/// Returns the size in bytes of a file or of a device, whose metadata says zero.
pub(super) fn size(file: &mut File, is_device: bool) -> io::Result<u64> {
    if is_device { device_size(file) } else { Ok(file.metadata()?.len()) }
}

#[cfg(target_os = "linux")]
fn device_size(file: &mut File) -> io::Result<u64> {
    use rustix::ioctl::{Getter, Opcode, ioctl, opcode};

    /// `BLKGETSIZE64` of `linux/fs.h`. The opcode is defined by a `size_t`, although the kernel
    /// writes a u64.
    const OPCODE: Opcode = opcode::read::<usize>(0x12, 114);
    // SAFETY: for this opcode, the kernel writes exactly one u64, on every architecture.
    let getter = unsafe { Getter::<OPCODE, u64>::new() };
    // SAFETY: the getter owns the memory that the kernel writes to, and outlives the call.
    Ok(unsafe { ioctl(&*file, getter) }?)
}

#[cfg(not(target_os = "linux"))]
fn device_size(file: &mut File) -> io::Result<u64> {
    io::Seek::seek(file, io::SeekFrom::End(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_larger_than_a_sector_are_refused() {
        let check = |logical_block| {
            check(BlockDevice { logical_block, physical_block: 16384 }, Path::new("/dev/large"))
        };
        for logical_block in [512, 4096] {
            check(logical_block).unwrap();
        }
        let error = check(16384).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let message = error.to_string();
        assert!(["/dev/large", "16384", "4096"].iter().all(|part| message.contains(part)), "{message}");
    }
}
