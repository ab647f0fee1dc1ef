//! The kinds of disk below a store on this host: a file of FUSE, a file system on such a file, and
//! a plain loop device.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use tempfile::TempDir;

use crate::cuts::{Campaign, Power, Stage, store_in};
use crate::drive::Drive;
use crate::fuse::Names;
use crate::host::{LoopDevice, Mounted, Served, names, run, temp_dir};

/// Name of the file that holds a file system.
const IMAGE: &str = "image";
/// Size of an image with a file system, in bytes: room for a store's life.
const SIZE: u64 = 64 << 20;

/// A stage whose drive is the store's file.
#[derive(Default)]
pub struct Raw {
    names: Names,
}

impl Stage for Raw {
    fn fresh(&mut self) -> anyhow::Result<Vec<u8>> {
        self.names = Names::default();
        Ok(Vec::new())
    }

    fn round(&mut self, mut image: Vec<u8>, campaign: &mut Campaign) -> anyhow::Result<Vec<u8>> {
        if store_in(Path::new("")).file_name().is_none_or(|name| !has(&self.names, name)) {
            campaign.oracle.expects_nothing()?;
            image = self.fresh()?;
        }
        let drive = Arc::new(Drive::new(image, campaign.rng.next()));
        let served = Served::new(drive.clone(), self.names.clone())?;
        let path = store_in(served.path());
        campaign.inspect(&path)?;
        campaign.victim(&path, Power::File(&drive))?;
        drop(served);
        if has(&self.names, path.file_name().unwrap_or_default()) {
            campaign.imagine(&drive)?;
        }
        Ok(drive.crash())
    }
}

fn has(names: &Names, name: &OsStr) -> bool {
    names.lock().expect("no panics").contains(name)
}

/// A stage with the store in a file system on a loop device over the drive.
pub struct Below {
    filesystem: Filesystem,
    empty: Vec<u8>,
}

impl Below {
    /// Formats an image.
    pub fn new(filesystem: Filesystem) -> anyhow::Result<Self> {
        let dir = temp_dir()?;
        Ok(Self { filesystem, empty: fs::read(format(filesystem, &dir)?)? })
    }
}

impl Stage for Below {
    fn fresh(&mut self) -> anyhow::Result<Vec<u8>> {
        Ok(self.empty.clone())
    }

    fn round(&mut self, image: Vec<u8>, campaign: &mut Campaign) -> anyhow::Result<Vec<u8>> {
        let drive = self.filesystem.drive(image, campaign.rng.next());
        let served = Served::new(drive.clone(), names(IMAGE))?;
        let file = served.path().join(IMAGE);
        let mut mounted = Mounted::new(&file, self.filesystem.name())?;
        campaign.inspect(&store_in(mounted.path()))?;
        if campaign.rng.percent(10) {
            drop(mounted);
            self.filesystem.check(&file)?;
            mounted = Mounted::new(&file, self.filesystem.name())?;
        }
        campaign.victim(&store_in(mounted.path()), Power::Device(&drive))?;
        drop(mounted);
        drop(served);
        Ok(drive.crash())
    }
}

/// A stage with the store in an ext4 on a plain loop device; only the store's process is killed.
pub struct Plain {
    dir: TempDir,
    mounted: Option<Mounted>,
}

impl Plain {
    /// Creates a stage without a disk.
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self { dir: temp_dir()?, mounted: None })
    }
}

impl Stage for Plain {
    fn fresh(&mut self) -> anyhow::Result<Vec<u8>> {
        self.mounted = None;
        self.mounted = Some(Mounted::new(&format(Filesystem::Ext4, &self.dir)?, Filesystem::Ext4.name())?);
        Ok(Vec::new())
    }

    fn round(&mut self, image: Vec<u8>, campaign: &mut Campaign) -> anyhow::Result<Vec<u8>> {
        let path = store_in(self.mounted.as_ref().context("a round before the first life")?.path());
        campaign.inspect(&path)?;
        campaign.victim(&path, Power::Stays)?;
        Ok(image)
    }
}

/// A file system below a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filesystem {
    /// ext4 with `data=ordered`, its default.
    Ext4,
    /// XFS with its defaults.
    Xfs,
}

impl Filesystem {
    /// Returns the name of the file system.
    pub fn name(self) -> &'static str {
        match self {
            Filesystem::Ext4 => "ext4",
            Filesystem::Xfs => "xfs",
        }
    }

    /// Returns the program that makes the file system.
    pub fn maker(self) -> &'static str {
        match self {
            Filesystem::Ext4 => "mkfs.ext4",
            Filesystem::Xfs => "mkfs.xfs",
        }
    }

    /// Returns a drive with the guarantees that the file system needs: ext4 overwrites its
    /// superblock in place, and finds no file system if that write is torn; XFS does the same with
    /// its sectors.
    pub fn drive(self, image: Vec<u8>, seed: u64) -> Arc<Drive> {
        let piece = if self == Filesystem::Ext4 { 4096 } else { 512 };
        Arc::new(Drive::gentle(image, seed, piece))
    }

    /// Checks an unmounted file system in `file`, without changes.
    pub fn check(self, file: &Path) -> anyhow::Result<()> {
        let device = LoopDevice::new(file)?;
        let device = device.path.as_os_str();
        match self {
            Filesystem::Ext4 => run("fsck.ext4", ["-f".as_ref(), "-n".as_ref(), device]),
            Filesystem::Xfs => run("xfs_repair", ["-n".as_ref(), device]),
        }
        .map(drop)
    }
}

/// Makes a file with an empty file system in `dir`.
pub fn format(filesystem: Filesystem, dir: &TempDir) -> anyhow::Result<PathBuf> {
    let file = dir.path().join(IMAGE);
    fs::File::create(&file)?.set_len(SIZE)?;
    let options: &[&str] = match filesystem {
        // Leaves no initialisation to the background, where it would only take time.
        Filesystem::Ext4 => &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
        // XFS supports such a small size only for tests.
        Filesystem::Xfs => &["-q", "--unsupported"],
    };
    run(filesystem.maker(), options.iter().map(OsStr::new).chain([file.as_os_str()]))?;
    Ok(file)
}
