//! `CLIENT TRACKING`: which clients keep copies of which keys, and must hear of changes.
//!
//! This is state only. The [engine](super::engine) reports reads and commits, and delivers the
//! invalidations.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bytes::Bytes;
use hashbrown::HashMap;

use super::client::ClientId;
use super::pubsub::{Body, Post};

/// Memory of a key of the table besides its name, in bytes.
const KEY: usize = 128;
/// Memory of a client of a key of the table, in bytes.
const ITEM: usize = 32;
/// Memory of a prefix besides its bytes, in bytes.
const PREFIX: usize = 256;
/// Most bytes that are compared to find the prefixes of the keys of one commit: a fraction of a
/// second.
const MOST_COMPARED: usize = 1 << 25;
/// A look-up of a prefix takes as long as the comparison of so many bytes.
const LOOK_UP: usize = 64;

/// Which keys a client hears of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The keys that the client has read.
    #[default]
    Read,
    /// The keys that the client has read by a command that follows `CLIENT CACHING YES`.
    OptIn,
    /// The keys that the client has read, unless the command follows `CLIENT CACHING NO`.
    OptOut,
    /// All keys with some prefixes.
    Broadcast,
}

/// How a client tracks keys.
#[derive(Clone, Debug, Default)]
pub struct Tracking {
    /// Which keys the client hears of.
    pub mode: Mode,
    /// The client that gets the invalidations instead.
    pub redirect: Option<ClientId>,
    /// Whether the client does not hear of its own changes.
    pub no_loop: bool,
    /// Prefixes of the mode [`Mode::Broadcast`].
    pub prefixes: BTreeSet<Bytes>,
    /// Whether `CLIENT CACHING` was sent just before.
    pub caching: bool,
    /// Whether the client that gets the invalidations has gone.
    pub is_broken: bool,
}

impl Tracking {
    /// Returns the memory of the prefixes, in bytes.
    pub fn memory(&self) -> usize {
        self.prefixes.iter().map(|prefix| prefix.len() + PREFIX).sum()
    }

    fn remembers_reads(&self) -> bool {
        match self.mode {
            Mode::Read => true,
            Mode::OptIn => self.caching,
            Mode::OptOut => !self.caching,
            Mode::Broadcast => false,
        }
    }
}

/// The clients that track keys, and the keys that they have read.
#[derive(Debug, Default)]
pub struct Tracker {
    clients: HashMap<ClientId, Tracking>,
    keys: BTreeMap<Bytes, BTreeSet<ClientId>>,
    /// Number of clients of all keys together.
    items: usize,
    /// Memory of the keys, in bytes.
    bytes: usize,
    /// The last key that was removed for lack of room.
    hand: Bytes,
    prefixes: BTreeMap<Bytes, BTreeSet<ClientId>>,
    /// Number of prefixes of each length.
    lengths: BTreeMap<usize, usize>,
    /// Whether the current request has removed all keys of a database.
    is_flushed: bool,
}

impl Tracker {
    /// Returns whether no client tracks keys.
    pub fn is_idle(&self) -> bool {
        self.clients.is_empty()
    }

    /// Returns the number of clients that track keys.
    pub fn client_count(&self) -> usize {
        self.clients.len()
    }

    /// Returns the number of keys of the table, of their clients, and of prefixes.
    pub fn counts(&self) -> (usize, usize, usize) {
        (self.keys.len(), self.items, self.prefixes.len())
    }

    /// Returns how a client tracks keys; `None` if it does not.
    pub fn of(&self, id: ClientId) -> Option<&Tracking> {
        self.clients.get(&id)
    }

    /// Returns how a client tracks keys, for changes.
    pub fn of_mut(&mut self, id: ClientId) -> Option<&mut Tracking> {
        self.clients.get_mut(&id)
    }

    /// Begins to track keys for a client, or changes how. Earlier prefixes stay. Returns the memory
    /// of all prefixes, in bytes.
    pub fn begin(&mut self, id: ClientId, mut tracking: Tracking) -> usize {
        for prefix in &tracking.prefixes {
            let clients = self.prefixes.entry(prefix.clone()).or_default();
            if clients.is_empty() {
                *self.lengths.entry(prefix.len()).or_default() += 1;
            }
            clients.insert(id);
        }
        if let Some(old) = self.clients.remove(&id) {
            tracking.prefixes.extend(old.prefixes);
        }
        let bytes = tracking.memory();
        self.clients.insert(id, tracking);
        bytes
    }

