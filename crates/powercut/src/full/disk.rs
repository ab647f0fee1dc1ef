//! Small file systems, and a file that takes what is left of them.

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

/// Bytes of a file system; the smallest that all of them can be made with.
const SIZE: u64 = 64 << 20;
/// How many of them are left to be filled, so that it takes seconds.
const ROOM: u64 = 16 << 20;
/// Bytes that may be left where nothing more can be had: what a file system keeps for itself.
const LEFT: u64 = SIZE / 32;

/// Between looks.
const PAUSE: Duration = Duration::from_millis(1);

/// A small file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Small {
    /// As it comes.
    Ext4,
    /// Without a journal.
    Ext4NoJournal,
    /// In memory.
    Tmpfs,
    /// As it comes.
    Xfs,
    /// Copy on write: it may refuse to write what was written before.
    Btrfs,
}

impl Small {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Ext4, Self::Ext4NoJournal, Self::Tmpfs, Self::Xfs, Self::Btrfs];

    /// Whether what was allocated can be written to, again and again, however full the disk is.
    pub fn keeps_its_word(self) -> bool {
        self != Small::Btrfs
    }

    /// Its type, and how it is made.
    fn made(self) -> (&'static str, &'static [&'static str]) {
        match self {
            // Nothing is left to be initialised in the background.
            Small::Ext4 => ("ext4", &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"]),
            Small::Ext4NoJournal => ("ext4", &["-q", "-E", "lazy_itable_init=0", "-O", "^has_journal"]),
            Small::Tmpfs => ("tmpfs", &[]),
            // So small a one is meant for tests.
            Small::Xfs => ("xfs", &["-q", "--unsupported"]),
            Small::Btrfs => ("btrfs", &["-q", "--mixed"]),
        }
    }
}

/// A file system that is mounted, with nothing on it but ballast.
pub struct Disk {
    mounted: Mounted,
    /// Where its image lies: in memory, since processes die here, and the power never does. Goes
    /// after what is mounted from it.
    _below: Option<Mounted>,
}

impl Disk {
    /// Makes one.
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

    /// Leaves the whole disk to be filled.
    pub fn drop_ballast(&self) -> io::Result<()> {
        std::fs::remove_file(self.ballast())
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }

    /// Its root.
    pub fn path(&self) -> &Path {
        self.mounted.path()
    }
}

/// A file that takes whatever room there is, again and again, until it is told to stop.
pub struct Hog {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    /// How often it has found nothing more.
    rounds: Arc<AtomicU64>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Hog {
    /// Sets one upon the file system of `dir`.
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

    /// Waits until there is nothing left to take.
    pub fn sated(&self) -> anyhow::Result<()> {
        let dir = self.path.parent().context("it is in a directory")?;
        let before = self.rounds.load(Ordering::Relaxed);
        // The round that goes on may have begun before.
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

    /// Lets it take no more; what it has it keeps.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take() {
            Some(thread) => thread.join().expect("no panics").context("filling the disk"),
            None => Ok(()),
        }
    }

    /// Gives everything back. The file stays: on a full disk there may be no room for a new one, be
    /// it empty.
    pub fn give_back(mut self) -> anyhow::Result<()> {
        self.stop()?;
        // Where cutting takes room, removing has some that is kept for it.
        let cut = File::create(&self.path).map(drop);
        cut.or_else(|_| std::fs::remove_file(&self.path)).context("cutting the other file")
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        // Else it would keep the file system from being unmounted.
        let _told_already = self.stop();
    }
}

/// Makes the file longer until nothing is left, in ever smaller pieces.
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
        // A part of the last piece may have stayed.
        file.set_len(end).or_else(enough)?;
    }
    loop {
        // What is kept for writing alone.
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
