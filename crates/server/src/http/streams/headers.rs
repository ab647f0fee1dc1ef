//! The headers of the protocol: their names, and the values of a request, parsed once.

use axum::http::StatusCode;
use axum::http::header::{self, HeaderMap, HeaderName};

use super::offset::{Offset, Position};
use super::time;
use crate::http::reply::Refusal;

pub const CLOSED: HeaderName = HeaderName::from_static("stream-closed");
pub const CURSOR: HeaderName = HeaderName::from_static("stream-cursor");
pub const EXPIRES_AT: HeaderName = HeaderName::from_static("stream-expires-at");
pub const FORK_OFFSET: HeaderName = HeaderName::from_static("stream-fork-offset");
pub const FORK_SUB_OFFSET: HeaderName = HeaderName::from_static("stream-fork-sub-offset");
pub const FORKED_FROM: HeaderName = HeaderName::from_static("stream-forked-from");
pub const NEXT_OFFSET: HeaderName = HeaderName::from_static("stream-next-offset");
pub const SEQ: HeaderName = HeaderName::from_static("stream-seq");
pub const SSE_DATA_ENCODING: HeaderName = HeaderName::from_static("stream-sse-data-encoding");
pub const TTL: HeaderName = HeaderName::from_static("stream-ttl");
pub const UP_TO_DATE: HeaderName = HeaderName::from_static("stream-up-to-date");
pub const PRODUCER_ID: HeaderName = HeaderName::from_static("producer-id");
pub const PRODUCER_EPOCH: HeaderName = HeaderName::from_static("producer-epoch");
pub const PRODUCER_SEQ: HeaderName = HeaderName::from_static("producer-seq");
pub const PRODUCER_EXPECTED_SEQ: HeaderName = HeaderName::from_static("producer-expected-seq");
pub const PRODUCER_RECEIVED_SEQ: HeaderName = HeaderName::from_static("producer-received-seq");

/// Longest producer id, writer's sequence and content type, in bytes: all of them are kept with the
/// stream.
const MAX_TEXT: usize = 256;
/// The largest number that a client in JavaScript can tell from the next.
const MAX_NUMBER: u64 = (1 << 53) - 1;

/// Who sends a batch, and which of its batches it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub id: String,
    pub epoch: u64,
    pub seq: u64,
}

/// What a stream is to be forked from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkFrom {
    pub path: String,
    pub offset: Option<Position>,
    pub sub: u64,
}

/// When a stream is to expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    Never,
    /// After so many seconds in which nobody reads or writes.
    Idle(u64),
    /// At this time, in milliseconds since the Unix epoch.
    At(u64),
}

/// The value of a header, if it is there once and is text.
fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Refusal::invalid(format!("{name} is given more than once: send it once")));
    }
    let value = value.to_str();
    value.map(Some).map_err(|_| Refusal::invalid(format!("{name} holds bytes that are not visible ASCII")))
}

/// A number without signs, points and leading zeros.
fn number(headers: &HeaderMap, name: &HeaderName) -> Result<Option<u64>, Refusal> {
    let Some(text) = text(headers, name)? else { return Ok(None) };
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    match text.parse() {
        Ok(number) if is_plain && number <= MAX_NUMBER => Ok(Some(number)),
        _ => Err(Refusal::invalid(format!(
            "{name} is {text:?}: send a whole number from 0 to {MAX_NUMBER}, in plain digits"
        ))),
    }
}

fn short<'a>(name: &HeaderName, text: &'a str) -> Result<&'a str, Refusal> {
    if text.is_empty() || text.len() > MAX_TEXT {
        let len = text.len();
        return Err(Refusal::invalid(format!("{name} has {len} bytes: send 1 to {MAX_TEXT} bytes")));
    }
    Ok(text)
}

/// Whether the stream is to be closed; any value but `true` counts as none.
pub fn closes(headers: &HeaderMap) -> bool {
    headers.get(CLOSED).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"))
}

/// Refuses a body that is encoded: a stream has a type and no encoding, so that readers would take
/// the encoded bytes for data.
pub fn expect_no_encoding(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut encodings = headers.get_all(header::CONTENT_ENCODING).iter();
    if encodings.all(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Ok(());
    }
    let why = "the body has a Content-Encoding, which streams do not keep: send the body without one";
    Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why).with(header::ACCEPT_ENCODING, "identity"))
}

/// Refuses a condition of a write: a stream has no tag that a write could be for.
pub fn expect_no_condition(headers: &HeaderMap) -> Result<(), Refusal> {
    let conditions = [header::IF_MATCH, header::IF_NONE_MATCH, header::IF_UNMODIFIED_SINCE];
    match conditions.iter().find(|name| headers.contains_key(*name)) {
        None => Ok(()),
        // No 5xx: clients would try again for ever.
        Some(name) => Err(Refusal::invalid(format!(
            "streams do not support {name} for writes: omit it, and send Stream-Seq, or the epoch and number of a producer"
        ))),
    }
}

