//! Comma-separated values, one value after the other: a record holds no more than its reader keeps,
//! however many commas and bytes come.

use std::io::{self, BufRead};

use csv_core::{ReadFieldResult, Reader};

use crate::lines::{LONGEST, too_long};

/// Why a record is not read.
#[derive(Debug)]
pub enum Fault {
    /// The input fails.
    Io(io::Error),
    /// The record is not as it should be: the reason.
    Record(String),
}

/// Records of an input.
pub struct Table<R> {
    input: R,
    parser: Reader,
}

impl<R: BufRead> Table<R> {
    pub fn new(input: R) -> Self {
        Self { input, parser: Reader::new() }
    }

    /// Returns the number of the line that comes next, counted from 1.
    pub fn line(&self) -> u64 {
        self.parser.line()
    }

    /// Reads a record of at most `most` values, and passes their places and bytes to `keep`, in
    /// parts. Returns the number of values; `None` at the end of the input.
    pub fn read(&mut self, most: usize, mut keep: impl FnMut(usize, &[u8])) -> Result<Option<usize>, Fault> {
        let (mut values, mut left, mut part) = (0, LONGEST, [0; 8 << 10]);
        loop {
            let input = self.input.fill_buf().map_err(Fault::Io)?;
            let (result, read, written) = self.parser.read_field(input, &mut part);
            self.input.consume(read);
            left = left.checked_sub(read as u64).ok_or_else(|| Fault::Record(too_long(LONGEST)))?;
            keep(values, &part[..written]);
            match result {
                ReadFieldResult::InputEmpty | ReadFieldResult::OutputFull => {}
                ReadFieldResult::End => return Ok(None),
                ReadFieldResult::Field { record_end } => {
                    values += 1;
                    if record_end {
                        return Ok(Some(values));
                    }
                    if values == most {
                        return Err(Fault::Record(format!("it has more than {most} values")));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Read};

    use super::*;

    fn first(input: impl Read, most: usize) -> Result<Vec<Vec<u8>>, String> {
        let mut values = Vec::new();
        let read = Table::new(BufReader::new(input)).read(most, |at, part| {
            values.resize(at + 1, Vec::new());
            values[at].extend_from_slice(part);
        });
        match read {
            Ok(_) => Ok(values),
            Err(Fault::Record(why)) => Err(why),
            Err(Fault::Io(error)) => panic!("{error}"),
        }
    }

    #[test]
    fn values_come_whole_in_any_parts() {
        let long = "x,\"\"y\n".repeat(10_000);
        let input = format!("\u{feff}a,\"{long}\",,b\r\nc");
        let expected = [b"a".to_vec(), long.replace("\"\"", "\"").into_bytes(), Vec::new(), b"b".to_vec()];
        for capacity in [1, 7, 8192] {
            // A mark at the begin is seen where its bytes come together.
            let skip = if capacity < 3 { 3 } else { 0 };
            let mut table = Table::new(BufReader::with_capacity(capacity, &input.as_bytes()[skip..]));
            let mut values = vec![Vec::new(); 4];
            let read = table.read(4, |at, part| values[at].extend_from_slice(part)).unwrap();
            assert_eq!((read, &values[..]), (Some(4), &expected[..]), "{capacity}");
            assert_eq!(table.read(4, |_, _| ()).unwrap(), Some(1));
            assert_eq!(table.read(4, |_, _| ()).unwrap(), None);
        }
    }

    #[test]
    fn values_and_bytes_without_end_are_not_held() {
        // Neither input ends.
        assert_eq!(first(io::repeat(b','), 3).unwrap_err(), "it has more than 3 values");
        assert_eq!(first(&b"a,b,c\n"[..], 3).unwrap().len(), 3);
        let mut held = 0;
        let endless = Table::new(BufReader::new(io::repeat(b'x'))).read(1, |_, part| held += part.len());
        assert!(matches!(endless, Err(Fault::Record(why)) if why == too_long(LONGEST)));
        assert!(held as u64 <= LONGEST);
    }
}
