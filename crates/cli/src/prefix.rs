//! The choice of keys by a prefix: an argument, or an option with the same meaning.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// The choice of keys, or of tags, by a prefix.
#[derive(clap::Args)]
#[group(id = "by_prefix", multiple = false)]
pub struct Prefix {
    /// First bytes of the keys or tags to take [default: take all]
    #[arg(value_name = "PREFIX")]
    below: Option<OsString>,
    /// The same as the argument PREFIX
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<OsString>,
}

impl Prefix {
    /// Returns the prefix, if there is one.
    pub fn get(&self) -> Option<&[u8]> {
        self.below.as_deref().or(self.prefix.as_deref()).map(OsStrExt::as_bytes)
    }

    /// Returns the prefix; without one, the prefix of all keys.
    pub fn bytes(&self) -> &[u8] {
        self.get().unwrap_or_default()
    }
}
