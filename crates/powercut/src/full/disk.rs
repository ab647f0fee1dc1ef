//! Small file systems, and a file that fills their free space.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::fs::FallocateFlags;

use crate::host::{Mounted, need_program, run};

/// Size of a file system, in bytes: the smallest size that all of them support.
const SIZE: u64 = 64 << 20;
/// Free bytes that are left to be filled, so that filling takes seconds.
const ROOM: u64 = 16 << 20;
/// Most bytes that may stay free on a full file system: the reserve that the file system keeps.
const LEFT: u64 = SIZE / 32;

/// Pause between checks.
const PAUSE: Duration = Duration::from_millis(1);

/// A small file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Small {
    /// ext4 with its defaults.
    Ext4,
    /// ext4 without a journal.
    Ext4NoJournal,
    /// tmpfs, in memory.
    Tmpfs,
    /// XFS with its defaults.
    Xfs,
    /// Btrfs. Copy on write: it may refuse to overwrite existing data.
    Btrfs,
}

impl Small {
    /// All file systems.
    pub const ALL: [Self; 5] = [Self::Ext4, Self::Ext4NoJournal, Self::Tmpfs, Self::Xfs, Self::Btrfs];

    /// Returns whether allocated space can be overwritten again and again on a full disk.
    pub fn keeps_its_word(self) -> bool {
        self != Small::Btrfs
    }

    /// Returns the type of the file system, and the options of its creation.
    fn made(self) -> (&'static str, &'static [&'static str]) {
        match self {
            // Leaves no initialisation to the background.
            Small::Ext4 => ("ext4", &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"]),
            Small::Ext4NoJournal => ("ext4", &["-q", "-E", "lazy_itable_init=0", "-O", "^has_journal"]),
            Small::Tmpfs => ("tmpfs", &[]),
            // XFS supports such a small size only for tests.
            Small::Xfs => ("xfs", &["-q", "--unsupported"]),
            Small::Btrfs => ("btrfs", &["-q", "--mixed"]),
        }
    }
}

/// A mounted file system that holds only ballast.
pub struct Disk {
    mounted: Mounted,
    /// Mount below the image: in memory, because here processes are killed, but the power stays on.
    /// Unmounted after the file system of the image.
    _below: Option<Mounted>,
}

impl Disk {
    /// Makes a file system and mounts it.
    pub fn new(small: Small) -> anyhow::Result<Self> {
        let disk = Self::mounted(small)?;
        let free = rustix::fs::statvfs(disk.path())?;
        let ballast = (free.f_bavail * free.f_frsize).saturating_sub(ROOM);
        let file = File::create(disk.ballast())?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, ballast).context("loading ballast")?;
        file.sync_all()?;
        Ok(disk)
    }

    fn mounted(small: Small) -> anyhow::Result<Self> {
        let (kind, options) = small.made();
        if small == Small::Tmpfs {
            return Ok(Self { mounted: Mounted::in_memory(SIZE)?, _below: None });
        }
        let maker = format!("mkfs.{kind}");
        need_program(&maker)?;
        let below = Mounted::in_memory(2 * SIZE)?;
        let image = below.path().join("image");
        File::create(&image)?.set_len(SIZE)?;
        run(&maker, options.iter().map(OsStr::new).chain([image.as_os_str()]))?;
        Ok(Self { mounted: Mounted::new(&image, kind)?, _below: Some(below) })
    }

    /// Removes the ballast: the whole disk can be filled.
    pub fn drop_ballast(&self) -> io::Result<()> {
        std::fs::remove_file(self.ballast())
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }

    /// Returns the root of the file system.
    pub fn path(&self) -> &Path {
        self.mounted.path()
    }
}

/// A file that takes all free space, again and again, until it is stopped.
pub struct Hog {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    /// Number of times that no more space was free.
    rounds: Arc<AtomicU64>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Hog {
    /// Starts to fill the file system of `dir`.
    pub fn start(dir: &Path) -> anyhow::Result<Self> {
        let path = dir.join("hog");
        let file = File::options().create(true).append(true).open(&path).context("making the other file")?;
        let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (asked, told) = (stop.clone(), rounds.clone());
        let thread = thread::spawn(move || {
            while !asked.load(Ordering::Relaxed) {
                take_all(&file)?;
                told.fetch_add(1, Ordering::Relaxed);
                thread::sleep(PAUSE);
            }
            Ok(())
        });
        Ok(Self { path, stop, rounds, thread: Some(thread) })
    }

    /// Waits until no more space is free.
    pub fn sated(&self) -> anyhow::Result<()> {
        let dir = self.path.parent().context("it is in a directory")?;
        let before = self.rounds.load(Ordering::Relaxed);
        // The current round may have begun before this call.
        while self.rounds.load(Ordering::Relaxed) <= before + 1 {
            if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
                bail!("nobody fills the disk any more");
            }
            thread::sleep(PAUSE);
        }
        let left = rustix::fs::statvfs(dir)?;
        let left = left.f_bfree * left.f_frsize;
        if left > LEFT {
            bail!("{left} bytes are left on a disk that was to be full");
        }
        Ok(())
    }

    /// Stops filling; the file keeps its space.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take() {
            Some(thread) => thread.join().expect("no panics").context("filling the disk"),
            None => Ok(()),
        }
    }

    /// Frees all space. The file itself stays: a full disk may have no room for a new file, even an
    /// empty file.
    pub fn give_back(mut self) -> anyhow::Result<()> {
        self.stop()?;
        // Cutting the file may need room; removing it uses the file system's reserve.
        let cut = File::create(&self.path).map(drop);
        cut.or_else(|_| std::fs::remove_file(&self.path)).context("cutting the other file")
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        // Otherwise the open file would prevent unmounting.
        let _told_already = self.stop();
    }
}

/// Extends the file until no space is free, in ever smaller pieces.
fn take_all(mut file: &File) -> io::Result<()> {
    for piece in [1 << 20, 64 << 10, 4096] {
        let mut end = file.metadata()?.len();
        loop {
            match rustix::fs::fallocate(file, FallocateFlags::empty(), end, piece) {
                Ok(()) => end += piece,
                Err(error) => {
                    enough(error.into())?;
                    break;
                }
            }
        }
        // A part of the last piece may have been allocated.
        file.set_len(end).or_else(enough)?;
    }
    loop {
        // Takes the space that the file system reserves for writes.
        match file.write(&[1; 4096]).and_then(|n| file.sync_data().map(|()| n)) {
            Ok(n) if n > 0 => {}
            Ok(_) => return Ok(()),
            Err(error) => return enough(error),
        }
    }
}

fn enough(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::StorageFull { Ok(()) } else { Err(error) }
}
