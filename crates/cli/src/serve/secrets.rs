//! The secrets of a server: password files, files that others can read, and what is not shown.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::failure::{Failure, Kind};

/// Most bytes of a password file.
const LONGEST: u64 = 4096;

/// Reads a password from a file: its only line.
pub fn read(path: &Path) -> Result<String, Failure> {
    let doing = || format!("reading {}", path.display());
    let file = File::open(path).map_err(Failure::opening(path))?;
    warn_if_shared(&file, path, "the password");
    let mut text = String::new();
    file.take(LONGEST + 1).read_to_string(&mut text).map_err(Failure::io(doing()))?;
    if text.len() as u64 > LONGEST {
        let what = format!("it is longer than {LONGEST} bytes: write the password alone to it");
        return Err(Failure::malformed(path, what));
    }
    let mut lines = text.lines();
    match (lines.next().unwrap_or_default(), lines.next()) {
        ("", _) => Err(Failure::malformed(path, "its first line is empty: write the password to it")),
        (_, Some(_)) => Err(Failure::malformed(path, "it has several lines: write the password alone to it")),
        (password, None) => Ok(password.to_owned()),
    }
}

/// Warns of a file with a secret that every user of the machine can read.
pub fn warn_if_shared(file: &File, path: &Path, secret: &str) {
    let is_shared =
        file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o004 != 0);
    if is_shared {
        tracing::warn!(
            file = %path.display(),
            "every user of this machine can read {secret}: take the permission away with chmod o-r"
        );
    }
}

/// Returns whether an address of a log names a stream of NATS JetStream, and no bucket.
pub fn is_stream(address: &str) -> bool {
    ["nats://", "tls://"].iter().any(|scheme| address.starts_with(scheme))
}

/// Secrets as `--print-config` shows them.
pub struct Hidden;

impl Hidden {
    /// What stands for a secret.
    pub const TEXT: &str = "(hidden)";

    /// Returns the rules of a user without the passwords in them.
    pub fn rules(rules: &str) -> String {
        let shown = rules.split_whitespace().map(|rule| match rule.split_at_checked(1) {
            Some((sign @ (">" | "<" | "#" | "!"), _)) => format!("{sign}{}", Self::TEXT),
            _ => rule.to_owned(),
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    /// Returns the address of a log without the password or token in it.
    pub fn address(address: &str) -> String {
        match (address.split_once("://"), address.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, rest))) if is_stream(address) => {
                format!("{scheme}://{}@{rest}", Self::TEXT)
            }
            _ => address.to_owned(),
        }
    }

    /// Refuses settings that were printed and not completed: everybody knows what stands for a
    /// secret.
    pub fn refuse<'a>(texts: impl Iterator<Item = &'a String>) -> Result<(), Failure> {
        for text in texts {
            let is_hidden = text.contains(&format!("://{}@", Self::TEXT));
            if is_hidden || text.split_whitespace().any(|word| word.ends_with(Self::TEXT)) {
                let what = "a password is (hidden), as --print-config shows it: write the password itself";
                return Err(Failure::new(Kind::Usage, what));
            }
        }
        Ok(())
    }
}
