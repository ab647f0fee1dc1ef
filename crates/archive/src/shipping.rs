//! Commits that are shipped behind a backup: a lost machine then loses seconds of commits, and not
//! all commits since the last backup.
//!
//! An object `commits/<number of the backup, 20 digits>-<number drawn for it, base 16>/<place, 8
//! digits>` is one Zstandard frame of [commits](brooklet::Commits), in their own encoding. The
//! commits of the first place begin at the backup's end or before; those of each next place begin
//! where the previous place ends. Each object ends with a mark: the moment at which its commits
//! were taken.
//!
//! The last object behind a backup has the commits up to the next backup, and ends with a mark of
//! the next backup's moment. If that object exists, every moment between the two backups is known
//! (`moments.rs`). It is sent before the next backup counts.
//!
//! If the answer to an object's write was lost, the same object is sent again: a late request then
//! writes the same bytes.

use std::collections::VecDeque;

use brooklet::io::seeded::bug;
use brooklet::{Commits, Lost, Moment, Store, Subscription, View};
use bytes::Bytes;

use crate::bucket::Bucket;
use crate::error::Error;
use crate::record::{COMMITS, Upload};
use crate::records::expect_no_next;

/// Most bytes of commits that wait to be taken; if more wait, they are lost to shipping.
pub(crate) const WAITING: usize = 64 << 20;
/// Bytes of commits behind a backup after which a new backup is required: a restore holds these
/// commits in memory.
const BEHIND: usize = 256 << 20;
/// Most bytes of an object before compression.
const LARGEST: u64 = 1 << 30;
/// Number of objects that are read at a time.
const AT_ONCE: usize = 4;

impl Upload {
    /// Returns the name of an object of commits behind a backup.
    pub fn commits(self, place: u32) -> String {
        format!("{}/{place:08}", self.commits_folder())
    }

    fn commits_folder(self) -> String {
        format!("{COMMITS}/{:020}-{:032x}", self.number, self.drawn)
    }
}

/// Shipped commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shipped {
    /// Number of objects.
    pub objects: u64,
    /// Size of the commits in bytes.
    pub bytes: u64,
    /// Size of the compressed commits in bytes.
    pub sent: u64,
}

/// A store that is followed.
#[derive(Debug)]
pub(crate) struct Shipping {
    subscription: Subscription,
    /// Commits that were taken, and are in no object yet.
    taken: Option<Commits>,
    chain: Option<Chain>,
}

/// Commits behind a backup.
#[derive(Debug)]
struct Chain {
    base: Upload,
    /// Positions in the store's log at the end of the backup and of the last object.
    lsn: u64,
    end: u64,
    /// Number of the next object, and the bytes of commits behind the backup.
    place: u32,
    behind: usize,
    /// Name of the last object, the bytes of its commits, and its data, until the object is known
    /// to be in the bucket.
    unsent: Option<(String, usize, Bytes)>,
    /// The last moment up to which all commits are in objects, in milliseconds since the Unix
    /// epoch.
    known: u64,
    /// The reason why later commits cannot be shipped.
    lost: Option<Lost>,
}

/// The commits since a view was taken, which are shipped behind the backup of that view.
#[derive(Debug)]
pub(crate) struct Beginning {
    commits: Result<Commits, Lost>,
    is_closed: bool,
}

impl Beginning {
    /// Returns whether every moment up to the view is known.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }
}

impl Shipping {
    pub fn begin(store: &Store) -> Result<Self, Error> {
        let subscription = store.subscribe(WAITING)?;
        Ok(Self { subscription, taken: None, chain: None })
    }

    /// Returns whether shipping needs a new backup first.
    pub fn needs_base(&self) -> bool {
        self.chain.as_ref().is_none_or(|chain| chain.lost.is_some() || chain.is_long())
    }

    /// Drops the chain if it is not behind the last backup: this host made that backup, and the
    /// answer was lost, together with the commits since its view. A new backup begins a new chain.
    pub fn expect_base(&mut self, last: Upload) {
        if self.chain.as_ref().is_some_and(|chain| chain.base != last) && !bug("chain-outlives-its-base") {
            (self.chain, self.taken) = (None, None);
        }
    }

