//! What a probe may touch: its own files, and devices on which nothing is.
//!
//! Invariants:
//! - Nothing that was there before is written to, with one exception: a block device that nobody
//!   uses, whose part to be measured, and whose last MiB (where volume managers and partition
//!   tables keep copies), read as zeros while the probe holds it alone. That part is written back
//!   to zeros when the ground is given up, however the probe ends.
//! - Files that a probe makes have no name where the system can do without, and are removed at the
//!   end elsewhere.
//! - A ground for reading only is opened for reading only.
//!
//! A probe that is stopped by a signal that can be listened to gives its ground up like any other.
//! One that is killed leaves nothing in a directory; on a device it leaves what it wrote, in the
//! part that was blank.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use brooklet::io::{
    AlignedBuf, FileOptions, FileVolume, OpenMode, Persist, SECTOR, Volume, read_exact_at, write_all_at,
};
use serde::Serialize;
use tempfile::NamedTempFile;

use crate::failure::{Failure, Kind};
use crate::signals;

/// What kind of place is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A directory's file system, by files of the probe's own.
    Directory,
    /// A blank block device, which is blank again afterwards.
    BlankDevice,
    /// A file or device that is only read.
    ReadOnly,
}

/// A place to measure on.
#[derive(Debug)]
pub struct Ground {
    /// What kind of place it is.
    pub what: What,
    /// Where volumes are measured.
    pub volume: FileVolume,
    /// Bytes of the volume that may be used, from its start; a multiple of 4 KiB.
    pub bytes: u64,
    /// A file for appends, where there is a file system.
    pub plain: Option<PlainFile>,
    _temporary: Option<Temporary>,
}

impl Ground {
    /// Finds out what `path` is, and takes at most `size` bytes of it.
    ///
    /// # Errors
    /// Refuses whatever might hold something: existing files, devices that are in use or not blank;
    /// and paths at which nothing is, since a mistyped device would otherwise be probed as the file
    /// system of `/dev`.
    pub fn take(path: &Path, size: u64, read_only: bool, options: FileOptions) -> Result<Self, Failure> {
        let usage = |what: String| Failure::new(Kind::Usage, format!("{} {what}", path.display()));
        let kind = match fs::metadata(path) {
            Ok(found) => found.file_type(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(usage("does not exist; name a directory on the disk to be probed".into()));
            }
            Err(e) => return Err(Failure::io(format!("looking at {}", path.display()))(e)),
        };
        match (kind.is_dir(), kind.is_file(), kind.is_block_device(), read_only) {
            (true, _, _, false) => Self::directory(path, size, options),
            (true, _, _, true) => Err(usage("is a directory; name a file or a device to read".into())),
            (_, true, _, true) | (_, _, true, true) => Self::existing(path, size, options),
            (_, true, _, false) => {
                let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
                Err(usage(format!(
                    "exists, and the probe does not write to it; probe the directory, {}, or use --read-only",
                    parent.display()
                )))
            }
            (_, _, true, false) => Self::blank_device(path, size, options),
            _ => Err(usage("is neither a directory nor a file nor a block device".into())),
        }
    }

    fn directory(dir: &Path, size: u64, options: FileOptions) -> Result<Self, Failure> {
        let doing = |what: &str| Failure::io(format!("{what} in {}", dir.display()));
        let free = rustix::fs::statvfs(dir).map_err(|e| doing("reading the free space")(e.into()))?;
        let size = size.min(free.f_bavail.saturating_mul(free.f_frsize) / LEAST_FREE) >> 20 << 20;
        if size < LEAST {
            let message = format!(
                "{} has too little free space: a probe needs {} MiB, and {LEAST_FREE} times as much free space",
                dir.display(),
                LEAST >> 20
            );
            return Err(Failure::new(Kind::Full, message));
        }
        let temporary = Temporary::new(dir).map_err(doing("making a temporary file"))?;
        let volume = FileVolume::open(temporary.path(), OpenMode::ReadWrite, options);
        let volume = volume.map_err(doing("opening a temporary file"))?;
        let bytes = size / 4 * 3;
        volume.grow(bytes).map_err(doing("making room for a temporary file"))?;
        let plain = PlainFile::new(dir, size - bytes).map_err(doing("making a temporary file"))?;
        Ok(Self { what: What::Directory, volume, bytes, plain: Some(plain), _temporary: Some(temporary) })
    }

