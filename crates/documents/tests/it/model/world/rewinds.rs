//! Rewinds of the world: to any version, and presses of a button for undo.

use brooklet_documents::{Answer, Error};

use super::World;

impl World {
    pub(super) fn rewind(&mut self) -> bool {
        let name = self.name();
        let Some(doc) = self.now().docs.get(name) else { return true };
        let (head, created) = (doc.head(), doc.created());
        let to = created.saturating_sub(1) + self.rng.below(head - created + 2);
        self.rewind_to(name, to)
    }

    /// Presses a button for undo, or two in turns, until nothing is left to undo.
    pub(super) fn undo_on_and_on(&mut self) -> bool {
        let name = self.name();
        let (presses, redo) = (4 + self.rng.below(16), self.rng.percent(30));
        for press in 0..presses {
            let Some(doc) = self.now().docs.get(name) else { return true };
            let head = doc.head();
            let now_at = *doc.back.get(&head).unwrap_or(&head);
            let to = if redo && press % 2 == 1 { head - 1 } else { now_at.saturating_sub(1) };
            if to < self.kept_from[&(name, doc.created())] {
                return true;
            }
            if !self.rewind_to(name, to) {
                return false;
            }
            self.counts.undos += 1;
        }
        true
    }

    fn rewind_to(&mut self, name: &'static str, to: u64) -> bool {
        let id = self.id();
        let doc = self.now().docs[name].clone();
        let (head, created) = (doc.head(), doc.created());
        let kept_from = self.kept_from[&(name, created)];
        let mut after = self.now().clone();
        if let Some(value) = doc.versions.get(&to) {
            let doc = after.docs.get_mut(name).unwrap();
            let version = doc.add(&id, "rewind", value.clone());
            doc.back.insert(version, to);
        }
        match self.documents.rewind(name, head, id.as_str(), to) {
            Ok(answer) => {
                assert!(to < head && to >= created);
                assert_eq!(answer, Answer { version: head + 1, repeated: false });
                self.counts.rewinds += 1;
                self.wrote(after, vec![name]);
            }
            Err(Error::NoSuchVersion { .. }) => assert!(to >= head),
            Err(Error::HistoryGone { .. }) => assert!(to < kept_from, "{to} is in reach from {kept_from} on"),
            Err(Error::Store(_)) => {
                self.wrote(after, vec![name]);
                return false;
            }
            Err(error) => panic!("{error}"),
        }
        self.answered(name);
        true
    }
}
