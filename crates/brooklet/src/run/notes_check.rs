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