    fn existing(path: &Path, size: u64, options: FileOptions) -> Result<Self, Failure> {
        let volume = open(path, OpenMode::ReadOnly, options)?;
        let bytes = volume.size()?.min(size) / SECTOR as u64 * SECTOR as u64;
        if bytes == 0 {
            return Err(Failure::new(Kind::Usage, format!("{} is too small to be read", path.display())));
        }
        Ok(Self { what: What::ReadOnly, volume, bytes, plain: None, _temporary: None })
    }

    fn blank_device(path: &Path, size: u64, options: FileOptions) -> Result<Self, Failure> {
        let volume = open(path, OpenMode::ReadWrite, options)?;
        let whole = volume.size()? / SECTOR as u64 * SECTOR as u64;
        let bytes = whole.min(size) / SECTOR as u64 * SECTOR as u64;
        for part in [0..bytes, whole.saturating_sub(TAIL).max(bytes)..whole] {
            if let Some(at) = first_not_zero(&volume, part)? {
                let message = format!(
                    "{} is not blank: byte {at} is not zero; nothing was changed. Zero the device, or use \
                     --read-only",
                    path.display()
                );
                return Err(Failure::new(Kind::Usage, message));
            }
        }
        if bytes < LEAST {
            return Err(Failure::new(Kind::Usage, format!("{} is too small to be probed", path.display())));
        }
        Ok(Self { what: What::BlankDevice, volume, bytes, plain: None, _temporary: None })
    }

    /// Gives the place back as it was found.
    ///
    /// # Errors
    /// A device that would not take its zeros back is told of.
    pub fn give_back(mut self) -> Result<(), Failure> {
        self.blank()
    }

    fn blank(&mut self) -> Result<(), Failure> {
        if self.what == What::BlankDevice && self.bytes > 0 {
            let bytes = std::mem::take(&mut self.bytes);
            write_zeros(&self.volume, bytes).map_err(Failure::io(format!(
                "writing zeros back to the first {bytes} bytes of {}",
                self.volume.info().name
            )))?;
        }
        Ok(())
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if let Err(failure) = self.blank() {
            eprintln!("brooklet: {}", failure.message);
        }
    }
}

/// Bytes below which nothing worth telling can be measured.
pub const LEAST: u64 = 4 << 20;

/// Of the free space, a probe takes at most one part in so many.
const LEAST_FREE: u64 = 4;

/// Bytes at the end of a device that must be blank, too.
const TAIL: u64 = 1 << 20;

const CHUNK: u64 = 4 << 20;

fn open(path: &Path, mode: OpenMode, options: FileOptions) -> Result<FileVolume, Failure> {
    let opened = FileVolume::open(path, mode, options);
    opened.map_err(|e| Failure::new(Kind::CannotOpen, format!("{} cannot be probed: {e}", path.display())))
}

fn first_not_zero(volume: &dyn Volume, part: std::ops::Range<u64>) -> Result<Option<u64>, Failure> {
    let mut buf = AlignedBuf::zeroed(CHUNK as usize);
    let mut at = part.start;
    while at < part.end {
        signals::check()?;
        let chunk = &mut buf[..(part.end - at).min(CHUNK) as usize];
        read_exact_at(volume, at, chunk)?;
        if let Some(i) = chunk.iter().position(|&b| b != 0) {
            return Ok(Some(at + i as u64));
        }
        at += chunk.len() as u64;
    }
    Ok(None)
}

fn write_zeros(volume: &dyn Volume, bytes: u64) -> io::Result<()> {
    let zeros = AlignedBuf::zeroed(CHUNK as usize);
    for at in (0..bytes).step_by(CHUNK as usize) {
        write_all_at(volume, at, &zeros[..(bytes - at).min(CHUNK) as usize], Persist::Cached)?;
    }
    volume.flush()
}

