//! Offsets: positions between the messages of a stream, as clients get them.
//!
//! An offset has 16 digits, `_`, 16 digits: the number of the next message, and a byte within it.
//! The server returns whole messages, so the byte is 0; the field is reserved for parts of large
//! messages. Digits have a fixed width, so that offsets sort as text.

use std::fmt;

use crate::http::reply::Refusal;

const WIDTH: usize = 16;

/// The position before the message of this number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offset(pub u64);

/// Where a reader asks to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the first message that there is.
    Beginning,
    /// After the last one.
    Now,
    At(Offset),
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0WIDTH$}_{:0WIDTH$}", self.0, 0)
    }
}

impl Offset {
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let parsed = text.split_once('_').and_then(|(number, byte)| Some((digits(number)?, digits(byte)?)));
        match parsed {
            Some((number, 0)) => Ok(Self(number)),
            _ => Err(Refusal::invalid(format!(
                "{text:?} is not an offset of this server: use one from Stream-Next-Offset, or -1 for the beginning, or now"
            ))),
        }
    }
}

impl Start {
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        match text {
            "-1" => Ok(Self::Beginning),
            "now" => Ok(Self::Now),
            text => Offset::parse(text).map(Self::At),
        }
    }
}

fn digits(text: &str) -> Option<u64> {
    let are_digits = text.len() == WIDTH && text.bytes().all(|byte| byte.is_ascii_digit());
    are_digits.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_sort_as_text_and_read_back() {
        let numbers = [0, 1, 9, 10, 99, 100, 1 << 32, 9_999_999_999_999_999];
        let texts: Vec<String> = numbers.iter().map(|n| Offset(*n).to_string()).collect();
        assert!(texts.is_sorted());
        assert_eq!(texts[0], "0000000000000000_0000000000000000");
        for (number, text) in numbers.iter().zip(&texts) {
            assert_eq!(Start::parse(text).unwrap(), Start::At(Offset(*number)));
        }
    }

    #[test]
    fn what_is_no_offset_is_refused() {
        for text in
            ["", "0", "1_0", "+000000000000001_0000000000000000", "0000000000000001_0000000000000001", "a,b"]
        {
            assert_eq!(Start::parse(text).unwrap_err().status.as_u16(), 400, "{text}");
        }
    }
}