/// The content type, checked to be one.
pub fn content_type(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let Some(whole) = text(headers, &header::CONTENT_TYPE)?.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let is_token = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+*'`|~%".contains(&b))
    };
    match media_type(whole).split_once('/') {
        Some((kind, sub)) if is_token(kind) && is_token(sub) => short(&header::CONTENT_TYPE, whole).map(Some),
        _ => Err(Refusal::invalid(format!(
            "{whole:?} is not a content type: send one such as application/json"
        ))),
    }
}

/// A content type without its parameters. Types are the same if these are, whatever their case.
pub fn media_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

pub fn stream_seq(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    text(headers, &SEQ)?.map(|text| short(&SEQ, text)).transpose()
}

/// When the stream is to expire, if the request says so.
pub fn expiry(headers: &HeaderMap) -> Result<Option<Expiry>, Refusal> {
    let ttl = number(headers, &TTL)?;
    let at = text(headers, &EXPIRES_AT)?;
    match (ttl, at) {
        (Some(_), Some(_)) => {
            Err(Refusal::invalid("both Stream-TTL and Stream-Expires-At are given: send one"))
        }
        (Some(seconds), None) => Ok(Some(Expiry::Idle(seconds))),
        (None, Some(text)) => match time::parse(text) {
            Some(at) => Ok(Some(Expiry::At(at))),
            None => Err(Refusal::invalid(format!(
                "Stream-Expires-At is {text:?}: send a time such as 2030-01-31T12:00:00Z"
            ))),
        },
        (None, None) => Ok(None),
    }
}

/// Who sends this, if it is one that counts its batches.
pub fn batch(headers: &HeaderMap) -> Result<Option<Batch>, Refusal> {
    let id = text(headers, &PRODUCER_ID)?;
    match (id, number(headers, &PRODUCER_EPOCH)?, number(headers, &PRODUCER_SEQ)?) {
        (None, None, None) => Ok(None),
        (Some(id), Some(epoch), Some(seq)) => {
            Ok(Some(Batch { id: short(&PRODUCER_ID, id)?.into(), epoch, seq }))
        }
        _ => Err(Refusal::invalid(
            "Producer-Id, Producer-Epoch and Producer-Seq belong together: send all three, or none",
        )),
    }
}

pub fn fork_from(headers: &HeaderMap) -> Result<Option<ForkFrom>, Refusal> {
    let path = text(headers, &FORKED_FROM)?;
    let offset = text(headers, &FORK_OFFSET)?;
    let sub = number(headers, &FORK_SUB_OFFSET)?;
    match path {
        None if offset.is_some() || sub.is_some() => Err(Refusal::invalid(
            "Stream-Fork-Offset and Stream-Fork-Sub-Offset need Stream-Forked-From: send that as well",
        )),
        None => Ok(None),
        Some(path) => {
            let offset = match offset {
                Some("-1") => Some(Position { offset: Offset(0), stream: None }),
                offset => offset.map(Position::parse).transpose()?,
            };
            Ok(Some(ForkFrom { path: path.into(), offset, sub: sub.unwrap_or(0) }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), value.parse().unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn numbers_are_plain_digits() {
        for bad in ["-1", "+1", "01", "1.0", "1e3", "", "9007199254740992", "99999999999999999999"] {
            assert!(expiry(&of(&[("stream-ttl", bad)])).is_err(), "{bad}");
        }
        assert_eq!(expiry(&of(&[("stream-ttl", "0")])).unwrap(), Some(Expiry::Idle(0)));
    }

    #[test]
    fn only_true_closes() {
        for (value, closed) in [("true", true), ("TRUE", true), ("false", false), ("1", false), ("", false)] {
            assert_eq!(closes(&of(&[("stream-closed", value)])), closed, "{value}");
        }
    }

    #[test]
    fn what_belongs_together_comes_together() {
        assert!(batch(&of(&[("producer-id", "p"), ("producer-epoch", "0")])).is_err());
        assert!(batch(&of(&[("producer-id", ""), ("producer-epoch", "0"), ("producer-seq", "0")])).is_err());
        assert!(fork_from(&of(&[("stream-fork-sub-offset", "0")])).is_err());
        assert!(expiry(&of(&[("stream-ttl", "1"), ("stream-expires-at", "2030-01-01T00:00:00Z")])).is_err());
    }

    #[test]
    fn a_content_type_is_one() {
        assert_eq!(
            content_type(&of(&[("content-type", "text/plain; charset=utf-8")])).unwrap().unwrap().len(),
            25
        );
        for bad in ["text", "/plain", "text/", "text/pl ain", "a,b/c"] {
            assert!(content_type(&of(&[("content-type", bad)])).is_err(), "{bad}");
        }
    }
}
