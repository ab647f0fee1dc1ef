//! Writes a file of the metrics again and again while the store is open: for `brooklet top`, and
//! for collectors of text files.

use std::fs;
use std::io;
use std::sync::Arc;

use crate::engine::Inner;
use crate::error::Error;
use crate::options::MetricsFile;
use crate::stats::metrics::Metrics;
use crate::sync::thread;

impl Inner {
    /// Starts to write the metrics file, if the options name one.
    pub fn publish_metrics(self: &Arc<Self>) -> Result<(), Error> {
        let Some(file) = self.options.metrics_file.clone() else { return Ok(()) };
        // This first write reports a path that cannot be written to.
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.path.display()));
        write(&file, self).map_err(named).map_err(Error::io("writing the metrics"))?;
        let publish = self.watched("the thread that writes metrics", move |inner| {
            let mut failed = false;
            while !inner.is_closing() {
                thread::park_timeout(file.every);
                let written = write(&file, inner);
                if let (Err(error), false) = (&written, failed) {
                    tracing::warn!(path = %file.path.display(), %error, "the store could not write the metrics file; it retries");
                }
                failed = written.is_err();
            }
            // The metrics of a closed store would mislead.
            let _ = fs::remove_file(&file.path);
        });
        let thread = thread::Builder::new().name("brooklet-metrics".into()).spawn(publish);
        self.keep_thread(thread.map_err(Error::io("starting a thread"))?);
        Ok(())
    }
}

/// Replaces the previous file by a whole new document.
fn write(file: &MetricsFile, inner: &Inner) -> io::Result<()> {
    let part = file.part();
    fs::write(&part, Metrics::from(&inner.activity()).to_string())?;
    fs::rename(part, &file.path)
}
