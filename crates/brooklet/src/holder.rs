//! Who has a volume open that cannot be had: from the note that each store leaves, and from what the system tells of
//! devices. A courtesy to people; only whether the holder is gone decides anything.

use std::path::Path;

use brooklet_io::{SECTOR, process_exists, read_unlocked};

use crate::superblock::{NOTE_OFFSET, read_note};

/// Names the holder as well as can be.
pub(crate) fn name(path: &Path) -> String {
    // What a mounted device bears at the note's place is somebody else's.
    let holder = claimed_by(path).or_else(|| read_holder(path));
    holder.unwrap_or_else(|| "holder unknown".into())
}

/// Whether the holder is known, and no more.
pub(crate) fn is_gone(path: &Path) -> bool {
    let holder = read_holder(path);
    let pid = holder.as_deref().and_then(|h| h.strip_prefix("process ")?.split(' ').next()?.parse().ok());
    pid.is_some_and(|pid| !process_exists(pid))
}

fn read_holder(path: &Path) -> Option<String> {
    read_unlocked(path, NOTE_OFFSET, SECTOR).ok().and_then(|bytes| read_note(&bytes))
}

/// Where a device is mounted, or which devices stand on it.
#[cfg(target_os = "linux")]
fn claimed_by(path: &Path) -> Option<String> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};

    let found = std::fs::metadata(path).ok().filter(|found| found.file_type().is_block_device())?;
    let rdev = found.rdev();
    let (major, minor) = ((rdev >> 8) & 0xfff | (rdev >> 32) & !0xfff, rdev & 0xff | (rdev >> 12) & !0xff);
    let number = format!("{major}:{minor}");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounted = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(2);
        (words.next()? == number).then_some(())?;
        words.nth(1).map(|at| format!("mounted at {at}"))
    });
    let standing = || {
        let holders = std::fs::read_dir(format!("/sys/dev/block/{number}/holders")).ok()?;
        let names: Vec<_> = holders.flatten().map(|h| h.file_name().to_string_lossy().into_owned()).collect();
        (!names.is_empty()).then(|| format!("{} stands on it", names.join(", ")))
    };
    mounted.or_else(standing)
}

#[cfg(not(target_os = "linux"))]
fn claimed_by(_: &Path) -> Option<String> {
    None
}
