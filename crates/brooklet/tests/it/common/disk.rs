//! Loop devices on files of ours, where this process may have any.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Runs a tool; gives what it printed.
pub fn run(program: &str, args: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(args).output().map_err(|error| format!("{program}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!("{program}: {}", text(&output.stderr)))
    }
}

/// A loop device, which goes with this.
pub struct Disk {
    pub path: PathBuf,
    image: PathBuf,
    _dir: TempDir,
}

impl Disk {
    /// A blank device of `bytes`, in sectors of `sector` bytes.
    pub fn new(bytes: u64, sector: u32) -> Result<Self, String> {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        File::create(&image).and_then(|file| file.set_len(bytes)).unwrap();
        Ok(Self { path: attach(&image, sector)?, image, _dir: dir })
    }

    fn name(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// Takes the device apart and puts it together again, with other sectors.
    pub fn with_sector(mut self, sector: u32) -> Result<Self, String> {
        run("losetup", &["--detach", self.name()])?;
        self.path = attach(&self.image, sector)?;
        Ok(self)
    }

    /// Makes the device larger or smaller.
    pub fn resize(&self, bytes: u64) {
        OpenOptions::new().write(true).open(&self.image).and_then(|file| file.set_len(bytes)).unwrap();
        run("losetup", &["--set-capacity", self.name()]).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = run("losetup", &["--detach", self.name()]);
    }
}

fn attach(image: &Path, sector: u32) -> Result<PathBuf, String> {
    let sector = sector.to_string();
    let mut device = Err(String::new());
    // Another may take the free device in between.
    for _ in 0..20 {
        device = run("losetup", &["--find", "--show", "--sector-size", &sector, image.to_str().unwrap()]);
        if device.is_ok() {
            break;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(20));
    }
    let device = PathBuf::from(device?);
    let open = || OpenOptions::new().read(true).write(true).open(&device);
    open().map_err(|error| format!("{}: {error}", device.display()))?;
    Ok(device)
}
