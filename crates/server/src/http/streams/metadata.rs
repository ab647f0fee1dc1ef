//! The metadata of a stream, and its format.
//!
//! The log `streams/__ds/about/<name>` holds notes, each a JSON object with its version `v`:
//!
//! - `{"v":1,"whole":{…}}`: all metadata ([`Metadata`]). The first note is one.
//! - `{"v":1,"change":{…}}`: the changed fields ([`Change`]), each with its new value.
//!
//! The notes in their order give the metadata. A note is committed with the messages that it
//! belongs to, so neither exists without the other. A whole note replaces the changes once they
//! number 64, or as many as the known producers if that is more; so a log of notes stays about as
//! long as the metadata. A stream exists if this log exists: its log of messages is created with
//! the first message.
//!
//! Unknown fields and versions are refused: a later server wrote them, and they have a meaning.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::headers::{Batch, Expiry, media_type};

const VERSION: u32 = 1;
/// Producers that a stream remembers; of more, the one that was silent for longest is forgotten.
const MAX_PRODUCERS: usize = 1024;
/// Changes that are kept at least before a whole note replaces them.
const FEW_CHANGES: u64 = 64;

/// All that is known of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metadata {
    #[serde(rename = "outline")]
    pub identity: Arc<Identity>,
    /// When it was last read or written, as far as that was noted.
    pub touched: u64,
    /// The minute in which it is to be looked at, since it may have expired by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<Closing>,
    /// The last `Stream-Seq`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub producers: BTreeMap<String, Producer>,
    /// Forks of it that exist.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub forks: u64,
    /// Deleted, and kept for its forks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
}

/// What never changes of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Tells it from streams that had its name before.
    pub id: u64,
    #[serde(rename = "type")]
    pub content_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork: Option<Fork>,
}

/// Where a fork's messages come from that are not its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fork {
    /// The stream that has the messages before `base`.
    pub source: String,
    /// The number of the first message that is its own.
    pub base: u64,
    /// The offset, and what comes on top of that, which it was forked at.
    pub offset: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sub: u64,
    /// Streams on the way to one that is no fork.
    pub depth: u32,
}

/// How far a producer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Producer {
    pub epoch: u64,
    pub seq: u64,
    /// When it was last heard of.
    pub at: u64,
}

/// A stream's end, and the batch that closed it, if it was one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Closing {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<(String, u64, u64)>,
}

/// What becomes different of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub touched: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<Closing>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub producer: Option<(String, Producer)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forks: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    v: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    whole: Option<Metadata>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    change: Option<Change>,
}

#[derive(Deserialize)]
struct Version {
    v: u32,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn encode(whole: Option<Metadata>, change: Option<Change>) -> Vec<u8> {
    let note = Note { v: VERSION, whole, change };
    serde_json::to_vec(&note).expect("maps of it have keys of text")
}

/// Puts notes together, in their order; none make no stream.
pub fn read_notes<P: AsRef<[u8]>>(notes: impl IntoIterator<Item = P>) -> Result<Option<Metadata>, String> {
    let mut metadata: Option<Metadata> = None;
    for note in notes {
        let note = note.as_ref();
        let Version { v } = serde_json::from_slice(note).map_err(|error| error.to_string())?;
        if v != VERSION {
            return Err(format!(
                "it has version {v}; this server reads version {VERSION}: upgrade the server"
            ));
        }
        let note: Note = serde_json::from_slice(note).map_err(|error| error.to_string())?;
        match (note.whole, note.change, &mut metadata) {
            (Some(whole), None, metadata) => *metadata = Some(whole),
            (None, Some(change), Some(metadata)) => metadata.apply(&change),
            _ => return Err("a note is neither a stream nor a change of one".into()),
        }
    }
    Ok(metadata)
}

impl Metadata {
    pub fn encode(&self) -> Vec<u8> {
        encode(Some(self.clone()), None)
    }

    pub fn apply(&mut self, change: &Change) {
        let Change { touched, due, closed, seq, producer, forks, gone } = change.clone();
        self.touched = touched.unwrap_or(self.touched);
        self.due = due.or(self.due);
        self.closed = closed.or(self.closed.take());
        self.seq = seq.or(self.seq.take());
        self.forks = forks.unwrap_or(self.forks);
        self.gone |= gone;
        if let Some((id, producer)) = producer {
            self.producers.insert(id, producer);
            if self.producers.len() > MAX_PRODUCERS {
                let oldest = self.producers.iter().min_by_key(|(_, producer)| producer.at);
                let oldest = oldest.map(|(id, _)| id.clone());
                oldest.map(|id| self.producers.remove(&id));
            }
        }
    }

    /// Whether so many changes are more than what they are changes of.
    pub fn is_outgrown(&self, changes: u64) -> bool {
        changes >= FEW_CHANGES.max(self.producers.len() as u64)
    }
}

impl Change {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub fn encode(&self) -> Vec<u8> {
        encode(None, Some(self.clone()))
    }
}

impl Closing {
    pub fn by(batch: Option<&Batch>) -> Self {
        Self { by: batch.map(|batch| (batch.id.clone(), batch.epoch, batch.seq)) }
    }

    pub fn is_by(&self, batch: &Batch) -> bool {
        self.by.as_ref().is_some_and(|(id, epoch, seq)| {
            (id.as_str(), *epoch, *seq) == (batch.id.as_str(), batch.epoch, batch.seq)
        })
    }
}

/// How the messages of a stream go together in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Each is a value of JSON.
    Json,
    Text,
    Bytes,
}

