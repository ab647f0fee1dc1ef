//! The headers and the query of a request, parsed once.

use axum::http::header::{self, HeaderMap, HeaderName};
use axum::http::request::Parts;
use brooklet_documents::Request;
use percent_encoding::percent_decode_str;

use super::problem::{Kind, Problem};

pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
pub const DOCUMENT_AUTHOR: HeaderName = HeaderName::from_static("document-author");

/// The entity tags of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tags {
    /// `*`.
    Any,
    /// The versions of a list. Tags that this server does not make are left out: they match
    /// nothing.
    Versions(Vec<u64>),
}

/// The part of a document that a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The document now.
    Now,
    /// `?at=VERSION`: the document at a version.
    At(u64),
    /// `?since=VERSION`: the updates after a version.
    Since(u64),
    /// `?history`: all updates that the document still has.
    History,
    /// `?rewind=VERSION`: the version to go back to.
    Rewind(u64),
}

/// The parts of a request that are not its name and its body.
#[derive(Clone, Debug)]
pub struct Asked {
    pub part: Part,
    pub if_match: Option<Tags>,
    pub if_none_match: Option<Tags>,
    pub request: Request,
    pub content_type: Option<String>,
    /// Whether the client wants events (`Accept: text/event-stream`).
    pub wants_events: bool,
    /// The version behind which events go on (`Last-Event-ID`).
    pub last_event: Option<u64>,
}

impl Asked {
    pub fn of(head: &Parts) -> Result<Self, Problem> {
        let headers = &head.headers;
        let content_type = text(headers, &header::CONTENT_TYPE)?;
        let essence = |value: &str| value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        Ok(Self {
            part: part(head.uri.query())?,
            if_match: tags(headers, &header::IF_MATCH)?,
            if_none_match: tags(headers, &header::IF_NONE_MATCH)?,
            request: request(headers)?,
            content_type: content_type.map(essence),
            wants_events: accepts_events(headers),
            last_event: last_event(headers)?,
        })
    }

    /// Returns the latest version that the request names; 0 if it names none.
    pub fn newest(&self) -> u64 {
        let part = match self.part {
            Part::At(version) | Part::Since(version) | Part::Rewind(version) => Some(version),
            Part::Now | Part::History => None,
        };
        let expected = match &self.if_match {
            Some(Tags::Versions(versions)) => versions.iter().copied().max(),
            _ => None,
        };
        part.max(expected).max(self.last_event).unwrap_or(0)
    }
}

fn invalid(why: impl Into<String>) -> Problem {
    Problem::new(Kind::BadRequest, why)
}

/// Returns the one value of a header.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a [u8]>, Problem> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(invalid(format!("{name} is there more than once: send it once"))),
        (value, None) => Ok(value.map(|value| value.as_bytes())),
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    let Some(value) = one(headers, name)? else { return Ok(None) };
    let text = std::str::from_utf8(value);
    text.map(Some).map_err(|_| invalid(format!("{name} is not text: use ASCII")))
}

fn part(query: Option<&str>) -> Result<Part, Problem> {
    let mut found = Part::Now;
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let version = || {
            let value = percent_decode_str(value).decode_utf8_lossy();
            let why = || invalid(format!("{name}={value} is not a version: use a whole number"));
            value.parse().map_err(|_| why())
        };
        let part = match name {
            "at" => Part::At(version()?),
            "since" => Part::Since(version()?),
            "rewind" => Part::Rewind(version()?),
            "history" if value.is_empty() => Part::History,
            _ => return Err(invalid(format!("{pair} is unknown: use at, since, history or rewind"))),
        };
        if std::mem::replace(&mut found, part) != Part::Now {
            return Err(invalid("the query has several parts: use one of at, since, history and rewind"));
        }
    }
    Ok(found)
}

