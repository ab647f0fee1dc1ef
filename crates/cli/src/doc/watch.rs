//! `doc watch`: the updates that another process makes, as they become durable there.

use std::fmt;

use brooklet_documents::{Documents, ErrorKind, Json};
use serde::Serialize;

use super::Place;
use super::rows::{Document, Row};
use crate::beside::{Reader, Stop};
use crate::failure::Failure;
use crate::output::Output;
use crate::signals;
use crate::store_args::StoreArgs;

/// The reader of one document.
struct Watch<'a> {
    name: &'a [u8],
    /// The version that was printed last; `None` if there is no document.
    known: Option<u64>,
    /// Rows that are still to be printed.
    left: usize,
}

/// Prints the updates after a version, or the document, and goes on with the updates that follow.
pub fn run(
    place: &Place,
    since: Option<u64>,
    limit: Option<usize>,
    store_args: &StoreArgs,
    out: &mut Output,
) -> Result<(), Failure> {
    signals::listen_quietly()?;
    let mut watch = Watch { name: place.name(), known: since, left: limit.unwrap_or(usize::MAX) };
    let mut reader = Reader::open_beside(&place.store, store_args)?;
    while watch.left > 0 && !signals::asked() {
        match place.documents(reader.store()).and_then(|documents| watch.look(&documents, out)) {
            Ok(()) => {
                out.flush()?;
                if watch.left > 0 && !reader.wait()? {
                    break;
                }
            }
            Err(Stop::Replaced(_)) => {}
            Err(Stop::Failure(failure)) => return Err(failure),
        }
        reader.reopen()?;
    }
    out.flush()
}

impl Watch<'_> {
    /// Prints what the store shows beyond the version that was printed last.
    fn look(&mut self, documents: &Documents<Json>, out: &mut Output) -> Result<(), Stop> {
        let Some(head) = documents.version(self.name)? else {
            if self.known.take().is_some() {
                out.put(&Gone { deleted: true })?;
                self.left -= 1;
            }
            return Ok(());
        };
        match self.known {
            Some(known) if known == head => Ok(()),
            Some(known) => match documents.updates(self.name, known) {
                Ok(updates) => {
                    for update in updates.take(self.left) {
                        let update = update?;
                        out.put(&Row::new(&update))?;
                        (self.known, self.left) = (Some(update.version), self.left - 1);
                    }
                    Ok(())
                }
                // Snapshots dropped them, or the document is another one.
                Err(error) if error.kind() == ErrorKind::OutOfHistory && known < head => {
                    eprintln!(
                        "note: the history has no updates after version {known}; the document follows as it is"
                    );
                    self.whole(documents, out)
                }
                Err(error) => Err(error.into()),
            },
            None => self.whole(documents, out),
        }
    }

    fn whole(&mut self, documents: &Documents<Json>, out: &mut Output) -> Result<(), Stop> {
        let Some(found) = documents.get(self.name)? else { return Ok(()) };
        out.put(&Document::new(self.name, found.version, found.state.value()))?;
        (self.known, self.left) = (Some(found.version), self.left - 1);
        Ok(())
    }
}

/// A document that is gone.
#[derive(Serialize)]
struct Gone {
    deleted: bool,
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("deleted")
    }
}
