//! The note of a host: a file in the store's folder. By the note a host knows its own backups from
//! those of another host, even if the answer of a request was lost.
//!
//! ```text
//! brooklet archive 1
//! <number of the last backup that it knows to be its own>, or - where there is none, <number that was drawn for it>
//! <number drawn for the next one>, a line for each try
//! ```
//!
//! A line that is cut short or invalid makes the whole note invalid. Then the archive must be taken
//! over.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::Error;
use crate::record::Upload;

const HEAD: &str = "brooklet archive 1";

/// The contents of a note.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// The last backup that is known to be this host's.
    pub last: Option<Upload>,
    /// The numbers that were drawn for the next backup, one for each try.
    pub tried: BTreeSet<u128>,
}

impl Memory {
    /// Returns whether a backup is this host's.
    pub fn wrote(&self, upload: Upload) -> bool {
        let next = self.last.map_or(0, |last| last.number + 1);
        self.last == Some(upload) || upload.number == next && self.tried.contains(&upload.drawn)
    }

    pub fn encode(&self) -> String {
        let last = self.last.map_or("-".into(), |last| format!("{} {:032x}", last.number, last.drawn));
        let tried: String = self.tried.iter().map(|drawn| format!("{drawn:032x}\n")).collect();
        format!("{HEAD}\n{last}\n{tried}")
    }

    /// Decodes a note. Returns `None` if the text is no valid note.
    pub fn decode(text: &str) -> Option<Self> {
        let drawn = |text: &str| (text.len() == 32).then(|| u128::from_str_radix(text, 16).ok())?;
        let mut lines = text.strip_prefix(HEAD)?.strip_prefix('\n')?.strip_suffix('\n')?.lines();
        let last = match lines.next()? {
            "-" => None,
            line => {
                let (number, rest) = line.split_once(' ')?;
                let number: u64 = number.parse().ok().filter(|number| *number < u64::MAX)?;
                Some(Upload { number, drawn: drawn(rest)? })
            }
        };
        let tried = lines.map(drawn).collect::<Option<_>>()?;
        Some(Self { last, tried })
    }
}

/// The file of a note.
#[derive(Debug)]
pub(crate) struct Note {
    path: PathBuf,
    pub memory: Memory,
}

impl Note {
    /// Reads the note. A missing or invalid note is empty.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let memory = match std::fs::read(path) {
            Ok(data) => Memory::decode(&String::from_utf8_lossy(&data)).unwrap_or_else(|| {
                tracing::warn!(note = %path.display(), "the note is malformed; the archive ignores it");
                Memory::default()
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Memory::default(),
            Err(cause) => return Err(Error::Note { path: path.into(), cause }),
        };
        Ok(Self { path: path.into(), memory })
    }

    /// Writes other contents to the note, which then survive a power cut.
    pub fn set(&mut self, memory: Memory) -> Result<(), Error> {
        let failed = |cause| Error::Note { path: self.path.clone(), cause };
        write(&self.path, memory.encode().as_bytes()).map_err(failed)?;
        self.memory = memory;
        Ok(())
    }
}

fn write(path: &Path, data: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = NamedTempFile::new_in(folder)?;
    file.write_all(data)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("note");
        for (last, tried) in
            [(None, vec![]), (Some((7, 1 << 90)), vec![]), (Some((0, 3)), vec![5, u128::MAX])]
        {
            let last = last.map(|(number, drawn)| Upload { number, drawn });
            let memory = Memory { last, tried: tried.into_iter().collect() };
            let mut note = Note::open(&path).unwrap();
            note.set(memory.clone()).unwrap();
            assert_eq!(Note::open(&path).unwrap().memory, memory);
            let text = memory.encode();
            let cuts = (0..text.len()).filter(|cut| Memory::decode(&text[..*cut]).is_some());
            // What is cut off whole lines was not noted yet.
            assert!(cuts.into_iter().all(|cut| text[..cut].ends_with('\n')));
        }
        std::fs::write(&path, "something else").unwrap();
        assert_eq!(Note::open(&path).unwrap().memory, Memory::default());
        assert!(matches!(Note::open(dir.path()), Err(Error::Note { .. })));
    }

    #[test]
    fn only_what_one_wrote_is_ones_own() {
        let of = |number, drawn| Upload { number, drawn };
        let memory = Memory { last: Some(of(4, 40)), tried: [50, 51].into() };
        assert!(memory.wrote(of(4, 40)) && memory.wrote(of(5, 50)) && memory.wrote(of(5, 51)));
        assert!(!memory.wrote(of(4, 50)) && !memory.wrote(of(5, 40)) && !memory.wrote(of(6, 50)));
        assert!(Memory { last: None, tried: [1].into() }.wrote(of(0, 1)));
        assert!(!Memory::default().wrote(of(0, 1)));
    }
}