    /// Ends the tracking for a client. Its keys leave the table when they change.
    pub fn end(&mut self, id: ClientId) {
        let Some(tracking) = self.clients.remove(&id) else { return };
        for prefix in tracking.prefixes {
            let Some(clients) = self.prefixes.get_mut(&prefix) else { continue };
            clients.remove(&id);
            if clients.is_empty() {
                self.prefixes.remove(&prefix);
                if let Some(count) = self.lengths.get_mut(&prefix.len()) {
                    *count -= 1;
                    if *count == 0 {
                        self.lengths.remove(&prefix.len());
                    }
                }
            }
        }
        if self.clients.is_empty() {
            *self = Self::default();
        }
    }

    /// Records that a client has read keys.
    pub fn read(&mut self, id: ClientId, names: impl IntoIterator<Item = Bytes>) {
        if !self.clients.get(&id).is_some_and(Tracking::remembers_reads) {
            return;
        }
        for name in names {
            let clients = match self.keys.get_mut(&name) {
                Some(clients) => clients,
                None => {
                    self.bytes += name.len() + KEY;
                    // Copied, so that the rest of the packet does not stay in memory with the name.
                    self.keys.entry(Bytes::copy_from_slice(&name)).or_default()
                }
            };
            if clients.insert(id) {
                self.items += 1;
                self.bytes += ITEM;
            }
        }
    }

    /// Removes keys from the table, while it has more than `most_keys` keys or `most_bytes` bytes.
    /// Returns the invalidations of these keys.
    pub fn trim(&mut self, most_keys: usize, most_bytes: usize) -> Vec<Post> {
        let mut posts = Vec::new();
        while self.keys.len() > most_keys || self.bytes > most_bytes {
            let next = self.keys.range::<Bytes, _>((Bound::Excluded(&self.hand), Bound::Unbounded)).next();
            let next = next.or_else(|| self.keys.first_key_value()).map(|(name, _)| name.clone());
            let Some(name) = next else { break };
            posts.extend(self.forget(&name, None));
            self.hand = name;
        }
        posts
    }

    /// Removes a key from the table; returns its invalidation. A client that does not hear of its
    /// own change stays in the table: it may have read the key after it, in the same commit.
    fn forget(&mut self, name: &Bytes, by: Option<ClientId>) -> Option<Post> {
        let mut clients = self.keys.remove(name)?;
        self.items -= clients.len();
        self.bytes -= name.len() + KEY + clients.len() * ITEM;
        let is_own = |id: &ClientId| self.clients.get(id).is_some_and(|one| one.no_loop);
        if let Some(id) = by.filter(is_own)
            && clients.remove(&id)
        {
            self.keys.insert(name.clone(), BTreeSet::from([id]));
            self.items += 1;
            self.bytes += name.len() + KEY + ITEM;
        }
        let hears = |id: &ClientId| self.clients.get(id).is_some_and(|one| one.mode != Mode::Broadcast);
        let to: Vec<ClientId> = clients.into_iter().filter(hears).collect();
        (!to.is_empty()).then(|| Post::new(to, Body::Invalid(Some(vec![name.clone()]))))
    }

    /// Returns the invalidations of the keys that a commit of the client `by` has changed. If they
    /// cost more than `most` bytes, or take too long to find, all clients hear that all keys have
    /// changed.
    pub fn changed(&mut self, names: Vec<Bytes>, by: Option<ClientId>, most: usize) -> Vec<Post> {
        if self.is_flushed {
            return Vec::new();
        }
        let mut posts = Vec::new();
        let mut of_prefix: BTreeMap<Bytes, Vec<Bytes>> = BTreeMap::new();
        let (mut cost, mut compared) = (0, 0);
        for name in names {
            if let Some(post) = self.forget(&name, by) {
                cost += post.cost();
                posts.push(post);
            }
            for len in self.lengths.range(..=name.len()).map(|(len, _)| *len) {
                compared += len + LOOK_UP;
                if let Some((prefix, clients)) = self.prefixes.get_key_value(&name[..len]) {
                    of_prefix.entry(prefix.clone()).or_default().push(name.clone());
                    cost += clients.len() * (name.len() + ITEM);
                }
                if cost > most || compared > MOST_COMPARED {
                    return vec![self.all_changed()];
                }
            }
        }
        for (prefix, names) in of_prefix {
            let hears =
                |id: &ClientId| !(by == Some(*id) && self.clients.get(id).is_some_and(|one| one.no_loop));
            let to: Vec<ClientId> = self.prefixes[&prefix].iter().copied().filter(hears).collect();
            posts.push(Post::new(to, Body::Invalid(Some(names))));
        }
        if posts.iter().map(Post::cost).sum::<usize>() > most {
            return vec![self.all_changed()];
        }
        posts
    }

