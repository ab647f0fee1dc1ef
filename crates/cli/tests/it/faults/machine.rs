//! What a fault is made with: mounts, loop devices, tools. All of it is undone when it goes out of
//! scope.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Whether a command works, and what it says.
pub fn run(program: &str, args: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program} cannot be run: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() {
        return Ok(said);
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program} was refused: {}", why.split_whitespace().collect::<Vec<_>>().join(" ")))
}

pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

pub fn as_root() -> Result<(), String> {
    if is_root() { Ok(()) } else { Err("mounting wants root".into()) }
}

pub fn tool(name: &str) -> Result<(), String> {
    run("sh", &["-c", &format!("command -v {name}")]).map(drop).map_err(|_| format!("there is no {name}"))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary directories have plain names")
}

/// A mounted file system.
pub struct Mount {
    pub at: PathBuf,
}

impl Mount {
    pub fn tmpfs(at: &Path, options: &str) -> Result<Self, String> {
        as_root()?;
        std::fs::create_dir_all(at).unwrap();
        run("mount", &["-t", "tmpfs", "-o", options, "brooklet-fault", text(at)])?;
        Ok(Self { at: at.to_owned() })
    }

    pub fn remount(&self, options: &str) -> Result<(), String> {
        run("mount", &["-o", &format!("remount,{options}"), text(&self.at)]).map(drop)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Whoever was killed a moment ago may still be letting go.
        for _ in 0..50 {
            if run("umount", &[text(&self.at)]).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(40));
        }
        let _ = run("umount", &["-l", text(&self.at)]);
    }
}

/// A loop device on a file of ours.
pub struct Loop {
    pub device: String,
}

impl Loop {
    pub fn attach(file: &Path) -> Result<Self, String> {
        as_root()?;
        tool("losetup")?;
        // Another may take the free device in between.
        let mut device = Err(String::new());
        for _ in 0..20 {
            device = run("losetup", &["--find", "--show", text(file)]);
            if device.is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Ok(Self { device: device? })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = run("losetup", &["--detach", &self.device]);
    }
}

/// An ext4 file system on a loop device on a file of ours. The fields go in this order.
pub struct Ext4 {
    pub mount: Option<Mount>,
    pub disk: Loop,
}

impl Ext4 {
    /// Makes one of `bytes` in the file `image`, mounted at `at`.
    pub fn make(image: &Path, bytes: u64, at: &Path, options: &[&str]) -> Result<Self, String> {
        as_root()?;
        tool("mkfs.ext4")?;
        std::fs::File::create(image).and_then(|file| file.set_len(bytes)).unwrap();
        let all = [&["-q", "-F", "-E", "lazy_itable_init=0,nodiscard"], options, &[text(image)]].concat();
        run("mkfs.ext4", &all)?;
        let mut made = Self { mount: None, disk: Loop::attach(image)? };
        made.mount(at)?;
        Ok(made)
    }

    pub fn mount(&mut self, at: &Path) -> Result<(), String> {
        std::fs::create_dir_all(at).unwrap();
        run("mount", &[&self.disk.device, text(at)])?;
        self.mount = Some(Mount { at: at.to_owned() });
        Ok(())
    }
}
