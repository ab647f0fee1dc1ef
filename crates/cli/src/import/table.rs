//! Comma-separated values, one value after the other: a record holds no more than its reader keeps,
//! however many commas and bytes come.

use std::io::{self, BufRead};

use csv_core::{ReadFieldResult, Reader};

use crate::lines::{LONGEST, MARK, too_long};

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
    /// Bytes of the input that come before the rest; `None` before the input was looked at.
    head: Option<&'static [u8]>,
    /// The last byte that the parser has read.
    last: u8,
    /// Whether the parser has read an end of a line behind the input.
    is_closed: bool,
}

impl<R: BufRead> Table<R> {
    pub fn new(input: R) -> Self {
        Self { input, parser: Reader::new(), head: None, last: 0, is_closed: false }
    }

    /// Returns the number of the line that comes next, counted from 1.
    pub fn line(&mut self) -> io::Result<u64> {
        // The parser ends a record at the first of the two bytes of a line's end.
        let within = self.last == b'\r' && self.input.fill_buf()?.first() == Some(&b'\n');
        Ok(self.parser.line() + u64::from(within))
    }

    /// Takes the mark of UTF-8 from the input, whatever parts it comes in. Bytes that only begin
    /// like the mark go back to the front.
    fn take_mark(&mut self) -> io::Result<()> {
        let mut like = 0;
        while like < MARK.len() && self.input.fill_buf()?.first() == Some(&MARK[like]) {
            self.input.consume(1);
            like += 1;
        }
        self.head = Some(if like < MARK.len() { &MARK[..like] } else { &[] });
        Ok(())
    }

    /// Reads a record of at most `most` values, and passes their places and bytes to `keep`, in
    /// parts. Returns the number of values; `None` at the end of the input.
    pub fn read(&mut self, most: usize, mut keep: impl FnMut(usize, &[u8])) -> Result<Option<usize>, Fault> {
        let (mut values, mut left, mut part) = (0, LONGEST, [0; 8 << 10]);
        if self.head.is_none() {
            self.take_mark().map_err(Fault::Io)?;
        }
        loop {
            let head = self.head.filter(|head| !head.is_empty());
            let input = head.map_or_else(|| self.input.fill_buf(), Ok).map_err(Fault::Io)?;
            let is_end = input.is_empty();
            // The parser would end a value within quotes without a word. Behind all other values an
            // end of a line changes nothing.
            let closes = is_end && !std::mem::replace(&mut self.is_closed, is_end);
            let input = if closes { &b"\n"[..] } else { input };
            let (result, read, written) = self.parser.read_field(input, &mut part);
            if closes && written > 0 {
                return Err(Fault::Record("the input ends within quotes".to_owned()));
            }
            self.last = input[..read].last().copied().unwrap_or(self.last);
            match head {
                Some(head) => self.head = Some(&head[read..]),
                None if is_end => {}
                None => self.input.consume(read),
            }
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
            let mut table = Table::new(BufReader::with_capacity(capacity, input.as_bytes()));
            let mut values = vec![Vec::new(); 4];
            let read = table.read(4, |at, part| values[at].extend_from_slice(part)).unwrap();
            assert_eq!((read, &values[..]), (Some(4), &expected[..]), "{capacity}");
            assert_eq!(table.read(4, |_, _| ()).unwrap(), Some(1));
            assert_eq!(table.read(4, |_, _| ()).unwrap(), None);
        }
    }

    #[test]
    fn bytes_that_begin_like_a_mark_stay() {
        for capacity in [1, 8192] {
            for input in [&b"\xef\xbb,b\n"[..], b"\xef", b"a\xef\xbb\xbf"] {
                let first = first(BufReader::with_capacity(capacity, input), 2).unwrap().swap_remove(0);
                assert_eq!(first, input.split(|&byte| byte == b',').next().unwrap());
            }
        }
        assert_eq!(Table::new(MARK).read(1, |_, _| ()).unwrap(), None);
    }

    #[test]
    fn lines_are_counted_with_either_end() {
        for capacity in [1, 8192] {
            for input in ["a\nb\n\"c\nc\"\nd", "a\r\nb\r\n\"c\r\nc\"\r\nd"] {
                let mut table = Table::new(BufReader::with_capacity(capacity, input.as_bytes()));
                for line in [1, 2, 3, 5] {
                    assert_eq!(table.line().unwrap(), line, "{input:?}");
                    table.read(1, |_, _| ()).unwrap();
                }
            }
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
