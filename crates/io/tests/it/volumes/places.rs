//! Where the same must hold: in a file, and on block devices with small and with large blocks, by
//! io_uring and by threads.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::*;

/// One test at a time: a process that is started holds, until it has become another program, a copy
/// of whatever is open in this one, so that a volume which a test has just closed would still be
/// locked.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file or a device for a volume of 1 MiB; gone when dropped.
pub struct Place {
    pub name: String,
    pub path: PathBuf,
    device: Option<Loop>,
    _dir: tempfile::TempDir,
}

impl Place {
    pub fn file() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { name: "a file".into(), path: dir.path().join("v"), device: None, _dir: dir }
    }

    /// A loop device with sectors of so many bytes; `None`, which says why, where there cannot be
    /// one.
    pub fn device(sector: u32) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        Self::device_of(sector, 1 << 20, dir)
    }

    fn device_of(sector: u32, size: u64, dir: tempfile::TempDir) -> Option<Self> {
        let image = dir.path().join("image");
        fs::File::create(&image).unwrap().set_len(size).unwrap();
        match Loop::over(&image, sector) {
            Ok(device) => Some(Self {
                name: format!("a device with sectors of {sector} bytes"),
                path: device.path.clone(),
                device: Some(device),
                _dir: dir,
            }),
            Err(why) => {
                println!("skipped: no loop device with sectors of {sector} bytes: {why}");
                None
            }
        }
    }

    /// Opens the device, or a new file.
    pub fn open(&self, options: FileOptions) -> FileVolume {
        if self.device.is_some() {
            return FileVolume::open(&self.path, OpenMode::ReadWrite, options).unwrap();
        }
        let _ = fs::remove_file(&self.path);
        let volume = FileVolume::open(&self.path, OpenMode::Create, options).unwrap();
        volume.grow(1 << 20).unwrap();
        volume
    }
}

/// A file system on a loop device, mounted; unmounted when dropped.
pub struct Mounted {
    at: tempfile::TempDir,
    _device: Place,
}

impl Mounted {
    /// An ext4 with such features, mounted with such options; `None`, which says why, where there
    /// cannot be one.
    pub fn ext4(features: &str, options: &str) -> Option<Self> {
        let device = Place::device_of(512, 32 << 20, tempfile::tempdir().unwrap())?;
        let at = tempfile::tempdir().unwrap();
        let (path, dir) = (device.path.as_os_str(), at.path().as_os_str());
        let mount = ["-o".as_ref(), options.as_ref(), path, dir];
        for (tool, args) in
            [("mkfs.ext4", &["-q".as_ref(), "-O".as_ref(), features.as_ref(), path][..]), ("mount", &mount)]
        {
            match Command::new(tool).args(args).output() {
                Ok(output) if output.status.success() => {}
                other => {
                    println!("skipped: no ext4 with {options}: {tool}: {other:?}");
                    return None;
                }
            }
        }
        Some(Self { at, _device: device })
    }

    pub fn path(&self) -> &Path {
        self.at.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.at.path()).status();
    }
}

struct Loop {
    path: PathBuf,
}

impl Loop {
    fn over(image: &Path, sector: u32) -> Result<Self, String> {
        let sector = sector.to_string();
        let made = Command::new("losetup")
            .args(["--find", "--show", "--partscan", "--sector-size", &sector])
            .arg(image)
            .output()
            .map_err(|e| format!("losetup: {e}"))?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).trim().into());
        }
        Ok(Self { path: String::from_utf8_lossy(&made.stdout).trim().into() })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}

/// Runs `test` on a volume at each place, by each backend, and with options that are otherwise
/// `options`.
pub fn everywhere(options: FileOptions, test: impl Fn(&FileVolume)) {
    let _alone = alone();
    let devices = [512, 4096].into_iter().filter_map(Place::device);
    for place in devices.chain([Place::file()]) {
        for io_uring in [true, false] {
            println!("in {}, io_uring: {io_uring}", place.name); // seen when the test fails
            test(&place.open(FileOptions { io_uring, ..options.clone() }));
        }
    }
}