    /// Takes the commits since the last call for the current chain, as far as memory permits.
    /// Records a loss in the chain.
    pub fn catch_up(&mut self) {
        let taken = self.subscription.take();
        let Some(chain) = self.chain.as_mut().filter(|chain| chain.lost.is_none()) else { return };
        match taken {
            Ok(commits) => match &mut self.taken {
                // While the bucket is out of reach, backups fail one after the other. The commits
                // since the first of them must not fill the memory, nor an object beyond `LARGEST`.
                Some(before) if before.bytes() + commits.bytes() > WAITING && !bug("outage-has-no-bound") => {
                    chain.lost = Some(Lost::Behind { most: WAITING });
                }
                Some(before) => before.extend(commits),
                before => *before = Some(commits),
            },
            Err(lost) => chain.lost = Some(lost),
        }
    }

    /// Ships the commits so far. Returns `None` if a backup must come first.
    pub fn ship(&mut self, bucket: &Bucket) -> Result<Option<Shipped>, Error> {
        let Some(chain) = &mut self.chain else {
            // No object will ever need these commits.
            let _ = self.subscription.take();
            return Ok(None);
        };
        // Sends one object at a time. Later commits wait in the store.
        let mut shipped = chain.send(bucket)?;
        if chain.is_long() {
            return Ok(None);
        }
        self.catch_up();
        let chain = self.chain.as_mut().expect("as before");
        if let Some(why) = chain.lost {
            return Err(Error::Lost { since_ms: chain.known, why });
        }
        if let Some(mut commits) = self.taken.take_if(|commits| !commits.is_empty()) {
            commits.mark(chain.now(&commits));
            chain.prepare(&commits);
            shipped.add(chain.send(bucket)?);
        }
        Ok(Some(shipped))
    }

    /// Ships the commits up to a view behind the previous backup. The view was taken after
    /// [catching up](Self::catch_up), and the next backup will be made of it.
    pub fn close(&mut self, bucket: &Bucket, view: &View) -> Result<Beginning, Error> {
        // Sent before commits are taken: if this send fails, no commit was taken.
        self.chain.iter_mut().try_for_each(|chain| chain.send(bucket).map(drop))?;
        let (before, since) = (self.taken.take(), self.subscription.take());
        let Some(chain) = &mut self.chain else { return Ok(Beginning { commits: since, is_closed: false }) };
        let (last, commits) = match (chain.lost, since) {
            // Uses all commits: a commit after the view's position may be older than the view's
            // moment.
            (None, Ok(since)) => {
                let mut all = match before {
                    Some(mut all) => {
                        all.extend(since);
                        all
                    }
                    None => since,
                };
                let commits = all.clone();
                all.mark(Moment { lsn: view.lsn(), time_ms: view.taken_ms() });
                (Some(all), Ok(commits))
            }
            // Ships commits up to the last known moment, so that the hole is as small as possible.
            (_, since) => {
                let last = before.map(|mut last| {
                    last.mark(chain.now(&last));
                    last
                });
                if let Err(lost) = since {
                    chain.lost = Some(lost);
                }
                (last, since)
            }
        };
        let is_closed = chain.lost.is_none();
        if let Some(last) = last.filter(|_| !bug("chain-is-not-closed")) {
            chain.prepare(&last);
            chain.send(bucket)?;
        }
        Ok(Beginning { commits, is_closed })
    }

    /// Begins a new chain: from now on commits are shipped behind a new backup, which was made of
    /// `view`.
    pub fn rebase(&mut self, base: Upload, view: Moment, beginning: Beginning) {
        let lost = beginning.commits.as_ref().err().copied();
        let Moment { lsn, time_ms: known } = view;
        self.chain = Some(Chain { base, lsn, end: lsn, place: 0, behind: 0, unsent: None, known, lost });
        self.taken = beginning.commits.ok().filter(|_| !bug("next-chain-begins-late"));
        // The backup has the commits up to its view. They must not count against `WAITING`.
        self.taken.iter_mut().for_each(|commits| commits.skip_to(lsn));
    }
}