/// Whether a text of this type is UTF-8, as far as its type says: text of other character sets is
/// bytes for this server.
fn is_unicode(content_type: &str) -> bool {
    let parameters = content_type.split(';').skip(1).filter_map(|parameter| parameter.split_once('='));
    let mut charsets = parameters.filter(|(name, _)| name.trim().eq_ignore_ascii_case("charset"));
    charsets.all(|(_, charset)| {
        let charset = charset.trim().trim_matches('"');
        ["utf-8", "utf8", "us-ascii"].iter().any(|known| charset.eq_ignore_ascii_case(known))
    })
}

impl Identity {
    pub fn form(&self) -> Form {
        let media_type = media_type(&self.content_type);
        if media_type.eq_ignore_ascii_case("application/json") {
            Form::Json
        } else if media_type.get(..5).is_some_and(|kind| kind.eq_ignore_ascii_case("text/"))
            && is_unicode(&self.content_type)
        {
            Form::Text
        } else {
            Form::Bytes
        }
    }

    pub fn is_of_type(&self, content_type: &str) -> bool {
        media_type(&self.content_type).eq_ignore_ascii_case(media_type(content_type))
    }

    pub fn expiry(&self) -> Expiry {
        match (self.ttl, self.expires) {
            (_, Some(at)) => Expiry::At(at),
            (Some(seconds), None) => Expiry::Idle(seconds),
            (None, None) => Expiry::Never,
        }
    }

    /// Streams on the way to one that is no fork.
    pub fn depth(&self) -> u32 {
        self.fork.as_ref().map_or(0, |fork| fork.depth)
    }

    /// The number of the first message that is its own.
    pub fn base(&self) -> u64 {
        self.fork.as_ref().map_or(0, |fork| fork.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata() -> Metadata {
        let fork = Fork { source: "a".into(), base: 3, offset: 2, sub: 5, depth: 1 };
        let identity = Identity {
            id: 7,
            content_type: "text/plain".into(),
            ttl: Some(60),
            expires: None,
            fork: Some(fork),
        };
        Metadata {
            identity: Arc::new(identity),
            touched: 1_000,
            due: Some(2),
            closed: None,
            seq: None,
            producers: BTreeMap::new(),
            forks: 0,
            gone: false,
        }
    }

    /// The format as it is on disk. A change of it needs another version, and a reader of both.
    #[test]
    fn notes_are_written_as_ever() {
        let whole = r#"{"v":1,"whole":{"outline":{"id":7,"type":"text/plain","ttl":60,"fork":{"source":"a","base":3,"offset":2,"sub":5,"depth":1}},"touched":1000,"due":2}}"#;
        let change = r#"{"v":1,"change":{"touched":2000,"due":3,"closed":{"by":["p",1,4]},"seq":"s","producer":["p",{"epoch":1,"seq":4,"at":2000}],"forks":2,"gone":true}}"#;
        let producer = Producer { epoch: 1, seq: 4, at: 2_000 };
        let changed = Change {
            touched: Some(2_000),
            due: Some(3),
            closed: Some(Closing { by: Some(("p".into(), 1, 4)) }),
            seq: Some("s".into()),
            producer: Some(("p".into(), producer)),
            forks: Some(2),
            gone: true,
        };
        assert_eq!(String::from_utf8(metadata().encode()).unwrap(), whole);
        assert_eq!(String::from_utf8(changed.encode()).unwrap(), change);
        let mut after = metadata();
        after.apply(&changed);
        assert_eq!(read_notes([whole, change]).unwrap().unwrap(), after);
        assert_eq!(read_notes([&after.encode()[..]]).unwrap().unwrap(), after);
        assert_eq!(after.producers["p"], producer);
    }

    #[test]
    fn what_is_no_note_is_refused() {
        let whole = String::from_utf8(metadata().encode()).unwrap();
        let later = whole.replace("\"v\":1", "\"v\":2");
        assert!(read_notes([&later]).unwrap_err().contains("upgrade"));
        for end in 0..whole.len() {
            assert!(read_notes([&whole[..end]]).is_err());
        }
        for bad in ["{\"v\":1}", "{\"v\":1,\"change\":{}}", "{\"v\":1,\"whole\":{},\"x\":1}", "[[[[", "\u{0}"]
        {
            assert!(read_notes([bad]).is_err(), "{bad}");
        }
        assert_eq!(read_notes([] as [&str; 0]).unwrap(), None);
        for at in 0..whole.len() {
            for byte in [0, b'"', b'9', b'{', b',', 0xff] {
                let mut note = whole.clone().into_bytes();
                note[at] = byte;
                // It may be one; nothing breaks.
                let _ = read_notes([note]);
            }
        }
    }

    #[test]
    fn of_too_many_producers_the_one_silent_for_longest_is_forgotten() {
        let mut metadata = metadata();
        for i in 0..=MAX_PRODUCERS as u64 {
            let producer = Producer { epoch: 0, seq: i, at: 100 - i.min(1) };
            metadata.apply(&Change { producer: Some((format!("p{i}"), producer)), ..Change::default() });
        }
        assert_eq!(metadata.producers.len(), MAX_PRODUCERS);
        assert!(!metadata.producers.contains_key("p1") && metadata.producers.contains_key("p0"));
    }
}
