//! Compares the notes of a table with its heads, entry after entry of a check.

use brooklet_codex::{Noted, OrderedNotes, Reader, Source};

use crate::error::KeyText;
use crate::format::bounds_note;
use crate::format::log_hash::LogHash;
use crate::format::run_entry::split_key;

/// A fault that the comparison found.
pub(crate) enum Fault {
    /// A page of notes could not be read, or is damaged.
    Unread(brooklet_codex::Error),
    /// All checksums hold, but the notes and the heads differ.
    Contradiction(String),
}

pub(crate) struct NotesCheck<'t, S: Source> {
    notes: OrderedNotes<'t, S>,
    seed: u64,
    heads: u64,
    fault: Option<Fault>,
}

impl<'t, S: Source> NotesCheck<'t, S> {
    pub fn new(reader: &'t Reader<S>) -> Result<Self, brooklet_codex::Error> {
        Ok(Self { notes: reader.ordered_notes()?, seed: reader.filter_seed(), heads: 0, fault: None })
    }

    /// Compares the note of the log that begins with this entry, if one does.
    pub fn check(&mut self, codex_key: &[u8], value: &[u8]) {
        let Some((key, None)) = split_key(codex_key) else { return };
        self.heads += 1;
        if self.fault.is_some() {
            return;
        }
        let LogHash { filter, note } = LogHash::new(self.seed, &key);
        self.fault = match self.notes.note(codex_key, filter, note) {
            Ok(Noted::Note(note)) if note == bounds_note::of_head(value) => None,
            // This part has no notes, or two logs of it have the same hash.
            Ok(Noted::Unknown) => None,
            Ok(Noted::Note(_) | Noted::Absent { .. }) => {
                let key = KeyText::of(&key);
                Some(Fault::Contradiction(format!("the note of log {key} contradicts its head")))
            }
            Err(error) => Some(Fault::Unread(error)),
        };
    }

    /// Returns the first fault. `notes` is the number of notes in the table.
    pub fn finish(self, notes: u64) -> Result<(), Fault> {
        match self.fault {
            Some(fault) => Err(fault),
            None if notes > self.heads => {
                Err(Fault::Contradiction("it has notes of logs that it does not hold".into()))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use brooklet_codex::{Builder, BuilderOptions, Bytes, Progress};

    use super::*;
    use crate::format::run_entry::{Collected, PieceWriter};
    use crate::model::{Bounds, Piece};

    /// Builds a codex of three logs. `note` may change the note of a log. Returns the fault that
    /// the check finds.
    fn checked(note: impl Fn(usize, u32) -> Option<u32>) -> Option<Fault> {
        let mut pieces = PieceWriter::new(Collected::default());
        for (key, next) in [("a", 1), ("b", 2), ("c", 3)] {
            let bounds = Bounds { first: 0, next };
            pieces.begin(key.as_bytes(), Piece { bounds: Some(bounds), base: 0 }, None);
            (0..next).for_each(|_| pieces.entry(b"entry").unwrap());
            pieces.end().unwrap();
        }
        let mut codex = Builder::new(Vec::new(), BuilderOptions { filter_seed: 7, ..Default::default() });
        for (n, (codex_key, head)) in pieces.into_inner().0.iter().enumerate() {
            let hash = LogHash::new(7, &split_key(codex_key).unwrap().0);
            match note(n, bounds_note::of_head(head)) {
                Some(note) => codex.add_note(hash.filter, hash.note, note),
                None => {
                    // A note for another log in the place of this one.
                    codex.add_note(hash.filter, !hash.note, 2);
                }
            }
            codex.add(codex_key, head).unwrap();
        }
        let (summary, file) = codex.finish().unwrap();
        let reader = Reader::open(Bytes::from(file), summary.len, None).unwrap();
        let mut check = NotesCheck::new(&reader).unwrap();
        let verified =
            reader.verify_each(Progress::ignore, |key, value| check.check(key, value.unwrap())).unwrap();
        assert_eq!(verified.notes, 3);
        check.finish(verified.notes).err()
    }

    #[test]
    fn notes_that_contradict_the_heads_are_found() {
        assert!(checked(|_, note| Some(note)).is_none());
        let told = |fault: Option<Fault>| match fault {
            Some(Fault::Contradiction(what)) => what,
            _ => panic!("no contradiction was found"),
        };
        assert!(told(checked(|n, note| Some(note + u32::from(n == 1)))).contains("log \"b\""));
        assert!(told(checked(|n, note| (n != 2).then_some(note))).contains("log \"c\""));
    }
}
