//! The names of volumes: the operations of a file system that a store needs besides its volumes.
//!
//! Until a folder is synced, a power cut may undo the creation or the removal of a name.
//! [`MemFiles`](crate::MemFiles) models this.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::file::sync_folder;
use crate::seeded::bug;
use crate::{FileOptions, FileVolume, OpenMode, Volume};

/// A set of volumes with paths.
///
/// # Errors
/// The operating system's errors for these operations on paths.
pub trait Files: Send + Sync + fmt::Debug {
    /// Opens or creates the volume at `path`. Its name is then durable, unless the volume is opened
    /// for reading only.
    fn open(&self, path: &Path, mode: OpenMode, options: FileOptions) -> io::Result<Arc<dyn Volume>>;

    /// Returns whether something exists at `path`.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Adds the second name `to`, which must not exist, to the volume at `from`.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Renames the volume at `from` to `to`, and replaces any volume of that name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a name.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in the folder of `path` durable.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
}

/// The files and block devices of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemFiles;

impl Files for SystemFiles {
    fn open(&self, path: &Path, mode: OpenMode, options: FileOptions) -> io::Result<Arc<dyn Volume>> {
        Ok(Arc::new(FileVolume::open(path, mode, options)?))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        sync_folder(path)
    }
}

/// Gives the volume `draft` the name `path`, durably, unless that name exists. Returns `false` if
/// it exists; `draft` then stays.
///
/// # Errors
/// The errors of these operations. The volume may have its new name even so.
pub fn publish(files: &dyn Files, draft: &Path, path: &Path) -> io::Result<bool> {
    match files.link(draft, path) {
        // A name that is left over does no harm.
        Ok(()) => drop(files.remove(draft)),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
        // Without links, two creators of the same store at the same moment are not detected.
        Err(e) if matches!(e.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied) => {
            files.rename(draft, path)?;
        }
        Err(e) => return Err(e),
    }
    if !bug("folder-is-not-synced") {
        files.sync_folder(path)?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publishing_never_takes_a_name_from_another() {
        let dir = tempfile::tempdir().unwrap();
        let [draft, name, none] = ["draft", "name", "none"].map(|name| dir.path().join(name));
        fs::write(&draft, "first").unwrap();
        assert!(publish(&SystemFiles, &draft, &name).unwrap() && !draft.exists());
        fs::write(&draft, "second").unwrap();
        assert!(!publish(&SystemFiles, &draft, &name).unwrap() && draft.exists());
        assert_eq!(fs::read(&name).unwrap(), b"first");
        let missing = publish(&SystemFiles, &none, &dir.path().join("new")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn names_in_memory_come_and_go_as_on_this_machine() {
        let dir = tempfile::tempdir().unwrap();
        let [one, two, three] = ["one", "two", "three"].map(|name| dir.path().join(name));
        for files in [&SystemFiles as &dyn Files, &crate::MemFiles::new(1)] {
            let open = |path, mode| files.open(path, mode, FileOptions::default()).map(drop);
            let kind = |done: io::Result<()>| done.unwrap_err().kind();
            open(&one, OpenMode::Create).unwrap();
            assert_eq!(kind(open(&one, OpenMode::Create)), io::ErrorKind::AlreadyExists, "{files:?}");
            assert_eq!(kind(open(&two, OpenMode::ReadWrite)), io::ErrorKind::NotFound, "{files:?}");
            files.link(&one, &two).unwrap();
            assert_eq!(kind(files.link(&one, &two)), io::ErrorKind::AlreadyExists, "{files:?}");
            files.rename(&two, &three).unwrap();
            let there = [&one, &two, &three].map(|path| files.exists(path).unwrap());
            assert_eq!(there, [true, false, true], "{files:?}");
            files.remove(&one).unwrap();
            assert_eq!(kind(files.remove(&one)), io::ErrorKind::NotFound, "{files:?}");
            files.sync_folder(&three).unwrap();
            open(&three, OpenMode::ReadWrite).unwrap();
        }
    }

    #[test]
    fn a_power_cut_takes_back_what_was_not_synced() {
        let files = crate::MemFiles::new(1);
        let [one, two] = ["/one", "/two"].map(Path::new);
        files.open(one, OpenMode::Create, FileOptions::default()).unwrap();
        files.link(one, two).unwrap();
        files.remove(one).unwrap();
        let left = |seed| [one, two].map(|path| files.crashed(seed).exists(path).unwrap());
        let mut found: Vec<_> = (0..100).map(left).collect();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found, [[false, false], [false, true], [true, false], [true, true]]);
        files.sync_folder(two).unwrap();
        assert!((0..100).map(left).all(|left| left == [false, true]));
    }
}
