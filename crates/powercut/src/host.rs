//! The services of the operating system that the harness uses: mounts, loop devices, commands. Each
//! resource is released with its guard, and at the latest with the process: mounts are made in a
//! separate mount name space, and a loop device is detached as soon as another user holds it.

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

/// The machine lacks a resource, or does not allow its use.
#[derive(Debug, thiserror::Error)]
#[error("skipped: {0}")]
pub struct Skipped(pub String);

/// Marks a process with its own mount name space.
const OWN_MOUNTS: &str = "BROOKLET_POWERCUT_OWN_MOUNTS";
/// Time limit of a command, in seconds.
const PATIENCE: &str = "60";

/// Restarts this program in its own mount name space, unless it has one.
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

/// Returns an error if FUSE is not available.
pub fn need_fuse() -> anyhow::Result<()> {
    let opened = fs::File::options().read(true).write(true).open("/dev/fuse");
    opened.map(drop).map_err(|error| Skipped(format!("/dev/fuse cannot be opened: {error}")).into())
}

/// Returns an error if the program does not exist.
pub fn need_program(name: &str) -> anyhow::Result<()> {
    let found = Command::new("sh").args(["-c", "command -v \"$0\" >/dev/null", name]).status()?;
    if found.success() { Ok(()) } else { Err(Skipped(format!("there is no {name}")).into()) }
}

/// Runs a command to its end, within the time limit; returns its standard output.
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

    /// Returns the directory of the file's names.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        unmount(self.dir.path());
        let session = self.session.take().expect("it is taken here only");
        // The session's threads end with the mount; while a process has the file open, they end
        // with this process.
        patiently(|| session.guard.is_finished());
    }
}

/// A mounted file system, from a loop device or in memory.
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

    /// Mounts a file system of `bytes` bytes in memory.
    pub fn in_memory(bytes: u64) -> anyhow::Result<Self> {
        let dir = temp_dir()?;
        let size = CString::new(format!("size={bytes}"))?;
        rustix::mount::mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), size.as_c_str())
            .map_err(|error| not_mounted("tmpfs", error))?;
        Ok(Self { dir })
    }

    /// Returns the root of the file system.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Distinguishes a missing or forbidden resource from an error.
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

/// A loop device, detached on drop: immediately, or together with its last user.
pub struct LoopDevice {
    /// Path of the device.
    pub path: PathBuf,
}

impl LoopDevice {
    /// Attaches a device to `file`.
    pub fn new(file: &Path) -> anyhow::Result<Self> {
        let args =
            [OsStr::new("--find"), OsStr::new("--show"), OsStr::new("--direct-io=on"), file.as_os_str()];
        let device = run("losetup", args).map_err(|error| Skipped(format!("no loop device: {error:#}")))?;
        let device = Self { path: PathBuf::from(device.trim()) };
        // A device that was made read-only stays read-only for its next user after it is detached.
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

/// Makes a directory that is removed with its guard.
pub fn temp_dir() -> anyhow::Result<TempDir> {
    tempfile::Builder::new().prefix("brooklet-powercut-").tempdir().context("making a temporary directory")
}

/// Returns the set of names of a file with one name.
pub fn names(name: &str) -> Names {
    Arc::new(BTreeSet::from([name.into()]).into())
}

/// Waits up to 5 seconds until `done` returns `true`; returns its last result.
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

/// Unmounts a file system; lazily if it stays busy.
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