impl Chain {
    /// Returns the moment at which these commits were taken: the newest known moment of the store.
    fn now(&self, commits: &Commits) -> Moment {
        Moment { lsn: commits.end().unwrap_or(self.end), time_ms: commits.taken_ms() }
    }

    fn is_long(&self) -> bool {
        self.behind > BEHIND
    }

    /// Makes an object of marked commits.
    fn prepare(&mut self, commits: &Commits) {
        let mut commits = commits.clone();
        commits.skip_to(self.lsn);
        let encoded = commits.encode();
        let mut data = Vec::with_capacity(zstd_safe::compress_bound(encoded.len()));
        zstd_safe::compress(&mut data, &encoded, 1).expect("there is room for what it takes at most");
        self.unsent = Some((self.base.commits(self.place), commits.bytes(), data.into()));
        self.place += 1;
        self.behind += commits.bytes();
        self.known = commits.taken_ms();
        self.end = commits.end().unwrap_or(self.end);
    }

    /// Sends the last object, unless it is known to be in the bucket.
    fn send(&mut self, bucket: &Bucket) -> Result<Shipped, Error> {
        let Some((name, _, data)) = &self.unsent else { return Ok(Shipped::default()) };
        // Commits behind a backup that is not the last backup would be useless.
        expect_no_next(bucket, self.base.number)?;
        let sent = bucket.put(name, data.clone()).wait();
        if sent.is_err() && bug("unsent-is-forgotten") {
            self.unsent = None;
        }
        sent?;
        let (_, bytes, data) = self.unsent.take().expect("as before");
        Ok(Shipped { objects: 1, bytes: bytes as u64, sent: data.len() as u64 })
    }
}

impl Shipped {
    pub(crate) fn add(&mut self, more: Self) {
        self.objects += more.objects;
        self.bytes += more.bytes;
        self.sent += more.sent;
    }
}

/// Reads the commits behind a backup, in order.
pub(crate) fn shipped(bucket: &Bucket, base: Upload) -> Result<Vec<Vec<u8>>, Error> {
    let listed = bucket.list(&base.commits_folder())?;
    let last = listed.last().and_then(|object| object.name.rsplit('/').next()?.parse::<u32>().ok());
    let (mut under_way, mut next, mut read) = (VecDeque::new(), 0u32, Vec::new());
    loop {
        // The list may lack the last objects; object numbers have no gaps.
        let more = last.map_or(1, |last| last + 2).max(next + u32::from(under_way.is_empty()));
        while under_way.len() < AT_ONCE && next < more {
            under_way.push_back((next, bucket.begin_get(&base.commits(next), None)));
            next += 1;
        }
        let (place, data) = under_way.pop_front().expect("there is at least one");
        match data.wait()? {
            Some(data) => read.push(decompress(&data, || bucket.full(&base.commits(place)))?),
            None if last.is_some_and(|last| place <= last) => {
                return Err(Error::Missing { object: bucket.full(&base.commits(place)) });
            }
            None => return Ok(read),
        }
    }
}

fn decompress(data: &[u8], object: impl Fn() -> String) -> Result<Vec<u8>, Error> {
    let damaged = |what: &str| Error::Damaged { object: object(), what: what.into() };
    let len = zstd_safe::get_frame_content_size(data).ok().flatten();
    let len = len.filter(|len| *len <= LARGEST).ok_or_else(|| damaged("it does not record its length"))?;
    let mut out = Vec::with_capacity(len as usize);
    let written = zstd_safe::decompress(&mut out, data).map_err(|_| damaged("it cannot be decompressed"))?;
    if written as u64 == len { Ok(out) } else { Err(damaged("it has another length")) }
}

/// Returns a function that adds the commits' folder in the bucket to an error.
pub(crate) fn told(bucket: &Bucket, base: Upload) -> impl FnOnce(brooklet::Error) -> Error {
    let object = bucket.full(&base.commits_folder());
    move |error| match error {
        brooklet::Error::Damaged { what, .. } => Error::Damaged { object, what },
        error => error.into(),
    }
}
