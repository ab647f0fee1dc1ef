//! What the system tells and does: bytes on the device, memory, space, caches.
//!
//! Bytes are counted by the device. What the system counts for a process (`write_bytes` in
//! `/proc/self/io`) is no use here: a page that is written twice before it goes to the device
//! counts once, the file system's own journal does not count, and where pages come in large folios
//! 200 bytes count as the whole folio.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Advice, fadvise, major, minor, stat, syncfs};
use rustix::time::{ClockId, clock_gettime};

use crate::outcome::Result;

/// Bytes that the device under a directory has been made to write so far, by anyone; `None` where
/// it does not tell.
pub fn device_bytes(dir: &Path) -> Option<u64> {
    let device = stat(dir).ok()?.st_dev;
    let path = format!("/sys/dev/block/{}:{}/stat", major(device), minor(device));
    let sectors: u64 = fs::read_to_string(path).ok()?.split_whitespace().nth(6)?.parse().ok()?;
    Some(sectors * 512)
}

/// What `act` makes the device under a directory write, with all that the file system still holds
/// back then.
pub fn count_written<T>(dir: &Path, act: impl FnOnce() -> Result<T>) -> Result<(T, Option<u64>)> {
    sync(dir)?;
    let before = device_bytes(dir);
    let done = act()?;
    sync(dir)?;
    Ok((done, device_bytes(dir).zip(before).map(|(after, before)| after - before)))
}

/// Time that the cores have spent for this process so far, in it or in the system on its behalf.
pub fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Writes whatever the file system under a directory still holds back.
pub fn sync(dir: &Path) -> Result<()> {
    Ok(syncfs(File::open(dir)?)?)
}

/// Context switches of the calling thread since it began, of its own will and not; `None` where the
/// system does not tell.
pub fn switches_of_thread() -> Option<u64> {
    switches(Path::new("/proc/thread-self/status"))
}

/// Context switches of all threads that live now, since each began.
pub fn switches_of_living() -> Option<u64> {
    let tasks = fs::read_dir("/proc/self/task").ok()?;
    // A thread that ends meanwhile counts as none.
    Some(tasks.flatten().map(|task| switches(&task.path().join("status")).unwrap_or(0)).sum())
}

/// Context switches of all threads that live now, since so many were counted.
pub fn switches_since(before: Option<u64>) -> Option<u64> {
    switches_of_living().zip(before).map(|(now, before)| now.saturating_sub(before))
}

fn switches(status: &Path) -> Option<u64> {
    let status = fs::read_to_string(status).ok()?;
    let lines = status.lines().filter_map(|line| line.split_once("voluntary_ctxt_switches:"));
    lines.map(|(_, count)| count.trim().parse::<u64>().ok()).sum()
}

/// Bytes of memory that belong to this process alone and cannot be dropped: not the pages of files.
pub fn own_memory() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib =
        line.and_then(|line| line.split_whitespace().next()).ok_or("no RssAnon in /proc/self/status")?;
    Ok(kib.parse::<u64>()? << 10)
}

/// Bytes on the disk of all files in a directory.
pub fn space(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    each_file(dir, &mut |path| {
        bytes += stat(path)?.st_blocks as u64 * 512;
        Ok(())
    })?;
    Ok(bytes)
}

/// Makes the system forget the contents of all files in a directory, but not the disk behind it.
pub fn evict(dir: &Path) -> Result<()> {
    sync(dir)?;
    each_file(dir, &mut |path| Ok(fadvise(File::open(path)?, 0, None, Advice::DontNeed)?))
}

fn each_file(dir: &Path, act: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() { each_file(&path, act)? } else { act(&path)? }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_tells() {
        let dir = tempfile::tempdir_in(".").unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/file"), vec![1; 1 << 20]).unwrap();
        evict(dir.path()).unwrap();
        assert!(space(dir.path()).unwrap() >= 1 << 20);
        assert!(own_memory().unwrap() > 64 << 10);
        let before = switches_of_thread().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1));
        let after = switches_of_thread().unwrap();
        assert!(after > before && switches_of_living().unwrap() >= after);
        let before = cpu();
        while cpu() == before {}
    }
}
