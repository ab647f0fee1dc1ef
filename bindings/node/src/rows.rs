//! Rows: many results in two arrays, which cost the bridge as much as one result.

use brooklet::{Bounds, Entry, LogInfo, TailEvent};
use napi::bindgen_prelude::{Buffer, Float64Array};

use crate::failure::Failure;
use crate::number::number;

/// Results of one kind. Each has as many numbers as its kind has, one of which is a length of bytes
/// if it has some.
#[derive(Default)]
pub struct Rows {
    numbers: Vec<f64>,
    bytes: Vec<u8>,
}

/// Rows in JavaScript.
pub type Arrays = (Float64Array, Buffer);

impl Rows {
    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// The bytes of all rows.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the rows in JavaScript.
    pub fn arrays(self) -> Arrays {
        (Float64Array::new(self.numbers), self.bytes.into())
    }

    /// Adds the number of an entry, and its length.
    pub fn entry(&mut self, entry: &Entry) -> Result<(), Failure> {
        self.numbers.extend([number(entry.seq)?, entry.payload.len() as f64]);
        self.bytes.extend_from_slice(&entry.payload);
        Ok(())
    }

    /// Adds the bounds of a log.
    pub fn bounds(&mut self, bounds: &Bounds) -> Result<(), Failure> {
        self.numbers.extend([number(bounds.first)?, number(bounds.next)?]);
        Ok(())
    }

    /// Adds the bounds of a log, and the length of its key.
    pub fn log(&mut self, log: &LogInfo) -> Result<(), Failure> {
        self.bounds(&log.bounds)?;
        self.numbers.push(log.key.len() as f64);
        self.bytes.extend_from_slice(&log.key);
        Ok(())
    }

    /// Adds an event of a tail: its kind, and two numbers.
    pub fn event(&mut self, event: &TailEvent) -> Result<(), Failure> {
        let row = match event {
            TailEvent::Entry(entry) => {
                let row = [0.0, number(entry.seq)?, entry.payload.len() as f64];
                self.bytes.extend_from_slice(&entry.payload);
                row
            }
            TailEvent::Trimmed(range) => [1.0, number(range.start)?, number(range.end)?],
            TailEvent::Truncated { next } => [2.0, number(*next)?, 0.0],
            TailEvent::Deleted => [3.0, 0.0, 0.0],
            _ => return Err(Failure::invalid("the event is newer than this library")),
        };
        self.numbers.extend(row);
        Ok(())
    }
}
