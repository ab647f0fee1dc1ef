//! A file of the metrics, kept up to date while the store is open: for `brooklet top`, and for collectors of text files.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::Metrics;
use crate::engine::Inner;
use crate::error::Error;
use crate::store::Store;
use crate::sync::thread;

/// Where the metrics are written, and how often.
#[derive(Clone, Debug)]
pub(crate) struct MetricsFile {
    pub path: PathBuf,
    pub every: Duration,
}

impl MetricsFile {
    /// Where a whole document is written before it takes the place of the one before.
    pub fn part(&self) -> PathBuf {
        let mut part = self.path.clone().into_os_string();
        part.push(".part");
        part.into()
    }
}

impl Store {
    /// Begins to write the metrics, where that was asked for.
    pub(crate) fn publish_metrics(&self) -> Result<(), Error> {
        let inner = self.shared();
        let Some(file) = inner.options.metrics_file.clone() else { return Ok(()) };
        // A path that cannot be written to is better known now.
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.path.display()));
        write(&file, &inner).map_err(named).map_err(Error::io("writing the metrics"))?;
        let publish = inner.watched("the thread that writes metrics", move |inner| {
            let mut failed = false;
            while !inner.is_closing() {
                thread::park_timeout(file.every);
                let written = write(&file, inner);
                if let (Err(error), false) = (&written, failed) {
                    tracing::warn!(path = %file.path.display(), %error, "the metrics were not written; trying on");
                }
                failed = written.is_err();
            }
            // What a store says that is not open would only mislead.
            let _ = fs::remove_file(&file.path);
        });
        let thread = thread::Builder::new().name("brooklet-metrics".into()).spawn(publish);
        self.adopt_thread(thread.map_err(Error::io("starting a thread"))?);
        Ok(())
    }
}

/// Puts a whole document in the place of the one before.
fn write(file: &MetricsFile, inner: &Inner) -> io::Result<()> {
    let part = file.part();
    fs::write(&part, Metrics::of(&inner.activity()).to_string())?;
    fs::rename(part, &file.path)
}
