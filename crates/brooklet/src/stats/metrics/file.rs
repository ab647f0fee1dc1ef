//! Writes a file of the metrics again and again while the store is open: for `brooklet top`, and
//! for collectors of text files.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
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
            loop {
                inner.metrics_sleeper.sleep(Some(file.every));
                if inner.is_closing() {
                    break;
                }
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
        let thread = thread.map_err(Error::io("starting a thread"))?;
        self.metrics_sleeper.set_thread(thread.thread());
        self.keep_thread(thread);
        Ok(())
    }
}

/// Replaces the previous file by a whole new document.
fn write(file: &MetricsFile, inner: &Inner) -> io::Result<()> {
    let part = file.part();
    let permissions = inner.options.metrics_permissions;
    let mut new = match create(&part, permissions) {
        // A process that was killed left it.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            fs::remove_file(&part)?;
            create(&part, permissions)?
        }
        done => done?,
    };
    new.write_all(Metrics::from(&inner.activity()).to_string().as_bytes())?;
    fs::rename(part, &file.path)
}

/// Creates a file, and never follows a link: others may know the name, and may write to the folder.
fn create(path: &Path, permissions: u32) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create_new(true).mode(permissions).open(path)?;
    // The umask does not count: these permissions were asked for.
    file.set_permissions(Permissions::from_mode(permissions))?;
    Ok(file)
}