/// A plain file for appends, emptied before it outgrows its room.
#[derive(Debug)]
pub struct PlainFile {
    temporary: Temporary,
    file: File,
    room: u64,
}

impl PlainFile {
    fn new(dir: &Path, room: u64) -> io::Result<Self> {
        let temporary = Temporary::new(dir)?;
        let file = OpenOptions::new().write(true).open(temporary.path())?;
        Ok(Self { temporary, file, room })
    }

    /// Where it can be opened.
    pub fn path(&self) -> &Path {
        self.temporary.path()
    }

    /// Bytes it may have.
    pub fn room(&self) -> u64 {
        self.room
    }

    /// Makes room for so many bytes more.
    pub fn make_room(&mut self, bytes: usize) -> io::Result<()> {
        if self.file.metadata()?.len() + bytes as u64 > self.room {
            self.file.set_len(0)?;
            self.file.sync_all()?;
        }
        Ok(())
    }
}

/// A file that is gone when this is.
#[derive(Debug)]
enum Temporary {
    /// Without a name: it is gone even if the process is killed. The path leads to it through the
    /// open file.
    #[cfg(target_os = "linux")]
    Unnamed { path: PathBuf, _file: File },
    /// With a name, which is removed.
    Named(NamedTempFile),
}

impl Temporary {
    fn new(dir: &Path) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        {
            use std::os::fd::AsRawFd;
            let file = tempfile::tempfile_in(dir)?;
            let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
            // Where /proc is missing, the file can be opened again by name only.
            if path.exists() {
                return Ok(Self::Unnamed { path, _file: file });
            }
        }
        Ok(Self::Named(tempfile::Builder::new().prefix("brooklet-probe-").tempfile_in(dir)?))
    }

    fn path(&self) -> &Path {
        match self {
            #[cfg(target_os = "linux")]
            Self::Unnamed { path, .. } => path,
            Self::Named(file) => file.path(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(path: &Path, read_only: bool) -> Result<Ground, Failure> {
        Ground::take(path, 16 << 20, read_only, FileOptions::default())
    }

    #[test]
    fn a_directory_gets_files_that_nobody_sees() {
        let dir = tempfile::tempdir().unwrap();
        let mut ground = take(dir.path(), false).unwrap();
        assert_eq!((ground.what, ground.bytes), (What::Directory, 12 << 20));
        if cfg!(target_os = "linux") {
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "while it is in use");
        }
        let plain = ground.plain.as_mut().unwrap();
        assert_eq!(plain.room(), 4 << 20);
        for _ in 0..3 {
            plain.make_room(3 << 20).unwrap();
            let mut file = OpenOptions::new().append(true).open(plain.path()).unwrap();
            io::Write::write_all(&mut file, &vec![1; 3 << 20]).unwrap();
            assert_eq!(file.metadata().unwrap().len(), 3 << 20);
        }
        ground.give_back().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_exists_is_only_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, vec![7; 10_000]).unwrap();
        let refused = take(&file, false).unwrap_err();
        assert!(refused.kind == Kind::Usage && refused.message.contains(dir.path().to_str().unwrap()));
        let ground = take(&file, true).unwrap();
        assert_eq!((ground.what, ground.bytes), (What::ReadOnly, 8192));
        assert!(write_zeros(&ground.volume, 4096).is_err());
        ground.give_back().unwrap();
        assert_eq!(fs::read(&file).unwrap(), vec![7; 10_000]);
        fs::write(&file, "small").unwrap();
        assert!(take(&file, true).unwrap_err().message.contains("too small"));
    }

    #[test]
    fn what_is_no_place_to_probe_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for (path, read_only, why) in [
            (dir.path().join("missing"), false, "does not exist"),
            (dir.path().to_owned(), true, "is a directory"),
            ("/dev/null".into(), false, "neither"),
            ("/dev/null".into(), true, "neither"),
        ] {
            let refused = take(&path, read_only).unwrap_err();
            assert!(refused.kind == Kind::Usage && refused.message.contains(why), "{}", refused.message);
        }
    }
}
