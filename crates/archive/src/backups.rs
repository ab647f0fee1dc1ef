//! Backups, on the side that reads them.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use brooklet::{Moment, Progress, View};
use twox_hash::XxHash3_64;

use crate::bucket::Bucket;
use crate::error::{self, Error};
use crate::moments::{self, Found};
use crate::objects::Listed;
use crate::parts::Parts;
use crate::record::{BACKUPS, BUNDLES, HEAD, IN_USE, Record, TOMBSTONE, name_of};
use crate::records::{head_of, read_record};
use crate::{Which, shipping};
use std::ops::ControlFlow;

/// Memory for look-ups in a backup, in bytes.
const LOOK_UPS: usize = 32 << 20;

/// Number of objects that are read at a time to verify them.
const AT_ONCE: usize = 4;

/// Number of record heads that are read at a time.
const HEADS_AT_ONCE: usize = 32;

/// An entry of the list of backups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupInfo {
    /// Number of the backup.
    pub number: u64,
    /// Time at which it was written, in milliseconds since the Unix epoch, by the bucket's clock.
    pub written_ms: u64,
}

/// A backup of a store: all its logs as they were at one moment.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use brooklet_archive::{Archive, Bucket, Which};
/// # let dir = tempfile::tempdir()?;
/// # let bucket = Bucket::open(dir.path().join("bucket").to_str().unwrap())?;
/// # let (store, new) = (brooklet::Store::in_memory(1)?, brooklet::Store::in_memory(2)?);
/// # store.append_many("doc/1", ["a", "b"])?.wait()?;
/// # let mut archive = Archive::new(bucket.clone(), dir.path().join("note"), "a host")?;
/// # archive.backup(&store, brooklet::Progress::ignore)?;
/// let backup = bucket.backup(Which::Latest)?;
/// let view = backup.view(64 << 20)?;
/// assert_eq!(view.bounds("doc/1")?.next, 2);       // reads what it needs, and no more
/// new.import().view(&view, "doc/")?;               // brings logs into another store
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Backup {
    bucket: Bucket,
    record: Arc<Record>,
    behind: Behind,
}

/// The commits behind a backup that a [`Backup`] includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    Nothing,
    /// The commits that were durable at this time, in milliseconds since the Unix epoch; and the
    /// moment of the next backup.
    Until(u64, Option<Moment>),
    All,
}

/// The result of [`Backup::verify`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Verified {
    /// Number of objects that were read.
    pub objects: u64,
    /// Size of those objects in bytes.
    pub bytes: u64,
    /// Errors of the objects that are missing, damaged or unreadable.
    pub defects: Vec<Error>,
}

impl Bucket {
    /// Returns the backups in the bucket, the oldest first.
    ///
    /// # Errors
    /// [`Error::Bucket`].
    pub fn backups(&self) -> Result<Vec<BackupInfo>, Error> {
        let info = |object: &Listed| {
            let number = object.number(BACKUPS).filter(|_| !object.is_tombstone())?;
            Some(BackupInfo { number, written_ms: object.written })
        };
        Ok(self.list(BACKUPS)?.iter().filter_map(info).collect())
    }

    /// Finds a backup.
    ///
    /// # Errors
    /// [`Error::NoBackup`]; [`Error::Bucket`]; [`Error::Damaged`], [`Error::NewerFormat`].
    pub fn backup(&self, which: Which) -> Result<Backup, Error> {
        let (number, behind) = match which {
            Which::Latest => (self.latest()?, Behind::All),
            Which::Number(number) => (number, Behind::Nothing),
            Which::At(time) => return self.backup_at(self.latest()?, millis(time)),
        };
        Ok(Backup { bucket: self.clone(), record: Arc::new(read_record(self, number)?), behind })
    }

    /// Returns the number of the last backup.
    pub(crate) fn latest(&self) -> Result<u64, Error> {
        let none = || Error::NoBackup(format!("{self} holds no backups: check the address"));
        find_latest(self, None)?.ok_or_else(none)
    }

    /// Finds the last backup before a moment. `latest` is the number of the last backup.
    fn backup_at(&self, latest: u64, time: u64) -> Result<Backup, Error> {
        let first = self.backups()?.first().map_or(latest, |first| first.number);
        let (first, taken) = self.taken(first, latest)?;
        for (index, is_sure) in moments::backups_at(&taken, time) {
            let number = first + index as u64;
            let next = taken.get(index + 1).map(|taken| self.moment(number + 1, *taken)).transpose()?;
            let record = Arc::new(read_record(self, number)?);
            let backup = Backup { bucket: self.clone(), record, behind: Behind::Until(time, next) };
            if is_sure || backup.passes(time, next)? {
                return Ok(backup);
            }
        }
        Err(Error::NoBackup(format!(
            "no backup is that old: the oldest backup is of {}",
            error::told(taken.iter().copied().min().unwrap_or_default())
        )))
    }

