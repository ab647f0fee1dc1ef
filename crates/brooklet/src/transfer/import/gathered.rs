//! Payloads of one log: in memory, and in a temporary file if they are many.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Bytes of payloads that are held in memory.
const MEMORY: usize = 16 << 20;

pub(super) struct Gathered {
    scratch: PathBuf,
    payloads: Vec<u8>,
    lens: Vec<u32>,
    file: Option<BufWriter<File>>,
    /// Number of all payloads.
    count: u64,
    bytes: u64,
}

impl Gathered {
    /// Creates an empty collection; `scratch` is the folder for a temporary file.
    pub fn new(scratch: &Path) -> Self {
        let scratch = scratch.to_path_buf();
        Self { scratch, payloads: Vec::new(), lens: Vec::new(), file: None, count: 0, bytes: 0 }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn add(&mut self, payload: &[u8]) -> Result<(), Error> {
        if self.payloads.len() + 4 * self.lens.len() >= MEMORY {
            self.set_aside().map_err(Error::io("writing a temporary file"))?;
        }
        self.lens.push(payload.len() as u32);
        self.payloads.extend_from_slice(payload);
        (self.count, self.bytes) = (self.count + 1, self.bytes + payload.len() as u64);
        Ok(())
    }

    /// Moves the payloads in memory to the file.
    fn set_aside(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(BufWriter::with_capacity(1 << 20, tempfile::tempfile_in(&self.scratch)?)),
        };
        let mut rest = &self.payloads[..];
        for len in self.lens.drain(..) {
            let (payload, after) = rest.split_at(len as usize);
            file.write_all(&len.to_le_bytes())?;
            file.write_all(payload)?;
            rest = after;
        }
        self.payloads.clear();
        Ok(())
    }

    /// Passes all payloads to `give`, in the order in which they were added. After this call,
    /// [clear](Self::clear) the collection before adding another payload.
    pub fn each(&mut self, mut give: impl FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
        if let Some(file) = &mut self.file {
            let reading = || Error::io("reading a temporary file");
            file.flush().and_then(|()| file.get_mut().rewind()).map_err(reading())?;
            replay(file.get_mut(), self.count - self.lens.len() as u64, &mut give)?;
        }
        let mut rest = &self.payloads[..];
        for &len in &self.lens {
            let (payload, after) = rest.split_at(len as usize);
            give(payload)?;
            rest = after;
        }
        Ok(())
    }

    /// Removes all payloads.
    pub fn clear(&mut self) {
        self.file = None;
        self.payloads.clear();
        self.lens.clear();
        (self.count, self.bytes) = (0, 0);
    }
}

fn replay(
    file: &mut File,
    count: u64,
    give: &mut impl FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let failed = || Error::io("reading a temporary file");
    let (mut file, mut payload) = (BufReader::with_capacity(1 << 20, file), Vec::new());
    for _ in 0..count {
        let mut len = [0; 4];
        file.read_exact(&mut len).map_err(failed())?;
        payload.resize(u32::from_le_bytes(len) as usize, 0);
        file.read_exact(&mut payload).map_err(failed())?;
        give(&payload)?;
    }
    Ok(())
}
