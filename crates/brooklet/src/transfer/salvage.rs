//! Salvage: reads all undamaged entries of a view that is partly damaged.

use crate::error::Error;
use crate::model::Bounds;
use crate::read::Entries;
use crate::read::scan::Logs;
use crate::store::view::View;
use crate::store::walk::{Walk, WalkItem};

/// An iterator over the undamaged logs and entries of a view; see [`View::salvage`].
pub struct Salvage<'a> {
    view: &'a View,
    prefix: Vec<u8>,
    at: At,
    /// The remaining entries of the current log.
    entries: Option<Entries>,
    /// The current log, and the number of its next entry.
    log: Option<(Vec<u8>, u64)>,
}

enum At {
    /// Reads all logs from front to back, until the first damage.
    Walk(Box<Walk>),
    /// Reads log by log.
    Logs(Box<Logs>),
    End,
}

impl View {
    /// Iterates over the logs whose keys start with `prefix`, like [`walk`](Self::walk), but does
    /// not end at damage. A readable log is returned as a whole. For a log with damage inside, the
    /// iterator returns the entries before the damage, and then an [`Error::Damaged`] that names
    /// the damage. A log of which nothing is certain is not returned. For such logs, the iterator
    /// ends with an error that names the range of their keys.
    ///
    /// After the first damage, the iterator reads log by log. That takes several times as long as a
    /// walk.
    ///
    /// # Errors
    /// [`Error::Io`] if runs cannot be read.
    pub fn salvage(&self, prefix: impl AsRef<[u8]>) -> Result<Salvage<'_>, Error> {
        let prefix = prefix.as_ref().to_vec();
        let at = match self.walk(&prefix) {
            Ok(walk) => At::Walk(Box::new(walk)),
            Err(Error::Damaged { .. }) => At::Logs(Box::new(self.scan_from(&prefix, b"")?)),
            Err(error) => return Err(error),
        };
        Ok(Salvage { view: self, prefix, at, entries: None, log: None })
    }
}

impl Salvage<'_> {
    fn step(&mut self) -> Option<Result<WalkItem, Error>> {
        loop {
            match &mut self.at {
                At::Walk(walk) => match walk.next() {
                    Some(Err(Error::Damaged { .. })) if !walk.is_through() => {
                        if let Err(error) = self.go_on_by_logs() {
                            return Some(Err(error));
                        }
                    }
                    walked => return walked,
                },
                At::Logs(logs) => {
                    if let Some(entry) = self.entries.as_mut().and_then(Iterator::next) {
                        return Some(entry.map(WalkItem::Entry));
                    }
                    self.entries = None;
                    let log = match logs.next()? {
                        Ok(log) => log,
                        Err(error) => return Some(Err(error)),
                    };
                    match self.view.read(&log.key, ..) {
                        Ok(all) => self.entries = Some(all),
                        Err(error) => return Some(Err(error)),
                    }
                    return Some(Ok(WalkItem::Log(log)));
                }
                At::End => return None,
            }
        }
    }

    /// Continues log by log: first with the rest of the current log, then with the logs after it.
    fn go_on_by_logs(&mut self) -> Result<(), Error> {
        let (mut from, mut rest) = (Vec::new(), Ok(None));
        if let Some((key, next)) = self.log.take() {
            let is_left = |bounds: Bounds| next < bounds.next;
            let left = self.view.bounds(&key).map(is_left);
            rest = left.and_then(|left| left.then(|| self.view.read(&key, next..)).transpose());
            from = key;
            // The smallest key after `key`.
            from.push(0);
        }
        self.at = At::Logs(Box::new(self.view.scan_from(&self.prefix, &from)?));
        self.entries = rest?;
        Ok(())
    }
}

impl Iterator for Salvage<'_> {
    type Item = Result<WalkItem, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        match &step {
            Some(Ok(WalkItem::Log(log))) => self.log = Some((log.key.clone(), log.bounds.first)),
            Some(Ok(WalkItem::Entry(entry))) => {
                self.log = self.log.take().map(|(key, _)| (key, entry.seq + 1));
            }
            Some(Err(Error::Damaged { .. })) => {}
            // Any other error ends the iteration.
            Some(Err(_)) | None => self.at = At::End,
        }
        step
    }
}

impl std::fmt::Debug for Salvage<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Salvage(\"{}…\")", self.prefix.escape_ascii())
    }
}
