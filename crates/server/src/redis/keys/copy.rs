//! Copies of values. A long value is read in portions before, and then copied at once.

use brooklet::Error;
use bytes::Bytes;

use super::cache::SlotId;
use super::hash::NewFields;
use super::list::{End, MAX_REWRITTEN, check_rewritten, collect};
use super::stream::{Id, Stream};
use super::{Keyspace, Value};

/// Elements of a list, fields of a hash, or entries of a stream that one portion reads.
const PARTS: usize = 4_000;

/// What was read so far of a value that is to be copied.
#[derive(Default)]
pub enum Original {
    /// Nothing.
    #[default]
    Unread,
    /// The elements of a list, and their bytes.
    List(Vec<Bytes>, usize),
    /// The fields of a hash.
    Hash(NewFields),
    /// The entries of a stream, their bytes, and the id of the last one.
    Stream(Vec<Bytes>, usize, Id),
}

impl Original {
    /// Returns the bytes that this takes.
    pub fn memory(&self) -> usize {
        match self {
            Self::Unread => 0,
            Self::List(parts, bytes) | Self::Stream(parts, bytes, _) => bytes + size_of_val(&parts[..]),
            Self::Hash(fields) => fields.memory(),
        }
    }

    /// Returns what was read; begins with `start` if that is nothing.
    fn or(&mut self, start: Self) -> &mut Self {
        if matches!(self, Self::Unread) {
            *self = start;
        }
        self
    }
}

impl Value {
    /// Returns whether one portion cannot read all of the value.
    pub fn is_long(&self) -> bool {
        match self {
            Self::Absent | Self::Damaged(_) | Self::String(_) => false,
            Self::List(list) => list.len() > PARTS,
            Self::Hash(fields) => fields.len() > PARTS,
            Self::Stream(stream) => stream.body.len() > PARTS as u64,
        }
    }
}

impl Keyspace {
    /// Reads a portion of a value; returns whether it was the last. The value must not change
    /// between the portions.
    pub fn read_original(&self, id: SlotId, read: &mut Original) -> Result<bool, Error> {
        match self.value(id) {
            Value::Absent | Value::Damaged(_) | Value::String(_) => Ok(true),
            Value::List(list) => {
                let Original::List(elements, bytes) = read.or(Original::List(Vec::new(), 0)) else {
                    return Ok(true);
                };
                let next = elements.len()..list.len().min(elements.len() + PARTS);
                for element in self.elements(id, next)? {
                    let element = element?;
                    *bytes += element.len();
                    elements.push(element);
                }
                check_rewritten(*bytes)?;
                Ok(elements.len() == list.len())
            }
            Value::Hash(fields) => {
                let Original::Hash(new) = read.or(Original::Hash(NewFields::default())) else {
                    return Ok(true);
                };
                new.add(new.next_of(fields, PARTS));
                Ok(new.len() == fields.len())
            }
            Value::Stream(_) => {
                let Original::Stream(entries, bytes, last) =
                    read.or(Original::Stream(Vec::new(), 0, Id::MIN))
                else {
                    return Ok(true);
                };
                let Some(from) = last.after() else { return Ok(true) };
                let room = MAX_REWRITTEN.saturating_sub(*bytes);
                let found = within(self.entries_within(id, (from, Id::MAX), PARTS, false, room)?)?;
                *bytes += found.iter().map(|entry| entry.cost()).sum::<usize>();
                *last = found.last().map_or(*last, |entry| entry.id);
                let is_last = found.len() < PARTS;
                entries.extend(found.into_iter().map(|entry| entry.encoded));
                Ok(is_last)
            }
        }
    }

    /// Copies the value of `from` to `to`, and replaces the value of `to`. All of it may have been
    /// read before, in portions.
    pub fn copy(&mut self, from: SlotId, to: SlotId, read: Original) -> Result<(), Error> {
        self.delete(to);
        let expire = self.expire(from);
        match self.value(from) {
            Value::Absent | Value::Damaged(_) => return Ok(()),
            Value::String(text) => {
                let text = text.clone();
                self.set_text(to, text, None);
            }
            Value::Hash(fields) => match read {
                Original::Hash(new) => self.put_prepared(to, new),
                _ => {
                    let fields = fields.iter().map(|(field, value)| (field.clone(), value.clone())).collect();
                    self.put_fields(to, fields);
                }
            },
            Value::List(list) => {
                let elements = match read {
                    Original::List(elements, _) => elements,
                    _ => collect(self.elements(from, 0..list.len())?)?,
                };
                self.push(to, End::Right, elements);
            }
            Value::Stream(stream) => {
                let stream = stream.clone();
                self.copy_stream(from, to, &stream, read)?;
            }
        }
        if expire.is_some() {
            self.set_expire(to, expire);
        }
        Ok(())
    }

    fn copy_stream(
        &mut self,
        from: SlotId,
        to: SlotId,
        stream: &Stream,
        read: Original,
    ) -> Result<(), Error> {
        let entries = match read {
            Original::Stream(entries, ..) => entries,
            _ => {
                let all = (Id::MIN, Id::MAX);
                let found = within(self.entries_within(from, all, usize::MAX, false, MAX_REWRITTEN)?)?;
                found.into_iter().map(|entry| entry.encoded).collect()
            }
        };
        let mut kept = stream.kept.clone();
        kept.gone.clear();
        kept.meta.more_added = stream.added() as i64 - entries.len() as i64;
        self.touch(to);
        self.cache.get_mut(to).value = Value::Stream(Box::new(Stream { body: Default::default(), kept }));
        self.write_head(to);
        let last = stream.kept.meta.last;
        let (copy, batch, log) = self.stream_mut(to);
        copy.body.push(batch, log, entries);
        copy.kept.meta.last = last;
        self.cache.measure(to);
        Ok(())
    }
}

/// Returns entries that were found within the limit of bytes.
fn within<T>(found: Option<T>) -> Result<T, Error> {
    let limit = MAX_REWRITTEN;
    found.ok_or(Error::CommitTooLarge { len: limit + 1, limit })
}
