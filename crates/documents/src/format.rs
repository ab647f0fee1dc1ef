//! The logs of documents, and the format of their entries. This is the only description of both.
//!
//! ```text
//! <prefix>d<name>   the entries of a document
//! <prefix>f<part>   an empty log. Its next number is at least the next number of each deleted document of a part, so that a
//!                   document made again has numbers and versions that no document of its name had before. The part is '0' and
//!                   the 32-bit FNV-1a hash of the name, modulo 64
//!
//! entry    := kind, version, time, author, request, body
//! kind     one byte: the format (1) in the upper half; in the lower half 1 an update, 2 a snapshot, 3 a creation
//! version  number: of the document after the entry; a snapshot has the version of the update before it
//! time     number: milliseconds since 1970, when the entry was made
//! author   bytes
//! request  bytes: the request id, or none; if there is one, 8 bytes follow: the hash of the content of the request
//! body of an update
//!          back      number: 0, or 1 + the version that a rewind went back to
//!          undo      number: 0, or 1 + the length of the undo, which follows
//!          change    the rest
//! body of a snapshot or a creation
//!          created   number: version less the version at which the document was created
//!          model     bytes: its name
//!          model's version   number
//!          history   number: versions before this one that the last call of `snapshot` asked to stay. In a creation, no call has
//!          marks     number, then for each older snapshot that the log holds, oldest first: two numbers, version less the
//!                    version of the snapshot, and number of this entry less the number of the entry of the snapshot
//!          ids       number, then for each remembered request id, oldest first: id as bytes, 8 bytes of hash, number: version
//!                    less the version that the request made
//!          state     the rest
//! number   LEB128, in its shortest form
//! bytes    number: length; then the bytes
//! ```
//!
//! A log begins with a creation, a snapshot, or an update that a snapshot follows. The versions of
//! updates are consecutive. The store checksums all entries.

use brooklet::{Bytes, MAX_KEY};

use crate::codec::{Reader, put_bytes, put_number};
use crate::error::{Error, Result, text};

const DOCUMENT: u8 = b'd';
const FLOOR: u8 = b'f';

/// Number of parts of the names that have a floor each.
const PARTS: u32 = 64;

const FORMAT: u8 = 1;
const UPDATE: u8 = 1;
const SNAPSHOT: u8 = 2;
const CREATION: u8 = 3;

/// The keys of all logs below a prefix.
#[derive(Clone, Debug)]
pub(crate) struct Keys(Box<[u8]>);

impl Keys {
    pub fn new(prefix: &[u8]) -> Self {
        Self(prefix.into())
    }

    pub fn prefix(&self) -> &[u8] {
        &self.0
    }

    /// Returns the key of a document.
    pub fn document(&self, name: &[u8]) -> Result<Vec<u8>> {
        let limit = MAX_KEY.saturating_sub(self.0.len() + 1);
        if name.len() > limit {
            let len = name.len();
            let what = format!("a document name of {len} bytes: use at most {limit} bytes with this prefix");
            return Err(Error::Invalid(what));
        }
        Ok([&self.0[..], &[DOCUMENT], name].concat())
    }

    /// Returns the prefix of the keys of all documents.
    pub fn all(&self) -> Vec<u8> {
        [&self.0[..], &[DOCUMENT]].concat()
    }

    /// Returns the key of the log whose next number no new document of this name may be below.
    pub fn floor(&self, name: &[u8]) -> Vec<u8> {
        let hash = name
            .iter()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
        [&self.0[..], &[FLOOR, b'0' + (hash % PARTS) as u8]].concat()
    }
}

/// The version and the place of a snapshot in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub version: u64,
    pub seq: u64,
}

/// A request id, and what is known of its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UsedId {
    pub id: Bytes,
    /// Hash of the content of the request.
    pub content: u64,
    /// Version that the request made.
    pub version: u64,
}

/// The fields of all entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    pub version: u64,
    pub time_ms: u64,
    pub author: Bytes,
    pub request: Option<UsedId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UpdateEntry {
    pub meta: Meta,
    /// The version that a rewind went back to.
    pub back: Option<u64>,
    pub undo: Option<Bytes>,
    pub change: Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotEntry {
    pub meta: Meta,
    pub is_creation: bool,
    /// The version at which the document was created.
    pub created: u64,
    pub model: Bytes,
    pub model_version: u32,
    pub history: u64,
    /// The older snapshots that the log holds, oldest first.
    pub marks: Vec<Mark>,
    /// The remembered request ids, oldest first.
    pub ids: Vec<UsedId>,
    pub state: Bytes,
}

/// The fields of all entries, as parts of the bytes of an entry.
pub(crate) struct MetaParts<'a> {
    pub version: u64,
    time_ms: u64,
    author: &'a [u8],
    /// The request id; empty if there is none.
    pub id: &'a [u8],
    /// Hash of the content of the request; 0 if there is no id.
    pub content: u64,
}

