//! Commits that are shipped behind a backup, so that what a lost machine costs is seconds, and not the time between two backups.
//!
//! An object `commits/<number of the backup, 20 digits>-<number drawn for it, base 16>/<place, 8 digits>` is one Zstandard
//! frame of [commits](brooklet::Commits), as they encode themselves. Those of the first place begin where the backup ends, or
//! before, and each next one where the one before ends.
//!
//! What was sent once is sent again as it is where nothing was heard: an answer may come late, and with it the object.

use std::collections::VecDeque;

use brooklet::{Commits, Follower, Store, View};
use bytes::Bytes;

use crate::backups::expect_no_next;
use crate::bucket::Bucket;
use crate::error::Error;
use crate::record::{COMMITS, Upload};

/// So many bytes wait at most, to be taken and to be sent; where it is more, a backup is made instead.
pub(crate) const WAITING: usize = 64 << 20;
/// So many bytes are behind one backup at most: restoring takes memory for them.
const BEHIND: usize = 256 << 20;
/// The most bytes that an object has before it was compressed.
const LARGEST: u64 = 1 << 30;
/// So many objects are read at a time.
const AT_ONCE: usize = 4;

impl Upload {
    /// The name of commits behind a backup.
    pub fn commits(self, place: u32) -> String {
        format!("{}/{place:08}", self.commits_folder())
    }

    fn commits_folder(self) -> String {
        format!("{COMMITS}/{:020}-{:032x}", self.number, self.drawn)
    }
}

/// What was shipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shipped {
    /// Objects.
    pub objects: u64,
    /// Bytes that were committed.
    pub bytes: u64,
    /// The same, compressed.
    pub sent: u64,
}

/// A store that is followed.
#[derive(Debug)]
pub(crate) struct Shipping {
    follower: Follower,
    /// The backup that commits are shipped behind, once there is one.
    base: Option<Upload>,
    /// Where that ends in the store's log.
    lsn: u64,
    /// The place of the next object, and bytes that were committed behind the backup.
    place: u32,
    behind: usize,
    /// Objects that are not known to be in the bucket, with the bytes that were committed.
    unsent: VecDeque<(String, usize, Bytes)>,
}

impl Shipping {
    pub fn begin(store: &Store) -> Result<Self, Error> {
        let follower = store.follow(WAITING)?;
        Ok(Self { follower, base: None, lsn: 0, place: 0, behind: 0, unsent: VecDeque::new() })
    }

    /// Whether it takes a backup to go on: one that nothing was shipped behind, by whomever.
    pub fn needs_base(&self) -> bool {
        self.base.is_none()
    }

    /// There is a backup of up to `lsn`: a new one, or the last still holds.
    pub fn rebase(&mut self, base: Upload, lsn: u64) {
        if self.base == Some(base) {
            return;
        }
        let Self { base: old, lsn: from, place, behind, unsent, .. } = self;
        (*old, *from, *place, *behind) = (Some(base), lsn, 0, 0);
        unsent.clear();
    }

    /// Ships what was committed. `None` where it takes a backup first.
    pub fn ship(&mut self, bucket: &Bucket) -> Result<Option<Shipped>, Error> {
        let commits = self.follower.take();
        let (Some(base), Some(commits)) = (self.base, commits) else {
            self.base = None;
            return Ok(None);
        };
        self.prepare(base, commits);
        if self.behind > BEHIND || self.unsent.iter().map(|(.., data)| data.len()).sum::<usize>() > WAITING {
            self.base = None;
            return Ok(None);
        }
        let mut shipped = Shipped::default();
        if self.unsent.is_empty() {
            return Ok(Some(shipped));
        }
        // Behind a backup that is not the last any more they would be worth nothing.
        expect_no_next(bucket, base.number)?;
        while let Some((name, bytes, data)) = self.unsent.front() {
            bucket.put(name, data.clone()).wait()?;
            shipped.objects += 1;
            shipped.bytes += *bytes as u64;
            shipped.sent += data.len() as u64;
            self.unsent.pop_front();
        }
        Ok(Some(shipped))
    }

    fn prepare(&mut self, base: Upload, mut commits: Commits) {
        commits.skip_to(self.lsn);
        if commits.is_empty() {
            return;
        }
        let encoded = commits.encode();
        let mut data = Vec::with_capacity(zstd_safe::compress_bound(encoded.len()));
        zstd_safe::compress(&mut data, &encoded, 1).expect("there is room for what it takes at most");
        self.unsent.push_back((base.commits(self.place), commits.bytes(), data.into()));
        self.place += 1;
        self.behind += commits.bytes();
    }
}

/// The commits behind a backup, in order.
pub(crate) fn shipped(bucket: &Bucket, base: Upload) -> Result<Vec<Vec<u8>>, Error> {
    let listed = bucket.list(&base.commits_folder())?;
    let last = listed.last().and_then(|object| object.name.rsplit('/').next()?.parse::<u32>().ok());
    let (mut under_way, mut next, mut read) = (VecDeque::new(), 0u32, Vec::new());
    loop {
        // Beyond what is listed there may be more, one after the other.
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
    let len = len.filter(|len| *len <= LARGEST).ok_or_else(|| damaged("it does not tell its length"))?;
    let mut out = Vec::with_capacity(len as usize);
    let written = zstd_safe::decompress(&mut out, data).map_err(|_| damaged("it cannot be decompressed"))?;
    if written as u64 == len { Ok(out) } else { Err(damaged("it has another length")) }
}

/// Goes on from a backup.
pub(crate) fn go_on(view: &View, bucket: &Bucket, base: Upload, until: Option<u64>) -> Result<View, Error> {
    let commits = shipped(bucket, base)?;
    view.with_commits(commits, until).map_err(|error| match error {
        brooklet::Error::Damaged { what, .. } => {
            Error::Damaged { object: bucket.full(&base.commits_folder()), what }
        }
        error => error.into(),
    })
}
