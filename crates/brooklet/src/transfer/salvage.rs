//! What is left of the logs of a view of which some is damaged.

use crate::error::Error;
use crate::model::Bounds;
use crate::read::Entries;
use crate::read::scan::Logs;
use crate::store::view::{View, Walk, WalkItem};

/// What is left of some logs, as [`View::salvage`] gives it.
pub struct Salvage<'a> {
    view: &'a View,
    prefix: Vec<u8>,
    at: At,
    /// The rest of a log.
    entries: Option<Entries>,
    /// The log that it is at, and the number of the entry that comes next.
    log: Option<(Vec<u8>, u64)>,
}

enum At {
    /// All is read from front to back, as long as nothing is damaged.
    Walk(Box<Walk>),
    /// Log by log.
    Logs(Box<Logs>),
    End,
}

impl View {
    /// As [`walk`](Self::walk), around what is damaged: an error does not end it. Logs that can be
    /// read come whole. Of one that is damaged in its midst, entries come up to an
    /// [`Error::Damaged`] that names it. Logs of which nothing is certain do not come; an error at
    /// the end says in which stretch of keys they are.
    ///
    /// From the first damage on it reads log by log, which takes several times as long as a walk.
    ///
    /// # Errors
    /// [`Error::Io`] where runs cannot be read.
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

    /// Goes on with the log that it is at, and those behind it.
    fn go_on_by_logs(&mut self) -> Result<(), Error> {
        let (mut from, mut rest) = (Vec::new(), Ok(None));
        if let Some((key, next)) = self.log.take() {
            let is_left = |bounds: Bounds| next < bounds.next;
            let left = self.view.bounds(&key).map(is_left);
            rest = left.and_then(|left| left.then(|| self.view.read(&key, next..)).transpose());
            from = key;
            // The least key behind it.
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
            // What fails for another reason ends it.
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
