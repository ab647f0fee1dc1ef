//! `doc watch`: the updates that another process makes, as they become durable there.

use std::fmt;
use std::thread;
use std::time::Duration;

use brooklet::Store;
use brooklet_documents::{Documents, Error, ErrorKind, Json};
use serde::Serialize;

use super::Place;
use super::rows::{Document, Row};
use crate::failure::Failure;
use crate::output::Output;
use crate::signals;
use crate::store_args::StoreArgs;

/// The pause between two looks at the store.
const PAUSE: Duration = Duration::from_millis(100);

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
    while watch.left > 0 && !signals::asked() {
        let store = store_args.open_beside(&place.store)?;
        match watch.look(&place.documents(&store)?, out) {
            Ok(()) => out.flush()?,
            // The process that writes the store has merged the rest meanwhile.
            Err(Stop::Documents(Error::Store(brooklet::Error::Replaced { .. }))) => continue,
            Err(Stop::Documents(error)) => return Err(error.into()),
            Err(Stop::Failure(failure)) => return Err(failure),
        }
        if watch.left > 0 && !wait(&store)? {
            break;
        }
    }
    out.flush()
}

/// Why a look ended early.
enum Stop {
    Documents(Error),
    Failure(Failure),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Documents(error)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
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

/// Waits until there is something newer; `false` if the command was asked to stop.
fn wait(store: &Store) -> Result<bool, Failure> {
    while !store.is_outdated()? {
        if signals::asked() {
            return Ok(false);
        }
        thread::sleep(PAUSE);
    }
    Ok(true)
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
