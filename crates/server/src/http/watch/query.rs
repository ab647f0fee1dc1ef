//! The query of an address. Keys are bytes, and so are values here: `%` and two digits encode any
//! byte, and every other character encodes itself, also `+`.

use std::borrow::Cow;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use brooklet::{Error, ErrorKind};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use serde::Serialize;
use serde_json::json;

/// What stays as it is in the value of a query.
const PLAIN: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Values by name.
pub(super) struct Query<'a>(Vec<(&'a str, Cow<'a, [u8]>)>);

impl<'a> Query<'a> {
    /// Takes a query apart.
    pub fn parse(query: Option<&'a str>) -> Self {
        let parts = query.unwrap_or_default().split('&').filter(|part| !part.is_empty());
        let parts = parts.map(|part| part.split_once('=').unwrap_or((part, "")));
        Self(parts.map(|(name, value)| (name, percent_decode_str(value).into())).collect())
    }

    /// The value of a name, if there is one.
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find(|(n, _)| *n == name).map(|(_, value)| &value[..])
    }

    /// A number, if there is one and it is no empty value.
    pub fn number(&self, name: &'static str) -> Result<Option<u64>, Refusal> {
        let Some(value) = self.bytes(name).filter(|value| !value.is_empty()) else { return Ok(None) };
        let number = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
        let why = || Refusal::asked(format!("{name} is not a number: use 0 or more, or omit it"));
        number.ok_or_else(why).map(Some)
    }
}

/// Bytes, as they stand in the value of a query.
pub(super) fn encode(bytes: &[u8]) -> String {
    percent_encode(bytes, &PLAIN).to_string()
}

/// Bytes as JSON has them: text where they are UTF-8, and else two hexadecimal digits for each.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    pub text: String,
    pub binary: bool,
}

impl Shown {
    /// All of the bytes, or about the first so many.
    pub fn of(bytes: &[u8], most: usize) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => {
                let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
                Self { text: text[..end.unwrap_or_default()].into(), binary: false }
            }
            Err(_) => {
                let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
                let digits = |byte: &u8| [digit(byte >> 4), digit(byte & 15)];
                Self { text: bytes.iter().take(most).flat_map(digits).collect(), binary: true }
            }
        }
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    why: String,
}

impl Refusal {
    /// What was asked makes no sense.
    pub fn asked(why: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, why: why.into() }
    }

    /// Not now.
    pub fn busy(why: impl Into<String>) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, why: why.into() }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::Invalid => StatusCode::BAD_REQUEST,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Stopped => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self { status, why: error.to_string() }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, Json(json!({ "error": self.why }))).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_come_through_a_query() {
        let all: Vec<u8> = (0..=255).collect();
        let query = format!("key={}&from=12&&plus=a+b%2B&flag", encode(&all));
        assert!(query.is_ascii());
        let query = Query::parse(Some(&query));
        assert_eq!(query.bytes("key"), Some(&all[..]));
        assert_eq!(query.bytes("plus"), Some(&b"a+b+"[..]));
        assert_eq!((query.bytes("flag"), query.bytes("none")), (Some(&b""[..]), None));
        assert_eq!((query.number("from").unwrap(), query.number("flag").unwrap()), (Some(12), None));
        assert!(query.number("plus").unwrap_err().why.starts_with("plus is not a number"));
        assert!(Query::parse(None).0.is_empty());
    }

    #[test]
    fn bytes_are_text_or_digits_and_no_more_than_asked_for() {
        let shown = |bytes: &[u8], most| {
            let Shown { text, binary } = Shown::of(bytes, most);
            (text, binary)
        };
        assert_eq!(shown("a\"ä".as_bytes(), 9), ("a\"ä".into(), false));
        assert_eq!(shown("aää".as_bytes(), 4), ("aä".into(), false));
        assert_eq!(shown(b"\x00\xff\x1f", 9), ("00ff1f".into(), true));
        assert_eq!(shown(b"\x00\xff\x1f", 2), ("00ff".into(), true));
    }
}
