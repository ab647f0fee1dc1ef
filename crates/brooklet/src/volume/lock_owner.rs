//! The owner of a locked volume: read from the note that each store writes, and from the system's
//! tables of devices. This is a courtesy to users. Only the question whether the holder is gone
//! affects decisions.

use std::path::Path;
#[cfg(target_os = "linux")]
use std::path::PathBuf;

use brooklet_io::{SECTOR, is_open_here, process_exists, read_unlocked};

use crate::error::HERE;
use crate::format::superblock::{NOTE_OFFSET, read_note};

/// Returns the namespace of process numbers of this process. A number names a process only within
/// one namespace, and different containers use the same numbers.
#[cfg(target_os = "linux")]
fn namespace() -> Option<String> {
    Some(std::fs::read_link("/proc/self/ns/pid").ok()?.to_string_lossy().into_owned())
}

#[cfg(not(target_os = "linux"))]
fn namespace() -> Option<String> {
    None
}

/// Returns the note of this process for others that find its store locked.
pub(crate) fn note() -> String {
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(Path::file_name).unwrap_or_default().display();
    let of = namespace().map_or(String::new(), |namespace| format!("{OF}{namespace}"));
    format!("process {} ({program}){of}", std::process::id())
}

/// The separator between a process and its namespace.
const OF: &str = " of ";

/// Names the holder as well as possible.
pub(crate) fn name(path: &Path) -> String {
    if is_open_here(path) {
        let note = note();
        return format!("{HERE}: {}", Note::of(&note).process);
    }
    // On a mounted device, the bytes at the note's place belong to other software.
    let noted = || {
        let text = read_holder(path)?;
        let note = Note::of(&text);
        // A note with the number of this process is from an earlier process: the holder has not
        // written a note yet.
        let outdated = note.counts_here() && note.number() == Some(std::process::id());
        (!outdated).then(|| note.name())
    };
    claimed_by(path).or_else(noted).unwrap_or_else(|| "holder unknown".into())
}

/// Returns whether the holder is known and no longer exists.
pub(crate) fn is_gone(path: &Path) -> bool {
    read_holder(path).is_some_and(|text| {
        let note = Note::of(&text);
        note.counts_here() && note.number().is_some_and(|number| !process_exists(number))
    })
}

/// The content of a holder's note.
struct Note<'a> {
    process: &'a str,
    /// The namespace of the process number; `None` in notes of older versions.
    namespace: Option<&'a str>,
}

impl<'a> Note<'a> {
    fn of(text: &'a str) -> Self {
        match text.rsplit_once(OF).filter(|(_, namespace)| namespace.starts_with("pid:[")) {
            Some((process, namespace)) => Self { process, namespace: Some(namespace) },
            None => Self { process: text, namespace: None },
        }
    }

    fn number(&self) -> Option<u32> {
        self.process.strip_prefix("process ")?.split(' ').next()?.parse().ok()
    }

    fn counts_here(&self) -> bool {
        self.namespace.is_none() || self.namespace == namespace().as_deref()
    }

    fn name(&self) -> String {
        let offloaded = if self.counts_here() { "" } else { ", in another container" };
        format!("{}{offloaded}", self.process)
    }
}

fn read_holder(path: &Path) -> Option<String> {
    read_unlocked(path, NOTE_OFFSET, SECTOR).ok().and_then(|bytes| read_note(&bytes))
}

/// Returns the use of a device: its mount point, a device that is built on it, or such a use of one
/// of its partitions. A device cannot be opened exclusively while one of its partitions is in use.
/// A partition cannot be opened exclusively while the whole device is in use.
#[cfg(target_os = "linux")]
fn claimed_by(path: &Path) -> Option<String> {
    let number = device_number(path)?;
    let table = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let tables = Tables {
        sys: "/sys/dev/block".into(),
        mounts: table("/proc/self/mountinfo"),
        swaps: table("/proc/swaps"),
        number_of: device_number,
    };
    tables.claim(&number)
}

#[cfg(not(target_os = "linux"))]
fn claimed_by(_: &Path) -> Option<String> {
    None
}

/// Returns `major:minor` of the block device at `path`; `None` if the file is not a block device.
#[cfg(target_os = "linux")]
fn device_number(path: &Path) -> Option<String> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};

    let found = std::fs::metadata(path).ok().filter(|found| found.file_type().is_block_device())?;
    let rdev = found.rdev();
    let (major, minor) = ((rdev >> 8) & 0xfff | (rdev >> 32) & !0xfff, rdev & 0xff | (rdev >> 12) & !0xff);
    Some(format!("{major}:{minor}"))
}

