//! Long commands in portions: other clients have their turns in between.

use std::ops::Range;

use super::super::fail::{Fail, Portion};
use super::super::keys::Loading;
use super::super::reply::Reply;
use super::{Call, Done, Spec};

/// Parts of a reply that one portion writes, or reads for it.
pub const PARTS: usize = 2_000;
/// Bytes of a reply that one portion writes, or reads for it, about.
pub const BYTES: usize = 1 << 20;
/// Fields of a long hash that one portion loads.
const FIELDS: usize = 4_000;
/// Times that a command begins again, because its keys change, before it gives no turns any more.
const RESTARTS: usize = 3;

impl Call<'_> {
    /// Runs a command in portions of about a millisecond. `portion` returns whether it was the
    /// last; it must not keep slots of keys.
    pub fn in_portions(
        &mut self,
        mut portion: impl FnMut(&mut Call<'_>) -> Result<bool, Fail> + Send + 'static,
    ) -> Done {
        while !portion(self)? {
            if !self.client.is_in_exec && !self.client.is_in_script {
                return Err(Fail::Long(Portion(Box::new(portion))));
            }
            self.count_at_once()?;
        }
        Ok(())
    }

    /// Counts a portion that others have no turn after, because it is in a transaction or a script.
    fn count_at_once(&mut self) -> Done {
        let name = self.word(0).to_ascii_lowercase();
        self.engine.count_at_once(&name, self.client.is_in_script)
    }

    /// Looks at keys in portions, as they are at one moment, and then ends a command at once. The
    /// words at `keys` name the keys. `look` adds a portion to what was seen, and returns the
    /// memory of all that; `None` after the last portion. If a key changes meanwhile, the looks
    /// begin again; after some such beginnings, they run at once.
    pub fn at_one_moment<S: Default + Send + 'static>(
        &mut self,
        keys: Range<usize>,
        mut look: impl FnMut(&mut Call<'_>, &mut S) -> Result<Option<usize>, Fail> + Send + 'static,
        mut end: impl FnMut(&mut Call<'_>, S) -> Done + Send + 'static,
    ) -> Done {
        let mut seen = S::default();
        while let Some(memory) = look(self, &mut seen)? {
            if self.is_whole() {
                // What wakes a client is one key.
                if self.woken_by.is_none() {
                    self.count_at_once()?;
                }
                continue;
            }
            self.client.work_bytes = memory;
            let (changes, mut restarts) = (self.keys().follow(), 0);
            return Err(Fail::Long(Portion(Box::new(move |call| {
                if changes.have_changed(&call.client.database, &call.args[keys.clone()]) {
                    seen = S::default();
                    restarts += 1;
                }
                while let Some(memory) = look(call, &mut seen)? {
                    call.client.work_bytes = memory;
                    if restarts <= RESTARTS {
                        return Ok(false);
                    }
                }
                // The last look has found a key expired: what was seen before is of that key. The
                // deletion is committed, and the looks begin again. Looks that ran at once are of
                // one moment all the same.
                if restarts <= RESTARTS && call.engine.keys.is_changed() {
                    return Ok(false);
                }
                end(call, std::mem::take(&mut seen)).map(|()| true)
            }))));
        }
        end(self, seen)
    }

    /// Returns whether a command must not give turns to others. The transaction, the script or the
    /// commit that wakes a client has bounds of its own.
    pub fn is_whole(&self) -> bool {
        self.client.is_in_exec || self.client.is_in_script || self.woken_by.is_some()
    }

    /// Writes the parts of a reply, in portions. `write` writes a part, and returns how many parts
    /// of usual size take as long; `None` if there was no part left. The parts take `memory` bytes,
    /// and do not change meanwhile. The reply begins at `start`.
    pub fn tell_parts(
        &mut self,
        start: usize,
        memory: usize,
        mut write: impl FnMut(&mut Reply) -> Option<usize> + Send + 'static,
    ) -> Done {
        let is_whole = self.is_whole();
        while write_some(&mut self.client.reply, &mut write) {
            if !self.client.has_room()? {
                return Ok(());
            }
            if is_whole {
                continue;
            }
            // Messages for the client come between other replies, and not into this one.
            let mut told = self.client.reply.split_off(start);
            self.client.work_bytes = memory + told.len();
            return Err(Fail::Long(Portion(Box::new(move |call| {
                let has_more = write_some(&mut told, &mut write);
                if told.is_full() {
                    call.reply().fill();
                    return call.client.has_room().map(|_| true);
                }
                call.client.work_bytes = memory + told.len();
                if has_more {
                    return Ok(false);
                }
                if told.len() <= call.client.reply.room() {
                    call.reply().take_in(std::mem::take(&mut told));
                } else {
                    // Messages that the client did not take have taken the room.
                    call.client.is_killed = true;
                }
                Ok(true)
            }))));
        }
        self.client.has_room().map(drop)
    }
}

/// Goes on with a command once a long hash is loaded, in portions.
pub fn after_load(spec: &'static Spec, loading: Box<Loading>) -> Fail {
    let mut loading = Some(loading);
    Fail::Long(Portion(Box::new(move |call| {
        let Some(hash) = &mut loading else { return (spec.handler)(call).map(|()| true) };
        match hash.go_on(FIELDS) {
            Ok(is_done) => {
                call.client.work_bytes = hash.memory();
                if is_done && let Some(hash) = loading.take() {
                    call.keys().end_load(*hash);
                }
            }
            // The command meets the damage itself: it may be one that deletes the hash.
            Err(_) => drop(loading.take()),
        }
        Ok(false)
    })))
}

/// Writes a portion of a reply; returns whether there may be more.
fn write_some(reply: &mut Reply, write: &mut impl FnMut(&mut Reply) -> Option<usize>) -> bool {
    let (end, mut parts) = (reply.len() + BYTES, 0);
    while parts < PARTS && reply.len() < end && !reply.is_full() {
        let Some(cost) = write(reply) else { return false };
        parts += cost;
    }
    true
}
