//! Reading a store beside the process that writes it.
//!
//! A store that is read in this way is one moment. Its writer merges runs meanwhile, and a read of
//! a run that is gone fails ([`Stop::Replaced`]). The reader then opens the store again, at a later
//! moment. A log may have been trimmed, truncated, deleted or made again in between.

use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use brooklet::{Cut, Store};

use crate::failure::Failure;
use crate::signals;
use crate::store_args::StoreArgs;

/// Most moments at which something is looked up.
const TRIES: u32 = 50;
/// The pause between two looks at a store.
const PAUSE: Duration = Duration::from_millis(100);

/// Why a read ended early.
pub enum Stop {
    /// The process that writes the store has replaced the data: a later moment has it.
    Replaced(Failure),
    Failure(Failure),
}

/// A store that is opened for reading, and again at a later moment when its writer replaced data.
pub struct Reader<'a> {
    path: &'a Path,
    store_args: &'a StoreArgs,
    store: Store,
    /// Whether a note says that a log may have been cut without a trace.
    doubted: bool,
}

impl<'a> Reader<'a> {
    /// Opens a store; if another process writes it, beside that process, with a note.
    pub fn open(path: &'a Path, store_args: &'a StoreArgs) -> Result<Self, Failure> {
        let store = store_args.open_to_read(path)?;
        Ok(Self { path, store_args, store, doubted: false })
    }

    /// Opens a store, whether or not another process writes it.
    pub fn open_beside(path: &'a Path, store_args: &'a StoreArgs) -> Result<Self, Failure> {
        let store = store_args.open_beside(path)?;
        Ok(Self { path, store_args, store, doubted: false })
    }

    /// Returns the store as it was at the moment of the last opening.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Looks something up, at a later moment if its data was replaced meanwhile.
    pub fn look<T>(&mut self, look: impl Fn(&Store) -> Result<T, Stop>) -> Result<T, Failure> {
        for _ in 1..TRIES {
            match look(&self.store) {
                Err(Stop::Replaced(_)) => self.reopen()?,
                looked => return looked.map_err(Failure::from),
            }
        }
        look(&self.store).map_err(Failure::from)
    }

    /// Opens the store as it is now. Fails if the file has become another store.
    pub fn reopen(&mut self) -> Result<(), Failure> {
        let now = self.store_args.open_beside(self.path)?;
        if now.info()?.id != self.store.info()?.id {
            let path = self.path.display();
            return Err(Failure::no(format!("{path} is another store now: run the command again")));
        }
        self.store = now;
        Ok(())
    }

    /// Opens the store as it is now. Returns the first number from which the log has lost entries
    /// at its end since; the entries from there on are others now.
    pub fn reopen_log(&mut self, key: &[u8]) -> Result<Option<u64>, Failure> {
        let now = self.store_args.open_beside(self.path)?;
        let earlier = std::mem::replace(&mut self.store, now);
        match self.store.cut_since(&earlier, key)? {
            Cut::Nothing => Ok(None),
            Cut::From(cut) => Ok(Some(cut)),
            Cut::Unknown => {
                if !std::mem::replace(&mut self.doubted, true) {
                    eprintln!(
                        "note: the store is written faster than this command reads: if the log is truncated, or \
                         deleted and made again, no note may say so"
                    );
                }
                Ok(None)
            }
        }
    }

    /// Waits until the store shows something newer; `false` if the command was asked to stop.
    pub fn wait(&self) -> Result<bool, Failure> {
        while !self.store.is_outdated()? {
            if signals::asked() {
                return Ok(false);
            }
            thread::sleep(PAUSE);
        }
        Ok(true)
    }
}

impl From<brooklet::Error> for Stop {
    fn from(error: brooklet::Error) -> Self {
        match error {
            brooklet::Error::Replaced { .. } => Self::Replaced(error.into()),
            error => Self::Failure(error.into()),
        }
    }
}

impl From<brooklet_tags::Error> for Stop {
    fn from(error: brooklet_tags::Error) -> Self {
        match error {
            brooklet_tags::Error::Store(error) => error.into(),
            error => Self::Failure(error.into()),
        }
    }
}

impl From<brooklet_documents::Error> for Stop {
    fn from(error: brooklet_documents::Error) -> Self {
        match error {
            brooklet_documents::Error::Store(error) => error.into(),
            error => Self::Failure(error.into()),
        }
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Failure(error.into())
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<Stop> for Failure {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Replaced(failure) | Stop::Failure(failure) => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ALONE, Place};

    #[test]
    fn a_look_up_whose_data_is_replaced_is_done_again() {
        let place = Place::new();
        place.append("log", 40, 1);
        let mut reader = Reader::open_beside(&place.path, &ALONE).unwrap();
        place.merge();
        let bounds = |store: &Store| Ok(store.bounds("log")?);
        assert!(matches!(bounds(reader.store()), Err(Stop::Replaced(_))));
        assert_eq!(reader.look(bounds).unwrap().next, 40);
        let absent = reader.look(|store| Ok(store.bounds("absent")?)).unwrap_err();
        assert_eq!(absent.kind, crate::failure::Kind::NotFound);
    }

    #[test]
    fn a_look_up_whose_data_is_replaced_all_the_time_ends() {
        let place = Place::new();
        let mut reader = Reader::open_beside(&place.path, &ALONE).unwrap();
        let tries = std::cell::Cell::new(0);
        let replaced = |_: &Store| -> Result<(), _> {
            tries.set(tries.get() + 1);
            Err(Stop::Replaced(Failure::no("replaced")))
        };
        assert_eq!((reader.look(replaced).unwrap_err().message, tries.get()), ("replaced".into(), TRIES));
    }

    /// The ring of the store has room for less than the entries in between.
    #[test]
    fn a_log_that_may_have_been_cut_without_a_trace_is_noted() {
        let place = Place::new();
        place.append("log", 2, 1);
        let mut reader = Reader::open_beside(&place.path, &ALONE).unwrap();
        place.append("log", 2, 1);
        assert_eq!((reader.reopen_log(b"log").unwrap(), reader.doubted), (None, false));
        place.store.truncate("log", 1).unwrap().wait().unwrap();
        place.append("log", 40, 1);
        assert_eq!((reader.reopen_log(b"log").unwrap(), reader.doubted), (None, true));
    }

    #[test]
    fn another_store_with_the_same_name_has_other_logs() {
        let place = Place::new();
        place.append("log", 1, 1);
        let mut reader = Reader::open_beside(&place.path, &ALONE).unwrap();
        assert_eq!(reader.reopen_log(b"log").unwrap(), None);
        reader.reopen().unwrap();
        let other = Place::new();
        other.append("log", 1, 1);
        other.store.close().unwrap();
        std::fs::rename(&other.path, &place.path).unwrap();
        let refused = reader.reopen().unwrap_err().message;
        assert!(refused.ends_with("is another store now: run the command again"), "{refused}");
        assert_eq!(reader.reopen_log(b"log").unwrap(), Some(0));
    }
}
