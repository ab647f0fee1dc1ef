//! A replica of a document, which a watch keeps up to date.

use brooklet_documents::{Documents, Error, Event, Json, Watch};
use serde_json::Value;

use super::plain::{PlainDoc, changed};

pub struct Watcher {
    pub name: &'static str,
    watch: Watch<Json>,
    replica: Option<(u64, Value)>,
    pub missed: u64,
}

impl Watcher {
    /// Begins to follow a document. Returns `None` if the store failed.
    pub fn new(documents: &Documents<Json>, name: &'static str, from: Option<(u64, Value)>) -> Option<Self> {
        let version = from.as_ref().map_or(0, |(version, _)| *version);
        match documents.watch(name, version) {
            Ok(watch) => Some(Self { name, watch, replica: from, missed: 0 }),
            Err(Error::Store(_)) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Takes all events that there are. Returns `false` if the store failed.
    pub fn follow(&mut self, documents: &Documents<Json>) -> bool {
        loop {
            match self.watch.try_next() {
                Ok(None) => return true,
                Err(_) => return false,
                Ok(Some(Event::Update(update))) => {
                    let (version, value) = self.replica.take().expect("an update is of a document");
                    assert_eq!(update.version, version + 1, "no gap and no duplicate");
                    let after = changed(&value, &update.change).expect("a stored change applies");
                    if let Some(undo) = &update.undo {
                        assert_eq!(changed(&after, undo), Some(value), "the undo leads back");
                    }
                    self.replica = Some((update.version, after));
                }
                Ok(Some(Event::Created { version, state, .. })) => {
                    assert_eq!(self.replica, None, "a creation follows nothing or a deletion");
                    self.replica = Some((version, state.value().clone()));
                }
                Ok(Some(Event::Deleted)) => {
                    assert!(self.replica.take().is_some(), "a deletion is of a document");
                }
                Ok(Some(Event::Missed { to, .. })) => {
                    self.missed += 1;
                    // The history may have gone on meanwhile: then the next event is another miss.
                    match documents.at(self.name, to) {
                        Ok(found) => self.replica = Some((to, found.state.value().clone())),
                        Err(_) => match documents.get(self.name) {
                            Ok(found) => {
                                let Some(found) = found else { return self.anew(documents, None) };
                                let now = (found.version, found.state.value().clone());
                                return self.anew(documents, Some(now));
                            }
                            Err(_) => return false,
                        },
                    }
                }
                Ok(Some(other)) => panic!("{other:?}"),
            }
        }
    }

    fn anew(&mut self, documents: &Documents<Json>, now: Option<(u64, Value)>) -> bool {
        let missed = self.missed;
        let Some(anew) = Self::new(documents, self.name, now) else { return false };
        *self = anew;
        self.missed = missed;
        self.follow(documents)
    }

    /// Compares the replica with the model, after all is durable.
    pub fn check(&self, plain: Option<&PlainDoc>) {
        let expected = plain.map(|doc| (doc.head(), doc.now().clone()));
        assert_eq!(self.replica, expected, "watch of {}", self.name);
    }
}