/// The system's tables of devices in use.
#[cfg(target_os = "linux")]
struct Tables {
    /// Directory with a link for each device: the name of the link is the number of the device, and
    /// its target describes the device.
    sys: PathBuf,
    /// Mounts, as in `/proc/self/mountinfo`.
    mounts: String,
    /// Swap spaces, as in `/proc/swaps`.
    swaps: String,
    /// Returns the number of the device at a path.
    number_of: fn(&Path) -> Option<String>,
}

#[cfg(target_os = "linux")]
impl Tables {
    /// Returns the reason why the device cannot be opened exclusively.
    fn claim(&self, number: &str) -> Option<String> {
        let dir = self.sys.join(number);
        let of_itself = || self.use_of(number).map(|used| used.whole());
        // The directory of a partition is in the directory of its device.
        let of_whole = || {
            let whole = dir.canonicalize().ok().filter(|dir| dir.join("partition").exists())?;
            let used = self.use_of(&number_in(whole.parent()?)?)?;
            Some(format!("the whole device {}: {}", name_of(whole.parent()?), used.whole()))
        };
        let of_parts = || {
            let mut parts: Vec<PathBuf> = std::fs::read_dir(&dir).ok()?.flatten().map(|e| e.path()).collect();
            parts.retain(|part| part.join("partition").exists());
            parts.sort();
            parts.iter().find_map(|part| {
                let used = self.use_of(&number_in(part)?)?;
                Some(used.part(&name_of(part)))
            })
        };
        of_itself().or_else(of_whole).or_else(of_parts)
    }

    /// Returns the use of the device with this number, without its partitions.
    fn use_of(&self, number: &str) -> Option<Use> {
        let is_it = |path: &str| {
            path.starts_with("/dev/")
                && (self.number_of)(Path::new(&unescaped(path))).as_deref() == Some(number)
        };
        let mounted = self.mounts.lines().find_map(|line| {
            let mut words = line.split(' ');
            let (device, at) = (words.nth(2)?, words.nth(1)?);
            // A file system on several devices has its own number. Its source is one of these
            // devices.
            let source = line.split(" - ").nth(1).and_then(|rest| rest.split(' ').nth(1));
            (device == number || source.is_some_and(is_it)).then(|| Use::Mounted(unescaped(at)))
        });
        let swap =
            || self.swaps.lines().skip(1).any(|line| is_it(line.split(' ').next().unwrap_or_default()));
        let standing = || {
            let holders = std::fs::read_dir(self.sys.join(number).join("holders")).ok()?;
            let mut names: Vec<_> = holders.flatten().map(|h| name_of(&h.path())).collect();
            names.sort();
            (!names.is_empty()).then(|| Use::Under(names.join(", ")))
        };
        mounted.or_else(|| swap().then_some(Use::Swap)).or_else(standing)
    }
}

/// A use of a device.
#[cfg(target_os = "linux")]
enum Use {
    Mounted(String),
    Swap,
    /// Other devices are built on the device: LVM volumes, arrays, encryption.
    Under(String),
}

#[cfg(target_os = "linux")]
impl Use {
    fn whole(&self) -> String {
        match self {
            Use::Mounted(at) => format!("mounted at {at}"),
            Use::Swap => "in use as swap space".into(),
            Use::Under(names) => format!("used by {names}"),
        }
    }

    fn part(&self, part: &str) -> String {
        match self {
            Use::Mounted(at) => format!("its partition {part} is mounted at {at}"),
            Use::Swap => format!("its partition {part} is in use as swap space"),
            Use::Under(names) => format!("its partition {part} is used by {names}"),
        }
    }
}

/// Returns the number of the device that a directory of `/sys` describes.
#[cfg(target_os = "linux")]
fn number_in(dir: &Path) -> Option<String> {
    Some(std::fs::read_to_string(dir.join("dev")).ok()?.trim().to_owned())
}

