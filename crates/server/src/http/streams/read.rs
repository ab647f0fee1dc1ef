//! Reads messages, through all streams from which a fork descends.

use brooklet::Error;
use bytes::Bytes;

use super::Streams;
use super::metadata::{Fork, Identity};
use super::name::Name;
use super::offset::Position;
use crate::http::budget::Share;
use crate::http::reply::Refusal;

/// Messages that are asked of the store at once: what is in memory of them, it looks up in one go.
const AT_ONCE: u64 = 1024;

/// Messages that follow each other.
#[derive(Debug)]
pub struct Chunk {
    pub messages: Vec<Bytes>,
    /// The number of the one after the last.
    pub next: u64,
    /// Their share of the memory for replies.
    pub share: Option<Share>,
}

impl Chunk {
    /// Returns the bytes of the messages as an array of JSON, the longest form of a reply.
    pub fn size(&self) -> usize {
        self.messages.iter().map(|message| message.len() + 1).sum::<usize>() + 1
    }
}

impl Streams {
    /// Messages from number `from` on, before number `end`: one at least, and no more once there is
    /// a chunk of bytes. Reads from the volume. With `skips`, what retention took is left out; else
    /// it is an error.
    pub fn chunk(
        &self,
        name: &Name,
        identity: &Identity,
        from: u64,
        end: u64,
        skips: bool,
    ) -> Result<Chunk, Refusal> {
        let mut chunk = Chunk { messages: Vec::new(), next: from, share: None };
        let mut room = self.config.chunk;
        while chunk.next < end && room > 0 {
            self.read_some(name, identity, &mut chunk, end, &mut room, skips)?;
        }
        Ok(chunk)
    }

    /// One message.
    pub fn message(&self, name: &Name, identity: &Identity, number: u64) -> Result<Bytes, Refusal> {
        let mut chunk = Chunk { messages: Vec::new(), next: number, share: None };
        self.read_some(name, identity, &mut chunk, number + 1, &mut 1, false)?;
        chunk.messages.pop().ok_or_else(|| Refusal::unknown(name))
    }

    /// Reads on in the one stream that has the next message.
    fn read_some(
        &self,
        name: &Name,
        identity: &Identity,
        chunk: &mut Chunk,
        end: u64,
        room: &mut usize,
        skips: bool,
    ) -> Result<(), Refusal> {
        if let Some(fork) = identity.fork.as_ref().filter(|fork| chunk.next < fork.base) {
            let source = Name::new(&fork.source)?;
            let identity = self.identity(&source)?;
            if identity.depth() >= fork.depth {
                let what = format!("it is a fork of {source}, which is no less of one");
                return Err(Error::Damaged { place: format!("stream {name}"), what }.into());
            }
            return self.read_some(&source, &identity, chunk, end.min(fork.base), room, skips);
        }
        let (base, data) = (identity.base(), name.data());
        let until = end.min(chunk.next.saturating_add(AT_ONCE)) - base;
        let entries = match self.store.read(&data, chunk.next - base..until) {
            Err(Error::OutOfRange { first, next, .. }) if skips && chunk.next - base < first => {
                // A source may have gone on, and have lost what follows the fork as well.
                chunk.next = base.saturating_add(first).min(end);
                if chunk.next == end {
                    return Ok(());
                }
                self.store.read(&data, first..until.clamp(first, next))
            }
            entries => entries,
        };
        for entry in entries? {
            let payload = entry?.payload;
            *room = room.saturating_sub(payload.len().max(1));
            chunk.messages.push(payload);
            chunk.next += 1;
            if *room == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Whether an offset is one of a stream: of its own, or one of a source, up to where the fork
    /// begins. May read from the volume.
    pub fn has(&self, identity: &Identity, position: Position) -> Result<bool, Refusal> {
        if position.is_of(identity.id) {
            return Ok(true);
        }
        let is_shared = |fork: &&Fork| position.offset.0 <= fork.base;
        let Some(fork) = identity.fork.as_ref().filter(is_shared) else { return Ok(false) };
        let source = self.identity(&Name::new(&fork.source)?)?;
        Ok(source.depth() < fork.depth && self.has(&source, position)?)
    }

    /// The outline of a stream that others are forks of, deleted or not.
    fn identity(&self, name: &Name) -> Result<std::sync::Arc<Identity>, Refusal> {
        let stream = self.registry.get(name);
        if !stream.is_loaded() {
            drop(stream.turn(&self.store)?);
        }
        stream.seen().identity.ok_or_else(|| Refusal::unknown(name))
    }
}
