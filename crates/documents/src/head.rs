//! The head of a document: all that a patch needs to know, apart from the state.

use std::collections::VecDeque;

use brooklet::Bytes;

use crate::format::{Mark, SnapshotEntry, UsedId};

/// The head of a document.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    /// Version of the document.
    pub version: u64,
    /// Version at which the document was created.
    pub created: u64,
    /// Number of the first entry of the log.
    pub first: u64,
    /// Number of the next entry of the log.
    pub next: u64,
    /// The snapshots that the log holds, oldest first; at least one.
    pub marks: Vec<Mark>,
    /// The remembered request ids, oldest first.
    ids: VecDeque<UsedId>,
    /// Bytes of the updates since the last snapshot.
    pub bytes_since: u64,
    /// Version at which a snapshot was last tried.
    pub tried: u64,
    /// Number of versions that the last call of `snapshot` asked to keep.
    pub asked: u64,
    /// Whether updates have an undo; `None` as long as none was seen.
    pub has_undo: Option<bool>,
}

impl Head {
    /// Returns the head of a log that begins with entry `first`, and whose last snapshot is entry
    /// `seq`.
    pub fn new(snapshot: &SnapshotEntry, seq: u64, first: u64) -> Self {
        let version = snapshot.meta.version;
        let mut marks: Vec<Mark> = snapshot.marks.iter().copied().filter(|mark| mark.seq >= first).collect();
        marks.push(Mark { version, seq });
        let mut ids: VecDeque<UsedId> = snapshot.ids.iter().cloned().collect();
        ids.extend(snapshot.meta.request.clone());
        Self {
            version,
            created: snapshot.created,
            first,
            next: seq + 1,
            marks,
            ids,
            bytes_since: 0,
            tried: version,
            // Nobody has asked for history at a creation.
            asked: if snapshot.is_creation { 0 } else { snapshot.history },
            has_undo: None,
        }
    }

    /// Adds the next update, which makes `version`, and whose entry has `len` bytes.
    pub fn add(&mut self, version: u64, request: Option<UsedId>, has_undo: bool, len: usize, remember: u64) {
        self.version = version;
        self.next += 1;
        self.bytes_since += len as u64;
        self.has_undo = Some(has_undo && self.has_undo.unwrap_or(true));
        self.ids.extend(request);
        self.forget(version, remember);
    }

    /// Drops the request ids that a document at a version does not remember: an id is known for a
    /// number of versions, whenever snapshots are taken.
    pub fn forget(&mut self, version: u64, remember: u64) {
        while self.ids.front().is_some_and(|used| used.version.saturating_add(remember) <= version) {
            self.ids.pop_front();
        }
    }

    /// Copies the remembered request ids to memory of their own: as read, each would keep the
    /// memory of the entries around it.
    pub fn own_ids(&mut self) {
        let mut all = Vec::with_capacity(self.ids.iter().map(|used| used.id.len()).sum());
        self.ids.iter().for_each(|used| all.extend_from_slice(&used.id));
        let (all, mut at) = (Bytes::from(all), 0);
        for used in &mut self.ids {
            let end = at + used.id.len();
            used.id = all.slice(at..end);
            at = end;
        }
    }

    /// Adds a snapshot of the current version.
    pub fn add_snapshot(&mut self) {
        self.marks.push(Mark { version: self.version, seq: self.next });
        self.next += 1;
        (self.bytes_since, self.tried) = (0, self.version);
    }

    /// Notes that the log now begins with entry `first`.
    pub fn trim(&mut self, first: u64) {
        self.first = self.first.max(first);
        self.marks.retain(|mark| mark.seq >= first);
    }

    /// Returns the request that used an id, if it is remembered.
    pub fn find(&self, id: &[u8]) -> Option<&UsedId> {
        self.ids.iter().rev().find(|used| used.id == id)
    }

    pub fn ids(&self) -> impl Iterator<Item = &UsedId> {
        self.ids.iter()
    }

    pub fn last_mark(&self) -> Mark {
        *self.marks.last().expect("a log has a snapshot")
    }

    /// Returns the number of updates since the last snapshot.
    pub fn updates_since(&self) -> u64 {
        self.version - self.last_mark().version
    }

    /// Returns the number of the update that made a version, which the log need not hold.
    pub fn seq_of(&self, version: u64) -> i128 {
        let at =
            |mark: &Mark, version: u64| i128::from(mark.seq) + i128::from(version) - i128::from(mark.version);
        match self.marks.iter().rev().find(|mark| mark.version < version) {
            Some(mark) => at(mark, version),
            // Updates before the first snapshot end right before it.
            None => at(&self.marks[0], version) - 1,
        }
    }

    /// Returns the version before the first update that the log holds.
    pub fn oldest(&self) -> u64 {
        let mark = self.marks[0];
        mark.version - (mark.seq - self.first).min(mark.version)
    }

    /// Returns the newest snapshot that is not after a version.
    pub fn mark_before(&self, version: u64) -> Option<Mark> {
        self.marks.iter().rev().find(|mark| mark.version <= version).copied()
    }

    /// Returns the number of the first entry that has to stay, so that the last `history` versions
    /// can be reached. `has_undo`: the model goes back from a later snapshot, and needs no earlier
    /// one.
    pub fn first_kept(&self, history: u64, has_undo: bool) -> u64 {
        let oldest = self.version.saturating_sub(history).max(self.created);
        if !has_undo {
            return self.mark_before(oldest).map_or(self.first, |mark| mark.seq);
        }
        let next = match oldest == self.version {
            true => i128::from(self.last_mark().seq),
            false => self.seq_of(oldest + 1),
        };
        u64::try_from(next).unwrap_or(0).max(self.first)
    }

    /// Returns the bytes of memory that the head takes, about.
    pub fn size(&self) -> usize {
        let ids: usize = self.ids.iter().map(|used| used.id.len() + size_of::<UsedId>()).sum();
        size_of::<Self>() + ids + self.marks.len() * size_of::<Mark>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Meta;

    #[test]
    fn own_ids_are_the_same_and_share_no_memory_with_entries() {
        let block = Bytes::from(vec![b'x'; 1 << 16]);
        let id =
            |n: usize| UsedId { id: block.slice(n * 10..n * 10 + n), content: n as u64, version: n as u64 };
        let meta = Meta { version: 9, time_ms: 0, author: Bytes::new(), request: None };
        let mut snapshot = SnapshotEntry {
            meta,
            is_creation: false,
            created: 1,
            model: Bytes::new(),
            model_version: 1,
            history: 0,
            marks: Vec::new(),
            ids: (1..9).map(id).collect(),
            state: Bytes::new(),
        };
        let mut head = Head::new(&snapshot, 5, 0);
        head.own_ids();
        assert!(head.ids().eq(&snapshot.ids));
        snapshot.ids.clear();
        assert!(block.is_unique());
    }
}
