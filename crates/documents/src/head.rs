//! The head of a document: all that a patch needs to know, apart from the state.

use crate::format::{Mark, SnapshotEntry, UsedId};
use crate::ids::{Ids, Used};

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
    ids: Ids,
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
        let mut ids = Ids::default();
        for used in snapshot.ids.iter().chain(&snapshot.meta.request) {
            ids.push(&used.id, used.content, used.version);
        }
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

    /// Adds the next update, which makes `version`, and whose entry has `len` bytes. `request` is
    /// the id of its request, and the hash of the content.
    pub fn add(
        &mut self,
        version: u64,
        request: Option<(&[u8], u64)>,
        has_undo: bool,
        len: usize,
        remember: u64,
    ) {
        self.version = version;
        self.next += 1;
        self.bytes_since += len as u64;
        self.has_undo = Some(has_undo && self.has_undo.unwrap_or(true));
        self.ids.forget(version, remember);
        if let Some((id, content)) = request {
            self.ids.push(id, content, version);
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
    pub fn find(&self, id: &[u8]) -> Option<Used> {
        self.ids.find(id)
    }

    /// Returns the remembered request ids, oldest first.
    pub fn ids(&self) -> Vec<UsedId> {
        self.ids.to_vec()
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
        size_of::<Self>() + self.ids.size() + self.marks.len() * size_of::<Mark>()
    }
}