/// An update, as parts of the bytes of its entry: for those who look at an entry and keep few of
/// its parts.
pub(crate) struct UpdateParts<'a> {
    pub meta: MetaParts<'a>,
    back: Option<u64>,
    pub undo: Option<&'a [u8]>,
    pub change: &'a [u8],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DocEntry {
    Update(UpdateEntry),
    Snapshot(SnapshotEntry),
}

impl Meta {
    fn encode(&self, kind: u8, to: &mut Vec<u8>) {
        to.push(FORMAT << 4 | kind);
        put_number(to, self.version);
        put_number(to, self.time_ms);
        put_bytes(to, &self.author);
        match &self.request {
            Some(used) => {
                put_bytes(to, &used.id);
                to.extend_from_slice(&used.content.to_le_bytes());
            }
            None => put_number(to, 0),
        }
    }
}

impl UpdateEntry {
    pub fn encode(&self) -> Vec<u8> {
        let undo_len = self.undo.as_ref().map_or(0, Bytes::len);
        let mut to = Vec::with_capacity(64 + self.meta.author.len() + undo_len + self.change.len());
        self.meta.encode(UPDATE, &mut to);
        put_number(&mut to, self.back.map_or(0, |version| version + 1));
        match &self.undo {
            Some(undo) => {
                put_number(&mut to, undo.len() as u64 + 1);
                to.extend_from_slice(undo);
            }
            None => put_number(&mut to, 0),
        }
        to.extend_from_slice(&self.change);
        to
    }
}

impl SnapshotEntry {
    /// Returns the bytes of the entry, which will have the number `seq` in its log.
    pub fn encode(&self, seq: u64) -> Vec<u8> {
        let mut to = Vec::with_capacity(128 + 40 * self.ids.len() + self.state.len());
        let version = self.meta.version;
        self.meta.encode(if self.is_creation { CREATION } else { SNAPSHOT }, &mut to);
        put_number(&mut to, version - self.created);
        put_bytes(&mut to, &self.model);
        put_number(&mut to, self.model_version.into());
        put_number(&mut to, self.history);
        put_number(&mut to, self.marks.len() as u64);
        for mark in &self.marks {
            put_number(&mut to, version - mark.version);
            put_number(&mut to, seq - mark.seq);
        }
        put_number(&mut to, self.ids.len() as u64);
        for used in &self.ids {
            put_bytes(&mut to, &used.id);
            to.extend_from_slice(&used.content.to_le_bytes());
            put_number(&mut to, version - used.version);
        }
        to.extend_from_slice(&self.state);
        to
    }

    fn decode(
        seq: u64,
        is_creation: bool,
        meta: Meta,
        mut reader: Reader<'_>,
        payload: &Bytes,
    ) -> Result<Self, String> {
        let version = meta.version;
        let earlier = |back: u64, of: u64| of.checked_sub(back).ok_or("it refers to before the first entry");
        let created = earlier(reader.number()?, version)?;
        let model = payload.slice_ref(reader.bytes()?);
        let model_version = u32::try_from(reader.number()?).map_err(|error| error.to_string())?;
        let history = reader.number()?;
        // The vectors grow with the bytes that are read: a false count allocates nothing.
        let mut marks = Vec::<Mark>::new();
        for _ in 0..reader.number()? {
            let mark =
                Mark { version: earlier(reader.number()?, version)?, seq: earlier(reader.number()?, seq)? };
            let is_later =
                marks.last().is_none_or(|last| last.seq < mark.seq && last.version <= mark.version);
            if !is_later || mark.seq == seq {
                return Err("its list of snapshots has no order".into());
            }
            marks.push(mark);
        }
        let mut ids = Vec::<UsedId>::new();
        for _ in 0..reader.number()? {
            let (id, content) = (payload.slice_ref(reader.bytes()?), reader.hash()?);
            let used = UsedId { id, content, version: earlier(reader.number()?, version)? };
            if used.id.is_empty() || ids.last().is_some_and(|last| last.version >= used.version) {
                return Err("its list of request ids has no order".into());
            }
            ids.push(used);
        }
        if is_creation && (created != version || !marks.is_empty()) {
            return Err("it is a creation, and not the first entry".into());
        }
        let state = payload.slice_ref(reader.rest());
        Ok(Self { meta, is_creation, created, model, model_version, history, marks, ids, state })
    }
}

