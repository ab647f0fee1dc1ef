//! Names, opening and locks.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::OpenMode;
use super::inner::retry;

/// Opens and locks the file; where it was made, its name is durable.
pub(super) fn open(path: &Path, mode: OpenMode) -> io::Result<File> {
    let file = open_file(path, mode)?;
    lock_file(&file, mode)?;
    if mode == OpenMode::Create {
        sync_parent(path)?;
    }
    Ok(file)
}

fn open_file(path: &Path, mode: OpenMode) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(mode != OpenMode::ReadOnly).create_new(mode == OpenMode::Create);
    if mode != OpenMode::Create {
        // Before the open: opening a pipe waits, and opening a tape or a terminal has effects.
        let kind = fs::metadata(path)?.file_type();
        if kind.is_dir() {
            let message = format!("{} is a directory", path.display());
            return Err(io::Error::new(io::ErrorKind::IsADirectory, message));
        }
        if !kind.is_file() && !kind.is_block_device() {
            let message = format!("{} is neither a file nor a block device", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        if kind.is_block_device() && mode == OpenMode::ReadWrite && cfg!(target_os = "linux") {
            // Makes Linux refuse a device that is mounted or otherwise claimed.
            options.custom_flags(OFlags::EXCL.bits() as i32);
        }
    }
    options.open(path).map_err(|e| match Errno::from_io_error(&e) {
        Some(Errno::BUSY) => {
            let message = format!(
                "{} is mounted or in use, as a whole or in part: unmount it, or stop what uses it",
                path.display()
            );
            io::Error::new(io::ErrorKind::ResourceBusy, message)
        }
        _ => e,
    })
}

fn lock_file(file: &File, mode: OpenMode) -> io::Result<()> {
    let locked = if mode == OpenMode::ReadOnly { file.try_lock_shared() } else { file.try_lock() };
    locked.map_err(|e| match e {
        TryLockError::WouldBlock => {
            io::Error::new(io::ErrorKind::ResourceBusy, "the volume is open elsewhere")
        }
        TryLockError::Error(e) => e,
    })
}

/// Makes the new name of a file durable.
fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

/// Gives the file `draft` the name `path`, durably, unless something has that name; then it is `false`, and `draft`
/// stays.
pub fn publish(draft: &Path, path: &Path) -> io::Result<bool> {
    match fs::hard_link(draft, path) {
        Ok(()) => fs::remove_file(draft)?,
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
        // Without links, two who create the same store at the same moment are not told apart.
        Err(e) if matches!(e.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied) => {
            fs::rename(draft, path)?;
        }
        Err(e) => return Err(e),
    }
    sync_parent(path)?;
    Ok(true)
}

/// Whether a process of this number exists, as far as this process may know.
pub fn process_exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(Errno::SRCH))
}

/// Reads up to `len` bytes at `offset`, fewer at the end, through the page cache and past any lock.
///
/// For looking at a volume that someone else has open, such as for the name of its holder. Needs no alignment.
pub fn read_unlocked(path: &Path, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut data = vec![0; len];
    let mut done = 0;
    while done < len {
        match retry(|| file.read_at(&mut data[done..], offset + done as u64))? {
            0 => break,
            n => done += n,
        }
    }
    data.truncate(done);
    Ok(data)
}