    /// Returns the moment of a backup that was taken at the time `taken`. If its record is damaged,
    /// the place of the moment is not known: the known commits before it then end in a hole.
    fn moment(&self, number: u64, taken: u64) -> Result<Moment, Error> {
        match read_record(self, number).and_then(|record| moment_of(self, &record)) {
            Err(error @ Error::Damaged { .. }) => {
                tracing::warn!(%error, "the end of the backup before is not known");
                Ok(Moment { lsn: u64::MAX, time_ms: taken })
            }
            moment => moment,
        }
    }

    /// Returns the number of the first existing backup from `listed` on, and the times of the
    /// backups from there to `latest`.
    fn taken(&self, listed: u64, latest: u64) -> Result<(u64, Vec<u64>), Error> {
        let (mut under_way, mut next) = (VecDeque::new(), listed);
        let (mut first, mut taken) = (listed, Vec::new());
        for number in listed..=latest {
            while next <= latest && under_way.len() < HEADS_AT_ONCE {
                under_way.push_back(self.begin_get(&name_of(next), Some(HEAD as u64)));
                next += 1;
            }
            let data = under_way.pop_front().expect("it was just asked for").wait()?;
            match data.filter(|data| data[..] != TOMBSTONE[..]) {
                Some(data) => taken.push(head_of(self, number, &data)?.taken),
                // The backup was removed, and so were all backups before it.
                None => {
                    taken.clear();
                    first = number + 1;
                }
            }
        }
        Ok((first, taken))
    }
}

fn millis(time: SystemTime) -> u64 {
    let time = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Backup {
    /// Returns the number of the backup.
    pub fn number(&self) -> u64 {
        self.record.number
    }

    /// Returns the time of the backup in milliseconds since the Unix epoch, by the store's clock.
    /// That clock may have been set back since the previous backup.
    pub fn taken_ms(&self) -> u64 {
        self.record.taken
    }

    /// Returns the owner's name of the host that wrote the backup.
    pub fn owner(&self) -> &str {
        &self.record.owner
    }

    /// Returns the id of the store.
    pub fn store_id(&self) -> u128 {
        self.record.store
    }

    /// Returns the size of the backup's parts in bytes.
    pub fn bytes(&self) -> u64 {
        self.record.bytes()
    }

    /// Returns the number of bytes that the backup added to the archive.
    pub fn added(&self) -> u64 {
        self.record.added()
    }

    /// Returns the number of the backup's parts.
    pub fn parts(&self) -> usize {
        self.record.parts.len()
    }

    /// Returns the number of parts that were damaged in the store when the backup was taken. They
    /// are damaged in the backup, too: see [`View::damage`].
    pub fn damaged_parts(&self) -> usize {
        self.record.damaged.len()
    }

    /// Returns the number of objects that hold the backup's parts.
    pub fn objects(&self) -> usize {
        self.record.objects.len()
    }

    /// Returns the size of those objects in bytes; some bytes may belong to parts of other backups
    /// only.
    pub fn stored_bytes(&self) -> u64 {
        self.record.objects.values().map(|object| u64::from(object.len)).sum()
    }

    /// Returns the names of the objects that the backup needs and that the bucket lacks, or has
    /// with another length. Lists the objects, and reads none: [`verify`](Self::verify) reads them.
    ///
    /// # Errors
    /// [`Error::Bucket`].
    pub fn missing(&self) -> Result<Vec<String>, Error> {
        let listed = self.bucket.list(BUNDLES)?;
        let there: BTreeMap<&str, u64> = listed.iter().map(|it| (&*it.name, it.bytes)).collect();
        let objects = self.record.objects.iter().map(|((upload, at), it)| (upload.object(*at), it.len));
        let is_missing = |(name, len): &(String, u32)| there.get(&**name) != Some(&u64::from(*len));
        Ok(objects.filter(is_missing).map(|(name, _)| name).collect())
    }

    /// Returns a view of the store as it was, which reads from the bucket as needed. A single
    /// look-up takes a few small reads; a sequential read reads ahead, within about `memory` bytes.
    /// The call also reads the commits that were shipped behind the backup, if [they belong to
    /// it](Which), and keeps them in memory: a gigabyte at most.
    ///
    /// # Errors
    /// [`Error::Store`] where the backup's table is damaged; [`Error::Missing`], [`Error::Damaged`]
    /// and [`Error::Bucket`] of commits; [`Error::Hole`] where the archive does not know the store
    /// at [that moment](Which::At). Errors of later reads name the object.
    pub fn view(&self, memory: usize) -> Result<View, Error> {
        let view = self.plain(memory)?;
        let (base, told) = (self.record.upload(), || shipping::told(&self.bucket, self.record.upload()));
        let (commits, until) = match self.behind {
            Behind::Nothing => return Ok(view),
            Behind::All => (shipping::shipped(&self.bucket, base)?, None),
            Behind::Until(time, next) => {
                let commits = shipping::shipped(&self.bucket, base)?;
                match self.find(&view, &commits, time, next)? {
                    Some(Found::Known(moment)) => (commits, Some(moment)),
                    Some(Found::Hole { from, to }) => return Err(Error::Hole { from_ms: from, to_ms: to }),
                    None => {
                        return Err(Error::NoBackup(format!("{self:?} is not of {}", error::told(time))));
                    }
                }
            }
        };
        view.with_commits(commits, until).map_err(told())
    }

    /// Returns a view of the backup without the commits behind it.
    fn plain(&self, memory: usize) -> Result<View, Error> {
        let located = Parts::new(&self.bucket, memory).of(self.record.clone());
        Ok(View::from_parts(&self.record.table, LOOK_UPS, |name| located.open(name))?)
    }

    fn find(
        &self,
        view: &View,
        commits: &[Vec<u8>],
        time: u64,
        next: Option<Moment>,
    ) -> Result<Option<Found>, Error> {
        let chain = view.moments(commits).map_err(shipping::told(&self.bucket, self.record.upload()))?;
        Ok(moments::find(Moment { lsn: view.lsn(), time_ms: self.taken_ms() }, &chain, next, time))
    }

    /// Returns whether the clock passed `time` behind the backup, by its shipped commits.
    fn passes(&self, time: u64, next: Option<Moment>) -> Result<bool, Error> {
        let commits = shipping::shipped(&self.bucket, self.record.upload())?;
        Ok(matches!(self.find(&self.plain(0)?, &commits, time, next)?, Some(Found::Known(_))))
    }

    /// Reads every object that the backup needs, and compares each with its checksum. Also checks
    /// that the commits behind the backup, if they [belong to it](Which), continue it. Reports to
    /// `progress`. Goes on after an error; if `progress` returns `Break`, ends with
    /// [`Error::Cancelled`] as the last defect.
    pub fn verify(&self, mut progress: impl FnMut(Progress) -> ControlFlow<()>) -> Verified {
        let total = self.record.objects.values().map(|object| u64::from(object.len)).sum();
        let mut verified = Verified { objects: 0, bytes: 0, defects: Vec::new() };
        let mut under_way = VecDeque::new();
        let mut objects = self.record.objects.iter();
        loop {
            while under_way.len() < AT_ONCE {
                let Some(((upload, at), object)) = objects.next() else { break };
                let name = upload.object(*at);
                under_way.push_back((self.bucket.begin_get(&name, None), name, object));
            }
            let Some((data, name, object)) = under_way.pop_front() else { break };
            let damaged = |what: &str| Error::Damaged { object: self.bucket.full(&name), what: what.into() };
            let defect = match data.wait() {
                Ok(Some(data)) if data.len() != object.len as usize => Some(damaged("it has another length")),
                Ok(Some(data)) if XxHash3_64::oneshot(&data) != object.sum => {
                    Some(damaged("its checksum does not match"))
                }
                Ok(Some(_)) => None,
                Ok(None) => Some(Error::Missing { object: self.bucket.full(&name) }),
                Err(error) => Some(error),
            };
            verified.objects += 1;
            verified.bytes += u64::from(object.len);
            verified.defects.extend(defect);
            if progress(Progress::of_bytes(verified.bytes, total)).is_break() {
                verified.defects.push(Error::Cancelled { what: "the check of a backup" });
                return verified;
            }
        }
        verified.defects.extend(self.view(0).err());
        verified
    }
}

impl fmt::Debug for Backup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Backup({} of {})", self.record.number, self.bucket)
    }
}