impl<'a> MetaParts<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, String> {
        let (version, time_ms, author, id) =
            (reader.number()?, reader.number()?, reader.bytes()?, reader.bytes()?);
        let content = if id.is_empty() { 0 } else { reader.hash()? };
        Ok(Self { version, time_ms, author, id, content })
    }

    /// Returns the fields, which share the memory of the entry.
    fn shared(&self, payload: &Bytes) -> Meta {
        let Self { version, time_ms, author, id, content } = *self;
        let used = || UsedId { id: payload.slice_ref(id), content, version };
        let request = (!id.is_empty()).then(used);
        Meta { version, time_ms, author: payload.slice_ref(author), request }
    }
}

impl<'a> UpdateParts<'a> {
    /// Returns the update that an entry is; `None` for an entry of another kind. The bytes may be
    /// anything.
    pub fn decode(payload: &'a [u8]) -> Result<Option<Self>, String> {
        let mut reader = Reader::new(payload);
        match kind_of(&mut reader)? {
            UPDATE => {
                let meta = MetaParts::decode(&mut reader)?;
                Self::behind(meta, reader).map(Some)
            }
            SNAPSHOT | CREATION => Ok(None),
            kind => Err(unknown(kind)),
        }
    }

    /// Decodes the body of an update.
    fn behind(meta: MetaParts<'a>, mut reader: Reader<'a>) -> Result<Self, String> {
        let back = reader.number()?.checked_sub(1);
        if back.is_some_and(|back| back >= meta.version) {
            return Err("it goes back to a later version".into());
        }
        let undo = match reader.number()?.checked_sub(1) {
            Some(len) => Some(reader.take(usize::try_from(len).unwrap_or(usize::MAX))?),
            None => None,
        };
        Ok(Self { meta, back, undo, change: reader.rest() })
    }

    /// Returns the update, which shares the memory of the entry.
    fn shared(&self, payload: &Bytes) -> UpdateEntry {
        UpdateEntry {
            meta: self.meta.shared(payload),
            back: self.back,
            undo: self.undo.map(|undo| payload.slice_ref(undo)),
            change: payload.slice_ref(self.change),
        }
    }
}

impl DocEntry {
    /// Decodes the entry with the number `seq`. The bytes may be anything.
    pub fn decode(seq: u64, payload: &Bytes) -> Result<Self, String> {
        let mut reader = Reader::new(payload);
        let kind = kind_of(&mut reader)?;
        let meta = MetaParts::decode(&mut reader)?;
        match kind {
            UPDATE => Ok(Self::Update(UpdateParts::behind(meta, reader)?.shared(payload))),
            SNAPSHOT | CREATION => {
                let meta = meta.shared(payload);
                SnapshotEntry::decode(seq, kind == CREATION, meta, reader, payload).map(Self::Snapshot)
            }
            kind => Err(unknown(kind)),
        }
    }

    /// Decodes an entry of a document.
    pub fn of(name: &[u8], entry: &brooklet::Entry) -> Result<Self> {
        Self::decode(entry.seq, &entry.payload).map_err(|what| Error::damaged(name, entry.seq, what))
    }

    pub fn meta(&self) -> &Meta {
        match self {
            Self::Update(update) => &update.meta,
            Self::Snapshot(snapshot) => &snapshot.meta,
        }
    }
}

/// Reads the first byte of an entry, which has the kind.
fn kind_of(reader: &mut Reader<'_>) -> Result<u8, String> {
    let first = reader.byte()?;
    if first >> 4 != FORMAT {
        return Err(format!(
            "it has format {}, and this version reads format {FORMAT}: upgrade brooklet-documents",
            first >> 4
        ));
    }
    Ok(first & 0xf)
}

fn unknown(kind: u8) -> String {
    format!("its kind is {kind}, which this version does not know")
}

/// Checks that a snapshot is of a model, and of no later version of it.
pub(crate) fn check_model(name: &[u8], found: &SnapshotEntry, model: &str, version: u32) -> Result<()> {
    if found.model == model.as_bytes() && found.model_version <= version {
        return Ok(());
    }
    Err(Error::OtherModel {
        document: text(name),
        found: found.model.escape_ascii().to_string(),
        found_version: found.model_version,
        model: model.into(),
        version,
    })
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
