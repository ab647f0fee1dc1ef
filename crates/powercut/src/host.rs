//! What the harness asks of the operating system: mounts, loop devices, commands. Each thing that
//! is made goes when its guard does, and at the latest with the process: mounts are made in a mount
//! name space of its own, and loop devices are let go of as soon as something else holds them.

use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fuser::BackgroundSession;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use tempfile::TempDir;

use crate::drive::Drive;
use crate::fuse::{self, Names};

/// There is something that the machine does not have or does not allow.
#[derive(Debug, thiserror::Error)]
#[error("skipped: {0}")]
pub struct Skipped(pub String);

/// Marks a process that has a mount name space of its own.
const OWN_MOUNTS: &str = "BROOKLET_POWERCUT_OWN_MOUNTS";
/// Seconds that a command may take.
const PATIENCE: &str = "60";

/// Starts this program again in a mount name space of its own, unless it is in one.
pub fn own_mounts() -> anyhow::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(Skipped("mounting needs root".into()).into());
    }
    if std::env::var_os(OWN_MOUNTS).is_some() {
        return Ok(());
    }
    run("unshare", ["--mount", "true"])
        .map_err(|error| Skipped(format!("no mount name space: {error:#}")))?;
    let mut again = Command::new("unshare");
    again.arg("--mount").arg(std::env::current_exe()?).args(std::env::args_os().skip(1));
    Err(again.env(OWN_MOUNTS, "1").exec()).context("starting unshare")
}

/// Fails where there is no FUSE.
pub fn need_fuse() -> anyhow::Result<()> {
    let opened = fs::File::options().read(true).write(true).open("/dev/fuse");
    opened.map(drop).map_err(|error| Skipped(format!("/dev/fuse cannot be opened: {error}")).into())
}

/// Fails where there is no such program.
pub fn need_program(name: &str) -> anyhow::Result<()> {
    let found = Command::new("sh").args(["-c", "command -v \"$0\" >/dev/null", name]).status()?;
    if found.success() { Ok(()) } else { Err(Skipped(format!("there is no {name}")).into()) }
}

/// Runs a command to its end, a hanging one not for ever; gives its standard output.
pub fn run<S: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = S>) -> anyhow::Result<String> {
    let output = Command::new("timeout").args(["--kill-after=5", PATIENCE, program]).args(args).output();
    let output = output.with_context(|| format!("starting {program}"))?;
    if !output.status.success() {
        bail!("{program}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A drive served as a file.
pub struct Served {
    session: Option<BackgroundSession>,
    dir: TempDir,
}

impl Served {
    /// Mounts the file system.
    pub fn new(drive: Arc<Drive>, names: Names) -> anyhow::Result<Self> {
        let dir = temp_dir()?;
        let session = fuse::mount(drive, names, dir.path())
            .map_err(|error| Skipped(format!("a FUSE file system cannot be mounted: {error}")))?;
        Ok(Self { session: Some(session), dir })
    }

    /// Where the file's names are.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        unmount(self.dir.path());
        let session = self.session.take().expect("it is taken here only");
        // Its threads end with the mount; where somebody still has the file open, they end with the
        // process.
        patiently(|| session.guard.is_finished());
    }
}

/// A file system that is mounted, from a loop device or in memory.
pub struct Mounted {
    dir: TempDir,
}

impl Mounted {
    /// Mounts the file system in `file`.
    pub fn new(file: &Path, filesystem: &str) -> anyhow::Result<Self> {
        let dir = temp_dir()?;
        let device = LoopDevice::new(file)?;
        rustix::mount::mount(&device.path, dir.path(), filesystem, MountFlags::empty(), None)
            .map_err(|error| not_mounted(filesystem, error))?;
        // The mount keeps the device from here on.
        Ok(Self { dir })
    }

    /// Mounts a file system of so many bytes in memory.
    pub fn in_memory(bytes: u64) -> anyhow::Result<Self> {
        let dir = temp_dir()?;
        let size = CString::new(format!("size={bytes}"))?;
        rustix::mount::mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), size.as_c_str())
            .map_err(|error| not_mounted("tmpfs", error))?;
        Ok(Self { dir })
    }

    /// The file system's root.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Tells what the machine does not have or does not allow from what is wrong.
fn not_mounted(filesystem: &str, error: Errno) -> anyhow::Error {
    let what = format!("mounting a file system of type {filesystem}");
    match error {
        Errno::PERM | Errno::ACCESS | Errno::NODEV => Skipped(format!("{what}: {error}")).into(),
        _ => anyhow::Error::new(error).context(what),
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount(self.dir.path());
    }
}

/// A loop device, let go of when this is dropped: at once, or with whatever still uses it.
pub struct LoopDevice {
    /// The device.
    pub path: PathBuf,
}

impl LoopDevice {
    /// Attaches a device to `file`.
    pub fn new(file: &Path) -> anyhow::Result<Self> {
        let args =
            [OsStr::new("--find"), OsStr::new("--show"), OsStr::new("--direct-io=on"), file.as_os_str()];
        let device = run("losetup", args).map_err(|error| Skipped(format!("no loop device: {error:#}")))?;
        let device = Self { path: PathBuf::from(device.trim()) };
        // A device that was made read-only stays so when it is let go of, for whoever gets it next.
        run("blockdev", [OsStr::new("--setrw"), device.path.as_os_str()])?;
        Ok(device)
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(error) = run("losetup", [OsStr::new("--detach"), self.path.as_os_str()]) {
            eprintln!("{} is left attached: {error:#}", self.path.display());
        }
    }
}

/// A directory that goes with its guard.
pub fn temp_dir() -> anyhow::Result<TempDir> {
    tempfile::Builder::new().prefix("brooklet-powercut-").tempdir().context("making a temporary directory")
}

/// One name for a file.
pub fn names(name: &str) -> Names {
    Arc::new(BTreeSet::from([name.into()]).into())
}

/// Waits up to five seconds.
pub fn patiently(mut done: impl FnMut() -> bool) -> bool {
    let give_up = Instant::now() + Duration::from_secs(5);
    while !done() {
        if Instant::now() > give_up {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Unmounts, lazily where it stays busy.
fn unmount(dir: &Path) {
    let gone = |flags| match rustix::mount::unmount(dir, flags) {
        Err(Errno::BUSY) => false,
        Err(error) if error != Errno::INVAL => {
            eprintln!("unmounting {}: {}", dir.display(), io::Error::from(error));
            true
        }
        _ => true,
    };
    if !patiently(|| gone(UnmountFlags::empty())) {
        gone(UnmountFlags::DETACH);
    }
}
