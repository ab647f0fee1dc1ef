//! The paths of a store. The store resolves each path once, at opening; later changes of the
//! working directory do not affect the paths.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// The number of links in a row that the kernel follows.
const MOST_LINKS: usize = 40;

/// Returns the absolute path. If `may_be_made`, a symbolic link to nothing resolves to its target,
/// where a store can be created.
pub(crate) fn resolve(path: &Path, may_be_made: bool) -> Result<PathBuf, Error> {
    let whole = absolute(path)?;
    if !is_dangling(&whole) {
        return Ok(whole);
    }
    let target = follow(&whole);
    let has_folder = target.parent().is_some_and(Path::is_dir);
    if may_be_made && has_folder {
        return Ok(target);
    }
    let lacks = if has_folder {
        "which does not exist"
    } else {
        "whose folder does not exist: create the folder first"
    };
    let why = format!("it is a symbolic link to {}, {lacks}", target.display());
    Err(Error::io(format!("opening {}", whole.display()))(io::Error::new(ErrorKind::NotFound, why)))
}

/// Returns the absolute path, whether or not a file exists there.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(path).map_err(Error::io(format!("resolving the path {}", path.display())))
}

/// Returns whether both paths lead, or will lead, to the same file or place.
pub(crate) fn same(a: &Path, b: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    let place = |path: &Path| Some((path.parent()?.canonicalize().ok()?, path.file_name()?.to_owned()));
    let alike = |a: Option<_>, b: Option<_>| a.is_some() && a == b;
    a == b || alike(identity(a), identity(b)) || place(a).is_some() && place(a) == place(b)
}

fn is_dangling(path: &Path) -> bool {
    let is_link = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_symlink());
    is_link && fs::metadata(path).is_err_and(|e| e.kind() == ErrorKind::NotFound)
}

/// Returns the place to which links lead, as far as the links can be followed.
fn follow(path: &Path) -> PathBuf {
    let mut at = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(target) = fs::read_link(&at) else { break };
        // The target of a link is relative to the folder in which the link itself lies, not to
        // another link to that folder.
        let folder = at.parent().map(|folder| folder.canonicalize().unwrap_or(folder.to_owned()));
        at = folder.unwrap_or_default().join(target);
    }
    at
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_to_nothing_lead_to_where_a_store_can_be_made() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        fs::create_dir(at("disk")).unwrap();
        symlink("disk/first", at("link")).unwrap();
        symlink("second", at("disk/first")).unwrap();
        symlink("nowhere/third", at("lost")).unwrap();
        symlink("round", at("round")).unwrap();
        assert_eq!(resolve(&at("link"), true).unwrap(), at("disk/second"));
        for (name, made, words) in [
            ("link", false, "disk/second, which does not exist"),
            ("lost", true, "nowhere/third, whose folder does not exist"),
        ] {
            let error = resolve(&at(name), made).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains(&format!("{name} failed")), "{error}");
        }
        fs::write(at("disk/second"), "").unwrap();
        assert_eq!(
            resolve(&at("link"), false).unwrap(),
            at("link"),
            "what is there keeps the name it was given"
        );
        assert_eq!(resolve(&at("round"), true).unwrap(), at("round"), "opening will tell");
    }

    #[test]
    fn the_same_place_has_many_names() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("folder")).unwrap();
        symlink("folder", at("too")).unwrap();
        assert!(same(&at("folder/a"), &at("too/a")) && !same(&at("folder/a"), &at("a")));
        fs::write(at("a"), "").unwrap();
        fs::hard_link(at("a"), at("b")).unwrap();
        assert!(same(&at("a"), &at("b")) && !same(&at("a"), &at("folder")));
        assert!(!same(&at("none/a"), &at("none/b")) && same(&at("none/a"), &at("none/a")));
    }
}
