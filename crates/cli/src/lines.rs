//! Lines of an input, which end or are refused before they fill the memory.

use std::io::{self, BufRead, Read};

use brooklet::MAX_KEY;

/// Most bytes of an entry: the default of `Options::max_payload`, with which this command opens
/// stores.
const PAYLOAD: u64 = 16 << 20;
/// Most bytes of a line with an entry: JSON may write each byte as six.
pub const LONGEST: u64 = 6 * (PAYLOAD + MAX_KEY as u64) + (4 << 10);

/// The mark of UTF-8 with which some programs begin a file. It is no part of the first line of
/// JSON, or of the first value of a table.
pub const MARK: &[u8] = "\u{feff}".as_bytes();

/// Returns the line of a number, counted from 1, without the mark of UTF-8 before the first line.
pub fn without_mark(line: &[u8], number: u64) -> &[u8] {
    line.strip_prefix(MARK).filter(|_| number == 1).unwrap_or(line)
}

/// Reads a line of at most `most` bytes, without its end; `false` where there is none. The inner
/// error says that the line is longer.
pub fn read_line(
    input: &mut impl BufRead,
    line: &mut Vec<u8>,
    most: u64,
) -> io::Result<Result<bool, String>> {
    line.clear();
    let read = Read::take(&mut *input, most + 1).read_until(b'\n', line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if read as u64 > most {
        return Ok(Err(too_long(most)));
    }
    Ok(Ok(read > 0))
}

/// Returns the message about a line of more than `most` bytes.
pub fn too_long(most: u64) -> String {
    format!("it is longer than {most} bytes, the longest that is accepted")
}

/// Returns why a line is not the expected JSON. The parser counts the lines within the line, which
/// are none, and would say line 1 of each.
pub fn not_json(error: &serde_json::Error) -> String {
    let (message, column) = (error.to_string(), error.column());
    if error.is_eof() && column == 0 {
        return "it is empty: remove it".to_owned();
    }
    match message.strip_suffix(&format!(" at line {} column {column}", error.line())) {
        Some(why) => format!("{why}, at column {column}"),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use brooklet::Store;

    use super::*;

    #[test]
    fn a_line_without_end_is_not_held() {
        let (mut line, mut endless) = (Vec::new(), io::BufReader::new(io::repeat(b'x')));
        assert!(read_line(&mut endless, &mut line, 1000).unwrap().unwrap_err().contains("than 1000 bytes"));
        assert_eq!(line.len(), 1001);
        let mut input = &b"abc\n\nabcd\n"[..];
        for expected in ["abc", ""] {
            assert_eq!(read_line(&mut input, &mut line, 3).unwrap(), Ok(true));
            assert_eq!(line, expected.as_bytes());
        }
        assert!(read_line(&mut input, &mut line, 3).unwrap().is_err());
        let mut input = &b"abc"[..];
        assert_eq!(read_line(&mut input, &mut line, 3).unwrap(), Ok(true));
        assert_eq!(read_line(&mut input, &mut line, 3).unwrap(), Ok(false));
    }

    #[test]
    fn no_store_of_the_command_takes_a_longer_entry() {
        let store = Store::in_memory(1).unwrap();
        let long = vec![0; PAYLOAD as usize + 1];
        assert!(matches!(store.append("log", &long), Err(brooklet::Error::PayloadTooLarge { .. })));
    }
}