    fn all_changed(&mut self) -> Post {
        self.keys.clear();
        (self.items, self.bytes) = (0, 0);
        Post::new(self.clients.keys().copied(), Body::Invalid(None))
    }

    /// Records that the current request removes all keys of a database. Instead of each key, the
    /// clients hear of all.
    pub fn note_flush(&mut self) {
        self.is_flushed = !self.is_idle();
    }

    /// Forgets a removal that was undone.
    pub fn undo_flush(&mut self) {
        self.is_flushed = false;
    }

    /// Returns the invalidation of all keys, if the current request has removed all keys.
    pub fn take_flush(&mut self) -> Option<Post> {
        std::mem::take(&mut self.is_flushed).then(|| self.all_changed())
    }
}

/// Returns two prefixes of which one begins with the other, if there are such, and whether the
/// second is an old one.
pub fn overlap<'a>(old: &'a BTreeSet<Bytes>, new: &'a [Bytes]) -> Option<(&'a Bytes, &'a Bytes, bool)> {
    // The place of a new prefix; an old prefix comes after all of them.
    let mut all: Vec<(&Bytes, usize)> = new.iter().enumerate().map(|(at, prefix)| (prefix, at)).collect();
    all.extend(old.iter().map(|prefix| (prefix, new.len())));
    all.sort();
    // The prefixes between a prefix and a longer one begin with the prefix, too.
    all.windows(2).find_map(|pair| {
        let [(short, at), (long, place)] = [pair[0], pair[1]];
        let is_overlap = long.starts_with(short) && at.min(place) < new.len();
        let is_old = at.max(place) == new.len();
        is_overlap.then_some(if at < place { (short, long, is_old) } else { (long, short, is_old) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 1 << 20;

    fn name(text: &'static str) -> Bytes {
        Bytes::from(text)
    }

    fn tracks(mode: Mode, prefixes: &[&'static str]) -> Tracking {
        let prefixes = prefixes.iter().map(|prefix| name(prefix)).collect();
        Tracking { mode, prefixes, ..Tracking::default() }
    }

    /// Each invalidation: its receivers, and its keys.
    fn told(posts: Vec<Post>) -> Vec<(Vec<ClientId>, String)> {
        let keys = |body: &Body| match body {
            Body::Invalid(Some(keys)) => {
                keys.iter().map(|key| String::from_utf8_lossy(key)).collect::<Vec<_>>().join(" ")
            }
            _ => "all".into(),
        };
        let mut all: Vec<_> = posts.iter().map(|post| (post.to.to_vec(), keys(&post.body))).collect();
        all.sort();
        all
    }

    #[test]
    fn a_client_hears_once_of_a_key_that_it_read() {
        let mut tracker = Tracker::default();
        tracker.begin(1, tracks(Mode::Read, &[]));
        tracker.begin(2, Tracking { no_loop: true, ..Tracking::default() });
        for id in [1, 2, 3] {
            tracker.read(id, [name("a"), name("b")]);
        }
        assert_eq!(tracker.counts(), (2, 4, 0));
        assert_eq!(told(tracker.changed(vec![name("a"), name("c")], Some(2), MOST)), [(vec![1], "a".into())]);
        assert!(tracker.changed(vec![name("a")], Some(2), MOST).is_empty());
        assert_eq!(tracker.counts(), (2, 3, 0));
        assert_eq!(told(tracker.changed(vec![name("a")], None, MOST)), [(vec![2], "a".into())]);
        assert!(tracker.changed(vec![name("a")], None, MOST).is_empty());
        assert_eq!(told(tracker.changed(vec![name("b")], Some(1), MOST)), [(vec![1, 2], "b".into())]);
        assert_eq!((tracker.counts(), tracker.bytes), ((0, 0, 0), 0));
    }

    #[test]
    fn reads_count_as_the_client_has_chosen() {
        let mut tracker = Tracker::default();
        for (mode, caching, is_kept) in [
            (Mode::OptIn, false, false),
            (Mode::OptIn, true, true),
            (Mode::OptOut, false, true),
            (Mode::OptOut, true, false),
            (Mode::Broadcast, true, false),
        ] {
            tracker.begin(1, Tracking { mode, caching, ..Tracking::default() });
            tracker.read(1, [name("a")]);
            assert_eq!(tracker.counts().0, usize::from(is_kept), "{mode:?} {caching}");
            tracker.end(1);
        }
    }

    #[test]
    fn the_table_is_bounded_and_what_leaves_it_is_told() {
        let mut tracker = Tracker::default();
        tracker.begin(1, tracks(Mode::Read, &[]));
        let mut left = Vec::new();
        for n in 0..100 {
            tracker.read(1, [Bytes::from(format!("{n:03}"))]);
            left.extend(told(tracker.trim(10, MOST)));
        }
        assert_eq!((tracker.counts().0, left.len()), (10, 90));
        tracker.read(1, [name("x")]);
        let more = told(tracker.trim(10, 4 * (3 + KEY + ITEM)));
        assert_eq!((tracker.counts().0, more.len()), (4, 7));
        assert!(tracker.bytes <= 4 * (3 + KEY + ITEM));
    }

    #[test]
    fn a_prefix_is_told_of_all_keys_at_once() {
        let mut tracker = Tracker::default();
        tracker.begin(1, tracks(Mode::Broadcast, &["a", "bc"]));
        tracker.begin(2, tracks(Mode::Broadcast, &[""]));
        tracker.begin(3, Tracking { no_loop: true, ..tracks(Mode::Broadcast, &["a"]) });
        let names = || vec![name("a1"), name("a2"), name("bc"), name("b")];
        let all = told(tracker.changed(names(), Some(3), MOST));
        assert_eq!(all, [(vec![1], "a1 a2".into()), (vec![1], "bc".into()), (vec![2], "a1 a2 bc b".into())]);
        // More than fits: all keys may have changed.
        assert_eq!(told(tracker.changed(names(), None, 100))[0].1, "all");
        tracker.note_flush();
        assert!(tracker.changed(names(), None, MOST).is_empty());
        let all = tracker.take_flush().map(|post| post.to.len());
        assert!(all == Some(3) && tracker.take_flush().is_none());
        for id in [1, 2, 3] {
            tracker.end(id);
        }
        assert!(tracker.is_idle() && tracker.counts().2 == 0);
    }

    #[test]
    fn to_find_many_prefixes_of_many_keys_takes_a_while_only() {
        let mut tracker = Tracker::default();
        let prefixes = (1..900).map(|len| Bytes::from("a".repeat(len))).collect();
        tracker.begin(1, Tracking { mode: Mode::Broadcast, prefixes, ..Tracking::default() });
        let names = |count| (0..count).map(|n| Bytes::from(format!("{}{n:03}", "a".repeat(900)))).collect();
        assert_eq!(tracker.changed(names(1), None, MOST).len(), 899);
        assert_eq!(told(tracker.changed(names(10), None, MOST)), [(vec![1], "all".into())], "it is too much");
        tracker.end(1);
        let prefixes = (1..900).map(|len| Bytes::from("a".repeat(len) + "b")).collect();
        tracker.begin(1, Tracking { mode: Mode::Broadcast, prefixes, ..Tracking::default() });
        assert!(tracker.changed(names(10), None, MOST).is_empty());
        assert_eq!(
            told(tracker.changed(names(100), None, MOST)),
            [(vec![1], "all".into())],
            "it takes too long"
        );
    }

    #[test]
    fn prefixes_that_overlap_are_found() {
        let old: BTreeSet<Bytes> = [name("foo"), name("x")].into();
        let find = |new: &[Bytes]| overlap(&old, new).map(|(a, b, is_old)| (a.clone(), b.clone(), is_old));
        assert_eq!(find(&[name("bar"), name("fo1")]), None);
        assert_eq!(find(&[name("foobar")]), Some((name("foobar"), name("foo"), true)));
        assert_eq!(find(&[name("fo")]), Some((name("fo"), name("foo"), true)));
        assert_eq!(find(&[name("b"), name("bar")]), Some((name("b"), name("bar"), false)));
        assert_eq!(find(&[name("bar"), name("b")]), Some((name("bar"), name("b"), false)));
        assert_eq!(find(&[name("x")]), Some((name("x"), name("x"), true)));
    }
}
