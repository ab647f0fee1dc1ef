//! The arguments for opening a store, besides the path of its file or device.

use std::path::{Path, PathBuf};
use std::time::Duration;

use brooklet::{Create, Options, Store};
#[cfg(feature = "archive")]
use brooklet_archive::{Bucket, Parts};

#[cfg(feature = "archive")]
use crate::bucket::open_to_read;
use crate::failure::Failure;
use crate::mode::Mode;

/// Memory for reading ahead in offloaded runs, in bytes.
#[cfg(feature = "archive")]
const READ_AHEAD: usize = 32 << 20;
/// The interval at which a store writes its metrics file.
const TOLD: Duration = Duration::from_secs(1);

/// Other places of a store's data.
#[derive(clap::Args)]
pub struct StoreArgs {
    /// The store's ring, if the ring has a file or block device of its own
    #[arg(long, global = true, value_name = "PATH")]
    pub ring: Option<PathBuf>,
    /// The store's archive, if runs of the store were offloaded
    #[arg(long, global = true, value_name = "BUCKET")]
    pub archive: Option<String>,
    /// A file for the store's metrics, written every second while the command works: see `top`
    #[arg(long, global = true, value_name = "FILE")]
    pub metrics: Option<PathBuf>,
    /// Permissions of that file, for a collector that is another user, such as 644 [default: 600]
    #[arg(long, global = true, value_name = "MODE", requires = "metrics")]
    pub metrics_mode: Option<Mode>,
}

impl StoreArgs {
    /// Returns whether no argument is set.
    pub fn is_empty(&self) -> bool {
        self.ring.is_none() && self.archive.is_none() && self.metrics.is_none()
    }

    /// Returns the options of an existing store.
    pub fn options(&self) -> Result<Options, Failure> {
        let mut options = Options::new().create(Create::Never);
        if let Some(ring) = &self.ring {
            options = options.ring_at(ring);
        }
        if let Some(metrics) = &self.metrics {
            options = options.metrics_file(metrics, TOLD);
        }
        if let Some(mode) = self.metrics_mode {
            options = options.metrics_permissions(mode.0);
        }
        match &self.archive {
            #[cfg(feature = "archive")]
            Some(address) => Ok(with_parts(options, &open_to_read(address)?)),
            #[cfg(not(feature = "archive"))]
            Some(_) => Err(crate::missing::refuse("archives", "archive")),
            None => Ok(options),
        }
    }

    /// Returns the options of an existing store whose archive is in this bucket, unless the
    /// arguments name another one.
    #[cfg(feature = "archive")]
    pub fn options_with(&self, bucket: &Bucket) -> Result<Options, Failure> {
        let options = self.options()?;
        Ok(if self.archive.is_some() { options } else { with_parts(options, bucket) })
    }

    /// Opens an existing store for reading only; while another process writes it, beside that
    /// process.
    pub fn open_to_read(&self, path: &Path) -> Result<Store, Failure> {
        match self.options()?.read_only(true).open(path) {
            Err(brooklet::Error::Locked { holder, .. }) => {
                let store = self.open_beside(path)?;
                eprintln!(
                    "note: {} is open in another process ({holder}); this shows what was on stable media just now",
                    path.display()
                );
                Ok(store)
            }
            done => Ok(done?),
        }
    }

    /// Opens a store for reading only, whether or not another process writes it.
    pub fn open_beside(&self, path: &Path) -> Result<Store, Failure> {
        Ok(self.options()?.beside_writer(true).open(path)?)
    }

    /// Opens an existing store.
    pub fn open(&self, path: &Path) -> Result<Store, Failure> {
        Ok(self.options()?.open(path)?)
    }
}

#[cfg(feature = "archive")]
fn with_parts(options: Options, bucket: &Bucket) -> Options {
    let parts = Parts::new(bucket, READ_AHEAD);
    options.offload_reader(move |name| parts.open(name))
}
