//! Names, opening and locks.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::OpenMode;
use super::held::is_open_here;
use super::inner::retry;

/// Opens and locks the file. The name of a created file is durable afterwards.
pub(super) fn open(path: &Path, mode: OpenMode, permissions: u32) -> io::Result<(File, Made<'_>)> {
    let file =
        (0..TRIES).find_map(|_| open_and_lock(path, mode, permissions).transpose()).unwrap_or_else(|| {
            let message =
                format!("{} was replaced again and again while it was being opened", path.display());
            Err(io::Error::new(io::ErrorKind::ResourceBusy, message))
        })?;
    let made = if mode == OpenMode::Create { Some((path, file.metadata()?)) } else { None };
    let made = Made(made);
    match mode {
        OpenMode::Create => sync_folder(path)?,
        OpenMode::ReadWrite => keep_name(path, &file)?,
        OpenMode::ReadOnly | OpenMode::ReadBeside => {}
    }
    Ok((file, made))
}

/// A file that was created, until it is open as a volume. Dropping this value removes the file,
/// which would be in the way of the next creation.
pub(super) struct Made<'a>(Option<(&'a Path, Metadata)>);

impl Made<'_> {
    /// Lets the file stay.
    pub(super) fn stays(mut self) {
        self.0 = None;
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        let Some((path, made)) = self.0.take() else { return };
        let is_it = |named: Metadata| (named.dev(), named.ino()) == (made.dev(), made.ino());
        // A link that has the name by now is not the file.
        if fs::symlink_metadata(path).is_ok_and(is_it)
            && let Err(error) = fs::remove_file(path)
        {
            tracing::warn!(path = %path.display(), %error, "an empty file stays, which was created in vain");
        }
    }
}

/// Makes the name of an existing file durable. The creator of the file may have been killed, or
/// have failed, before that sync; data written now would then be lost with the name.
fn keep_name(path: &Path, file: &File) -> io::Result<()> {
    if !file.metadata()?.is_file() || path.starts_with("/proc/self/fd") {
        return Ok(());
    }
    let named = path.canonicalize();
    match sync_folder(named.as_deref().unwrap_or(path)) {
        // A sync fails for a folder that this user may not read, and on a file system that cannot
        // sync folders.
        Err(error)
            if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput) =>
        {
            tracing::debug!(path = %path.display(), %error, "the folder cannot be synced");
            Ok(())
        }
        done => done,
    }
}

/// Most attempts to open a file that others keep replacing at its path.
const TRIES: usize = 8;

/// Returns `None` if others replaced or removed the file between the opening and the lock.
fn open_and_lock(path: &Path, mode: OpenMode, permissions: u32) -> io::Result<Option<File>> {
    let file = open_file(path, mode, permissions)?;
    if let Err(error) = lock_file(&file, mode, path) {
        // If nobody else has locked the new file, nobody uses it.
        if mode == OpenMode::Create && error.kind() != io::ErrorKind::ResourceBusy {
            drop(file.metadata().map(|made| Made(Some((path, made)))));
        }
        return Err(error);
    }
    let found = file.metadata()?;
    if found.file_type().is_block_device() {
        return Ok(Some(file));
    }
    let named = match fs::metadata(path) {
        Ok(named) => named,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    if (named.dev(), named.ino()) != (found.dev(), found.ino()) {
        return Ok(None);
    }
    // A deleted file can still be opened through a process that has the file open. This process may
    // open a nameless file of its own.
    if mode == OpenMode::ReadWrite
        && !path.starts_with("/proc/self/fd")
        && found.nlink() == 0
        && !path.canonicalize().is_ok_and(|name| name.exists())
    {
        let message = format!(
            "{} was deleted, so its data is lost when it is closed: open it read-only, and copy its data",
            path.display()
        );
        return Err(io::Error::new(io::ErrorKind::NotFound, message));
    }
    Ok(Some(file))
}

fn open_file(path: &Path, mode: OpenMode, permissions: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(!mode.reads_only()).create_new(mode == OpenMode::Create).mode(permissions);
    if mode != OpenMode::Create {
        // Checked before the open: opening a pipe waits, and opening a tape or a terminal has
        // effects.
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
        Some(Errno::EXIST) => match fs::read_link(path) {
            Ok(target) if !path.exists() => {
                let (path, target) = (path.display(), target.display());
                let message = format!(
                    "{path} is a symbolic link to {target}, which does not exist: create the target instead"
                );
                io::Error::new(io::ErrorKind::AlreadyExists, message)
            }
            _ => e,
        },
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

fn lock_file(file: &File, mode: OpenMode, path: &Path) -> io::Result<()> {
    let locked = match mode {
        OpenMode::ReadBeside => return Ok(()),
        OpenMode::ReadOnly => file.try_lock_shared(),
        OpenMode::Create | OpenMode::ReadWrite => file.try_lock(),
    };
    locked.map_err(|e| match e {
        TryLockError::WouldBlock => {
            let message = match is_open_here(path) {
                true => "this process has the volume open already",
                false => "the volume is open elsewhere",
            };
            io::Error::new(io::ErrorKind::ResourceBusy, message)
        }
        TryLockError::Error(e) => io::Error::new(e.kind(), format!("it cannot be locked: {e}")),
    })
}

/// Makes the names in the folder of `path` durable.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

/// Returns whether a process with this number exists, as far as this process may know.
pub fn process_exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(Errno::SRCH))
}

/// Reads up to `len` bytes at `offset`, fewer at the end, through the page cache and past any lock.
///
/// Use it to inspect a volume that another process has open, for example for the name of its
/// holder. Needs no alignment.
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
