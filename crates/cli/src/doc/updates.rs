//! `doc history` and `doc changes`: the updates that a document has, once. Where the writer of the
//! store replaces what is still to be read, reading goes on at a later moment.

use brooklet_documents::{Documents, ErrorKind, Json, JsonChange, Update};

use super::Place;
use crate::beside::{Reader, Stop};
use crate::failure::Failure;

/// Which updates are printed.
#[derive(Clone, Copy, Default)]
pub struct Which {
    /// Updates after this version; `None` for all that the document still has.
    pub since: Option<u64>,
    /// The newest first. Only without a version.
    pub reverse: bool,
    pub limit: Option<usize>,
}

/// Updates that are still to be printed.
struct Rest<'a> {
    place: &'a Place,
    which: Which,
    left: usize,
    /// The version of the document at the first look. Later ones are not printed.
    head: Option<u64>,
    /// The version of the update that was printed last.
    last: Option<u64>,
}

/// Prints updates of a document.
pub fn print(
    place: &Place,
    which: Which,
    reader: &mut Reader<'_>,
    mut put: impl FnMut(&Update<JsonChange>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let left = which.limit.unwrap_or(usize::MAX);
    let mut rest = Rest { place, which, left, head: None, last: None };
    loop {
        let printed = place.documents(reader.store()).and_then(|documents| rest.print(&documents, &mut put));
        match printed {
            Err(Stop::Replaced(_)) => reader.reopen()?,
            printed => return Ok(printed?),
        }
    }
}

impl Rest<'_> {
    fn print(
        &mut self,
        documents: &Documents<Json>,
        put: &mut impl FnMut(&Update<JsonChange>) -> Result<(), Failure>,
    ) -> Result<(), Stop> {
        let name = self.place.name();
        let after = self.last.filter(|_| !self.which.reverse).or(self.which.since);
        let found = match after {
            Some(after) => documents.updates(name, after),
            None => documents.history(name),
        };
        // A call for all updates after a version fails if it cannot print them all.
        let goes_on = self.head.is_some() && self.which.since.is_none();
        let mut updates = match found {
            Ok(updates) => updates,
            Err(error) if goes_on && error.kind() == ErrorKind::OutOfHistory => {
                eprintln!("note: the document has lost updates meanwhile");
                documents.history(name)?
            }
            Err(error) if goes_on && error.kind() == ErrorKind::NotFound => {
                eprintln!("note: the document was deleted meanwhile");
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let head = *self.head.get_or_insert(updates.version());
        while self.left > 0 {
            let Some(update) = (if self.which.reverse { updates.next_back() } else { updates.next() }) else {
                break;
            };
            let update = update?;
            let is_printed = self.which.reverse && self.last.is_some_and(|last| update.version >= last);
            if update.version > head || is_printed {
                continue;
            }
            put(&update)?;
            (self.last, self.left) = (Some(update.version), self.left - 1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use brooklet::io::Rng;
    use brooklet_documents::{Options, Request};
    use serde_json::json;

    use super::*;
    use crate::testing::{ALONE, Place as Written};

    /// Prints updates of a document of version 40. Before the third printed update, `change` works
    /// on the document, and the store replaces all runs.
    fn versions(which: Which, change: fn(&Documents<Json>)) -> Vec<u64> {
        let written = Written::new();
        let options =
            || Options::new("documents/").snapshot_updates(1 << 20).snapshot_bytes(1 << 40).background(false);
        let documents = Documents::open(&written.store, Json::new(), options()).unwrap();
        documents.create("notes", Request::anonymous(), &json!({}).into()).unwrap();
        let mut rng = Rng::new(1);
        for version in 1..40 {
            let noise: String = (0..40_000).map(|_| char::from(b'a' + rng.below(26) as u8)).collect();
            let change = JsonChange::merge(json!({ "noise": noise }));
            documents.patch("notes", version, Request::anonymous(), &change).unwrap();
        }
        // The reader then need not read the updates before it prints them.
        documents.snapshot("notes", 100).unwrap();
        written.store.checkpoint().unwrap();
        let place = Place { store: written.path.clone(), name: "notes".into(), below: "documents/".into() };
        let mut reader = Reader::open_beside(&written.path, &ALONE).unwrap();
        let opened = reader.store().info().unwrap().generation;
        let mut printed = Vec::new();
        print(&place, which, &mut reader, |update| {
            printed.push(update.version);
            if printed.len() == 3 {
                change(&documents);
                written.merge();
            }
            Ok(())
        })
        .unwrap();
        assert_ne!(reader.store().info().unwrap().generation, opened, "nothing was replaced");
        printed
    }

    fn patch(documents: &Documents<Json>) {
        let change = JsonChange::merge(json!({"late": true}));
        documents.patch("notes", 40, Request::anonymous(), &change).unwrap();
    }

    fn shorten(documents: &Documents<Json>) {
        documents.snapshot("notes", 5).unwrap();
    }

    #[test]
    fn the_updates_that_are_left_follow() {
        let printed = versions(Which::default(), shorten);
        let (before, after): (Vec<u64>, Vec<u64>) = printed.iter().partition(|version| **version <= 35);
        assert!(before.len() >= 3 && before.len() < 34, "{printed:?}");
        assert_eq!(after, (36..41).collect::<Vec<_>>());
    }

    fn remake(documents: &Documents<Json>) {
        documents.delete("notes", 40).unwrap();
        documents.create("notes", Request::anonymous(), &json!({}).into()).unwrap();
    }

    #[test]
    fn updates_go_on_when_the_runs_are_replaced() {
        let all = Which::default();
        assert_eq!(versions(all, patch), (2..41).collect::<Vec<_>>());
        assert_eq!(versions(Which { reverse: true, ..all }, patch), (2..41).rev().collect::<Vec<_>>());
        let part = Which { since: Some(5), limit: Some(30), ..all };
        assert_eq!(versions(part, |_| ()), (6..36).collect::<Vec<_>>());
    }

    #[test]
    fn updates_of_a_document_that_is_made_again_meanwhile_end() {
        for reverse in [false, true] {
            let printed = versions(Which { reverse, ..Which::default() }, remake);
            let all = if reverse { (2..41).rev().collect() } else { (2..41).collect::<Vec<u64>>() };
            assert!(printed.len() >= 3 && printed.len() < 39 && all.starts_with(&printed), "{printed:?}");
        }
    }
}