#[cfg(target_os = "linux")]
fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Decodes a path from the kernel's tables, which write blanks and backslashes as octal numbers.
#[cfg(target_os = "linux")]
fn unescaped(path: &str) -> String {
    path.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Returns the use of a device, given a disk with three partitions, and another disk.
    fn told(number: &str, mounts: &str, swaps: &str, holders: &[(&str, &str)]) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        let (numbers, devices) = (dir.path().join("dev"), dir.path().join("devices"));
        fs::create_dir(&numbers).unwrap();
        for (name, at, number) in [
            ("sda", "sda", "8:0"),
            ("sda1", "sda/sda1", "8:1"),
            ("sda2", "sda/sda2", "8:2"),
            ("sda10", "sda/sda10", "8:10"),
            ("sdb", "sdb", "8:16"),
        ] {
            let device = devices.join(at);
            fs::create_dir_all(device.join("holders")).unwrap();
            fs::write(device.join("dev"), format!("{number}\n")).unwrap();
            if at.contains('/') {
                fs::write(device.join("partition"), "1\n").unwrap();
            }
            for (_, holder) in holders.iter().filter(|(held, _)| *held == name) {
                fs::write(device.join("holders").join(holder), "").unwrap();
            }
            symlink(device, numbers.join(number)).unwrap();
        }
        let number_of = |path: &Path| match path.to_str()? {
            "/dev/sda2" => Some("8:2".to_owned()),
            "/dev/my disk" => Some("8:16".to_owned()),
            _ => None,
        };
        let swaps = format!("Filename Type Size Used Priority\n{swaps}");
        Tables { sys: numbers, mounts: mounts.into(), swaps, number_of }.claim(number)
    }

    /// Processes in different containers can have the same number. These processes must not be
    /// confused.
    #[test]
    fn a_number_names_a_process_only_where_it_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let mine = std::process::id();
        let leave = |note: &str| {
            let mut bytes = vec![0; NOTE_OFFSET as usize];
            bytes.extend_from_slice(note.as_bytes());
            fs::write(&path, bytes).unwrap();
            (name(&path), is_gone(&path))
        };
        let nobody = (2..).find(|pid| !process_exists(*pid)).unwrap();
        let here = namespace().unwrap();
        for (note, holder, gone) in [
            (note(), "holder unknown".into(), false),
            (
                format!("process {mine} (app) of pid:[1]"),
                format!("process {mine} (app), in another container"),
                false,
            ),
            (
                format!("process {nobody} (app) of pid:[1]"),
                format!("process {nobody} (app), in another container"),
                false,
            ),
            (format!("process {nobody} (a of b) of {here}"), format!("process {nobody} (a of b)"), true),
            (format!("process {nobody} (old)"), format!("process {nobody} (old)"), true),
        ] {
            assert_eq!(leave(&note), (holder, gone), "{note}");
        }
    }

    #[test]
    fn whoever_uses_a_device_or_a_part_of_it_is_named() {
        let mounts = "22 28 0:5 / /proc rw - proc proc rw\n\
                      30 28 8:10 / /mnt/my\\040data rw,noatime shared:1 - ext4 /dev/sda10 rw\n\
                      31 28 0:44 /sub /pool rw - btrfs /dev/my\\040disk rw\n";
        let none: &[(&str, &str)] = &[];
        let held = &[("sda1", "md0"), ("sda1", "dm-3")];
        for (number, mounts, swaps, holders, words) in [
            ("8:10", mounts, "", none, Some("mounted at /mnt/my data")),
            ("8:0", mounts, "", none, Some("its partition sda10 is mounted at /mnt/my data")),
            ("8:16", mounts, "", none, Some("mounted at /pool")),
            ("8:2", "", "/dev/sda2 partition 1 0 -2\n", none, Some("in use as swap space")),
            (
                "8:0",
                "",
                "/dev/sda2 partition 1 0 -2\n",
                none,
                Some("its partition sda2 is in use as swap space"),
            ),
            ("8:1", "", "", held, Some("used by dm-3, md0")),
            ("8:0", "", "", held, Some("its partition sda1 is used by dm-3, md0")),
            ("8:2", "", "", &[("sda", "dm-0")], Some("the whole device sda: used by dm-0")),
            // A partition does not block another partition of the same disk.
            ("8:2", mounts, "", held, None),
            ("8:16", "", "/dev/sda2 partition 1 0 -2\n", held, None),
            ("9:9", mounts, "", held, None),
        ] {
            assert_eq!(told(number, mounts, swaps, holders).as_deref(), words, "{number}");
        }
    }
}
