//! The owner of a locked volume: read from the note that each store writes, and from the system's
//! tables of devices. This is a courtesy to users. Only the question whether the holder is gone
//! affects decisions.

use std::path::Path;
#[cfg(target_os = "linux")]
use std::path::PathBuf;

use brooklet_io::{SECTOR, is_open_here, process_exists, read_unlocked};

use crate::error::HERE;
use crate::format::superblock::{NOTE_OFFSET, read_note};

/// Where this process counts its processes: numbers say something only to those who count in the
/// same place, and in containers many have the same.
#[cfg(target_os = "linux")]
fn namespace() -> Option<String> {
    Some(std::fs::read_link("/proc/self/ns/pid").ok()?.to_string_lossy().into_owned())
}

#[cfg(not(target_os = "linux"))]
fn namespace() -> Option<String> {
    None
}

/// What this process leaves for those who find its store locked.
pub(crate) fn note() -> String {
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(Path::file_name).unwrap_or_default().display();
    let of = namespace().map_or(String::new(), |namespace| format!("{OF}{namespace}"));
    format!("process {} ({program}){of}", std::process::id())
}

/// Between a process and where its number counts.
const OF: &str = " of ";

/// Names the holder as well as can be.
pub(crate) fn name(path: &Path) -> String {
    if is_open_here(path) {
        let note = note();
        return format!("{HERE}: {}", Note::of(&note).process);
    }
    // What a mounted device bears at the note's place is somebody else's.
    let noted = || {
        let text = read_holder(path)?;
        let note = Note::of(&text);
        // The note of a process whose number this one got: the holder has left none yet.
        let outdated = note.counts_here() && note.number() == Some(std::process::id());
        (!outdated).then(|| note.name())
    };
    claimed_by(path).or_else(noted).unwrap_or_else(|| "holder unknown".into())
}

/// Whether the holder is known, and no more.
pub(crate) fn is_gone(path: &Path) -> bool {
    read_holder(path).is_some_and(|text| {
        let note = Note::of(&text);
        note.counts_here() && note.number().is_some_and(|number| !process_exists(number))
    })
}

/// What the note of a holder says.
struct Note<'a> {
    process: &'a str,
    /// Where its number counts; notes of older versions do not say.
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

/// Where a device is mounted, what stands on it, or which of its parts is in such use. A device
/// cannot be had while a partition of it is in use, nor a partition while the whole device is.
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

/// `major:minor` of the block device at `path`, if one is there.
#[cfg(target_os = "linux")]
fn device_number(path: &Path) -> Option<String> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};

    let found = std::fs::metadata(path).ok().filter(|found| found.file_type().is_block_device())?;
    let rdev = found.rdev();
    let (major, minor) = ((rdev >> 8) & 0xfff | (rdev >> 32) & !0xfff, rdev & 0xff | (rdev >> 12) & !0xff);
    Some(format!("{major}:{minor}"))
}

/// What the system tells of devices in use.
#[cfg(target_os = "linux")]
struct Tables {
    /// Directory with a link for each device, named by its number, to what is known of it.
    sys: PathBuf,
    /// Mounts, as in `/proc/self/mountinfo`.
    mounts: String,
    /// Swap spaces, as in `/proc/swaps`.
    swaps: String,
    /// The number of the device at a path.
    number_of: fn(&Path) -> Option<String>,
}

#[cfg(target_os = "linux")]
impl Tables {
    /// Why the device cannot be had.
    fn claim(&self, number: &str) -> Option<String> {
        let dir = self.sys.join(number);
        let of_itself = || self.use_of(number).map(|used| used.whole());
        // The directory of a partition lies in that of its device.
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

    /// What the device of that number by itself is used for.
    fn use_of(&self, number: &str) -> Option<Use> {
        let is_it = |path: &str| {
            path.starts_with("/dev/")
                && (self.number_of)(Path::new(&unescaped(path))).as_deref() == Some(number)
        };
        let mounted = self.mounts.lines().find_map(|line| {
            let mut words = line.split(' ');
            let (device, at) = (words.nth(2)?, words.nth(1)?);
            // A file system over several devices has a number of its own, and names one of them as
            // its source.
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

/// What a device is used for.
#[cfg(target_os = "linux")]
enum Use {
    Mounted(String),
    Swap,
    /// Other devices stand on it: volumes of LVM, arrays, encryption.
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

/// The number of the device that a directory of `/sys` tells of.
#[cfg(target_os = "linux")]
fn number_in(dir: &Path) -> Option<String> {
    Some(std::fs::read_to_string(dir.join("dev")).ok()?.trim().to_owned())
}

#[cfg(target_os = "linux")]
fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A path as the kernel's tables have it: blanks are told by their octal numbers.
#[cfg(target_os = "linux")]
fn unescaped(path: &str) -> String {
    path.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A disk of three partitions, and another one, as the system tells of them.
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

    /// Two processes in containers have the same number: neither is taken for the other.
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
            // Neighbours on the same disk are in nobody's way.
            ("8:2", mounts, "", held, None),
            ("8:16", "", "/dev/sda2 partition 1 0 -2\n", held, None),
            ("9:9", mounts, "", held, None),
        ] {
            assert_eq!(told(number, mounts, swaps, holders).as_deref(), words, "{number}");
        }
    }
}
