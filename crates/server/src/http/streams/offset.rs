//! Offsets: positions between the messages of a stream, as clients get them.
//!
//! An offset has 16 digits, `_`, 16 digits, `_`, 16 hexadecimal digits: the number of the next
//! message, a byte within it, and the number of the stream. The server returns whole messages, so
//! the byte is 0; the field is reserved for parts of large messages. The fields have a fixed width,
//! so that the offsets of a stream sort as text.
//!
//! A stream that is deleted and made again has another number. Without it, a reader that comes back
//! with an old offset would get the middle of the new stream as the next bytes. Offsets of earlier
//! servers end with the byte, and name no stream: every stream takes them.

use std::fmt;

use crate::http::reply::Refusal;

const WIDTH: usize = 16;

/// The position before the message of this number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offset(pub u64);

/// An offset as clients get it: with the stream that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub offset: Offset,
    /// The number of the stream; `None` in an offset of an earlier server.
    pub stream: Option<u64>,
}

/// Where a reader asks to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the first message that there is.
    Beginning,
    /// After the last one.
    Now,
    At(Position),
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0WIDTH$}_{:0WIDTH$}", self.0, 0)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.offset)?;
        self.stream.map_or(Ok(()), |stream| write!(f, "_{stream:0WIDTH$x}"))
    }
}

impl Offset {
    /// The offset as the stream of this number gives it to clients.
    pub fn of(self, stream: u64) -> Position {
        Position { offset: self, stream: Some(stream) }
    }
}

impl Position {
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let mut fields = text.splitn(3, '_');
        let (number, byte) = (fields.next().and_then(digits), fields.next().and_then(digits));
        let stream = fields.next();
        match (number, byte, stream.map(hex)) {
            (Some(number), Some(0), None) => Ok(Self { offset: Offset(number), stream: None }),
            (Some(number), Some(0), Some(Some(stream))) => Ok(Offset(number).of(stream)),
            _ => Err(Refusal::invalid(format!(
                "{text:?} is not an offset of this server: use one from Stream-Next-Offset, or -1 for the beginning, or now"
            ))),
        }
    }

    /// Whether it may be one of the stream of this number.
    pub fn is_of(&self, stream: u64) -> bool {
        self.stream.is_none_or(|own| own == stream)
    }
}

impl Start {
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        match text {
            "-1" => Ok(Self::Beginning),
            "now" => Ok(Self::Now),
            text => Position::parse(text).map(Self::At),
        }
    }
}

fn digits(text: &str) -> Option<u64> {
    let are_digits = text.len() == WIDTH && text.bytes().all(|byte| byte.is_ascii_digit());
    are_digits.then(|| text.parse().ok())?
}

fn hex(text: &str) -> Option<u64> {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let are_hex = text.len() == WIDTH && text.bytes().all(is_hex);
    are_hex.then(|| u64::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_sort_as_text_and_read_back() {
        let numbers = [0, 1, 9, 10, 99, 100, 1 << 32, 9_999_999_999_999_999];
        let texts: Vec<String> = numbers.iter().map(|n| Offset(*n).of(0xa7).to_string()).collect();
        assert!(texts.is_sorted());
        assert_eq!(texts[0], "0000000000000000_0000000000000000_00000000000000a7");
        for (number, text) in numbers.iter().zip(&texts) {
            assert_eq!(Start::parse(text).unwrap(), Start::At(Offset(*number).of(0xa7)));
            // As earlier servers gave it.
            let of_none = Position { offset: Offset(*number), stream: None };
            assert_eq!(Start::parse(&text[..33]).unwrap(), Start::At(of_none));
            assert!(of_none.is_of(1) && Offset(*number).of(1).is_of(1) && !Offset(*number).of(1).is_of(2));
        }
    }

    #[test]
    fn what_is_no_offset_is_refused() {
        for text in [
            "",
            "0",
            "1_0",
            "+000000000000001_0000000000000000",
            "0000000000000001_0000000000000001",
            "0000000000000001_0000000000000000_",
            "0000000000000001_0000000000000000_00000000000000A7",
            "0000000000000001_0000000000000000_00000000000000a7_",
            "a,b",
        ] {
            assert_eq!(Start::parse(text).unwrap_err().status.as_u16(), 400, "{text}");
        }
    }
}