/// Returns the tags of a condition, which may be a list over several headers.
fn tags(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Tags>, Problem> {
    let mut found = None;
    for value in headers.get_all(name) {
        let malformed = || invalid(format!("{name} is no list of entity tags: send \"VERSION\", or *"));
        let value = value.to_str().map_err(|_| malformed())?.trim();
        if value == "*" && found.is_none() && headers.get_all(name).iter().count() == 1 {
            return Ok(Some(Tags::Any));
        }
        let versions: &mut Vec<u64> = found.get_or_insert_default();
        let mut rest = value;
        loop {
            rest = rest.trim_start_matches([',', ' ', '\t']);
            if rest.is_empty() {
                break;
            }
            let strong = rest.strip_prefix("W/");
            let is_weak = strong.is_some();
            // A tag has any characters but quotes: commas, too.
            let tag = strong.unwrap_or(rest).strip_prefix('"').and_then(|rest| rest.split_once('"'));
            let (opaque, after) = tag.ok_or_else(malformed)?;
            rest = after.trim_start();
            if !rest.is_empty() && !rest.starts_with(',') {
                return Err(malformed());
            }
            // A weak comparison is enough for If-None-Match. The server makes no weak tags.
            if !is_weak || *name == header::IF_NONE_MATCH {
                versions.extend(version(opaque));
            }
        }
    }
    Ok(found.map(Tags::Versions))
}

/// Returns the version of a tag that the server makes. Tags are compared by their characters.
fn version(opaque: &str) -> Option<u64> {
    opaque.parse::<u64>().ok().filter(|version| version.to_string() == opaque)
}

/// Returns the id and the author of a request.
fn request(headers: &HeaderMap) -> Result<Request, Problem> {
    let request = match one(headers, &IDEMPOTENCY_KEY)? {
        // The draft of the header has a string in quotes; many clients send it without.
        Some(id) => {
            let id = id.strip_prefix(b"\"").and_then(|id| id.strip_suffix(b"\"")).unwrap_or(id);
            if id.is_empty() {
                return Err(invalid("Idempotency-Key is empty: send an id of 1 to 128 bytes, or none"));
            }
            Request::new(id)
        }
        None => Request::anonymous(),
    };
    Ok(match one(headers, &DOCUMENT_AUTHOR)? {
        Some(author) => request.author(author),
        None => request,
    })
}

/// Returns whether a client wants events.
pub fn accepts_events(headers: &HeaderMap) -> bool {
    let ranges = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut ranges = ranges.flat_map(|value| value.split(','));
    ranges.any(|range| {
        range.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("text/event-stream")
    })
}

fn last_event(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(id) = text(headers, &LAST_EVENT_ID)?.filter(|id| !id.is_empty()) else { return Ok(None) };
    let why = || invalid(format!("Last-Event-ID {id} is not a version: use the id of an event"));
    id.parse().map(Some).map_err(|_| why())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_name_one_part() {
        assert_eq!(part(None).unwrap(), Part::Now);
        assert_eq!(part(Some("at=3")).unwrap(), Part::At(3));
        assert_eq!(part(Some("history")).unwrap(), Part::History);
        assert_eq!(part(Some("&since=%30&")).unwrap(), Part::Since(0));
        for bad in ["at", "at=-1", "at=1&since=2", "at=1&at=1", "history=1", "x=1", "rewind=1e3"] {
            assert!(part(Some(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn tags_are_versions() {
        let of = |name: HeaderName, values: &[&str]| {
            let headers = values.iter().map(|value| (name.clone(), value.parse().unwrap())).collect();
            tags(&headers, &name)
        };
        assert_eq!(of(header::IF_MATCH, &[]).unwrap(), None);
        assert_eq!(of(header::IF_MATCH, &["*"]).unwrap(), Some(Tags::Any));
        let list = ["\"1\", \"other\", W/\"2\"", "\"3\""];
        assert_eq!(of(header::IF_MATCH, &list).unwrap(), Some(Tags::Versions(vec![1, 3])));
        assert_eq!(of(header::IF_NONE_MATCH, &list).unwrap(), Some(Tags::Versions(vec![1, 2, 3])));
        let others = ["\"007\", \"+7\", \"a,\", \"1,2\" , \"\"", ",\"7\",, \"7 \",\t"];
        assert_eq!(of(header::IF_MATCH, &others).unwrap(), Some(Tags::Versions(vec![7])));
        for bad in ["1", "\"1", "*, \"1\"", "W/1", "\"", "\"1\" \"2\"", "\"\"7\"\""] {
            assert!(of(header::IF_MATCH, &[bad]).is_err(), "{bad}");
        }
    }
}