/// Returns the number of the last backup; `known` is the number of a backup that once existed.
///
/// Lists may be out of date; objects are not. Backups and tombstones leave no gap after the oldest
/// backup. So a backup without a successor is the last.
pub(crate) fn find_latest(bucket: &Bucket, known: Option<u64>) -> Result<Option<u64>, Error> {
    let is_there = |number: u64| Ok::<_, Error>(bucket.get(&name_of(number), Some(HEAD as u64))?.is_some());
    let listed = || Ok(bucket.backups()?.last().map(|backup| backup.number));
    let guesses: [&dyn Fn() -> Result<Option<u64>, Error>; 3] = [&|| Ok(known), &listed, &|| Ok(Some(0))];
    for guess in guesses {
        let Some(mut number) = guess()? else { continue };
        if is_there(number)? {
            while is_there(number + 1)? {
                number += 1;
            }
            return Ok(Some(number));
        }
    }
    match bucket.get(IN_USE, None)? {
        None => Ok(None),
        Some(_) => Err(Error::OutOfDate { bucket: bucket.to_string() }),
    }
}

/// Returns the time of a backup and its place in the store's log.
pub(crate) fn moment_of(bucket: &Bucket, record: &Record) -> Result<Moment, Error> {
    let located = Parts::new(bucket, 0).of(Arc::new(record.clone()));
    let view = View::from_parts(&record.table, 0, |name| located.open(name))?;
    Ok(Moment { lsn: view.lsn(), time_ms: record.taken })
}
