//! Backups, on the side that reads them.

use std::collections::VecDeque;
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
use crate::record::{BACKUPS, HEAD, IN_USE, Record, TOMBSTONE, name_of};
use crate::records::{head_of, read_record};
use crate::{Which, shipping};
use std::ops::ControlFlow;

/// Memory for look-ups in a backup, in bytes.
const LOOK_UPS: usize = 32 << 20;

/// So many objects are read at a time to verify them.
const AT_ONCE: usize = 4;

/// So many records are asked at a time of when they were taken.
const HEADS_AT_ONCE: usize = 32;

/// A backup, as it is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupInfo {
    /// Its number.
    pub number: u64,
    /// When it was written, by the bucket's clock, in milliseconds since the Unix epoch.
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
    pub(crate) record: Arc<Record>,
    behind: Behind,
}

/// Which of the commits that were shipped behind a backup belong to what is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    Nothing,
    /// Those that were durable by then, in milliseconds since the Unix epoch; and the moment of the
    /// next backup.
    Until(u64, Option<Moment>),
    All,
}

/// What [`Backup::verify`] found wrong.
#[derive(Debug)]
#[non_exhaustive]
pub struct Verified {
    /// Objects that were read.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those that are missing, damaged, or cannot be read.
    pub defects: Vec<Error>,
}

impl Bucket {
    /// The backups that are there, the oldest first.
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
        let latest = || {
            let none = || Error::NoBackup(format!("there are no backups in {self}: look at the address"));
            find_latest(self, None)?.ok_or_else(none)
        };
        let (number, behind) = match which {
            Which::Latest => (latest()?, Behind::All),
            Which::Number(number) => (number, Behind::Nothing),
            Which::At(time) => return self.backup_at(latest()?, millis(time)),
        };
        Ok(Backup { bucket: self.clone(), record: Arc::new(read_record(self, number)?), behind })
    }

    /// Finds the backup behind which a moment is. `latest` is the last one.
    fn backup_at(&self, latest: u64, time: u64) -> Result<Backup, Error> {
        let first = self.backups()?.first().map_or(latest, |first| first.number);
        let (first, taken) = self.taken(first, latest)?;
        for (index, is_sure) in moments::backups_at(&taken, time) {
            let number = first + index as u64;
            let next =
                (number < latest).then(|| moment_of(self, &read_record(self, number + 1)?)).transpose()?;
            let record = Arc::new(read_record(self, number)?);
            let backup = Backup { bucket: self.clone(), record, behind: Behind::Until(time, next) };
            if is_sure || backup.passes(time, next)? {
                return Ok(backup);
            }
        }
        Err(Error::NoBackup(format!(
            "there is no backup from before then: the oldest is of {}",
            error::told(taken.iter().copied().min().unwrap_or_default())
        )))
    }

    /// When each of some backups was taken, from the first of them that is still there.
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
                // It was removed, as were those before it.
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
    /// Its number.
    pub fn number(&self) -> u64 {
        self.record.number
    }

    /// When it was taken, in milliseconds since the Unix epoch, by the store's clock, which may
    /// have been set back since the one before.
    pub fn taken_ms(&self) -> u64 {
        self.record.taken
    }

    /// Who wrote it.
    pub fn owner(&self) -> &str {
        &self.record.owner
    }

    /// The id of the store.
    pub fn store_id(&self) -> u128 {
        self.record.store
    }

    /// Bytes of all that it consists of.
    pub fn bytes(&self) -> u64 {
        self.record.bytes()
    }

    /// Bytes that it added to the archive.
    pub fn added(&self) -> u64 {
        self.record.added()
    }

    /// Parts that it consists of.
    pub fn parts(&self) -> usize {
        self.record.parts.len()
    }

    /// Parts of the store that were damaged as the backup was taken, and are so in it: see
    /// [`View::damage`].
    pub fn damaged_parts(&self) -> usize {
        self.record.damaged.len()
    }

    /// Objects that they lie in.
    pub fn objects(&self) -> usize {
        self.record.objects.len()
    }

    /// Their bytes; some may be of parts that only other backups have.
    pub fn stored_bytes(&self) -> u64 {
        self.record.objects.values().map(|object| u64::from(object.len)).sum()
    }

    /// The store as it was, read from the bucket as needed: single look-ups take a few small reads,
    /// and reading on and on reads ahead, within `memory` bytes or so. Commits that were shipped
    /// behind the backup, if [they belong to it](Which), are read now, and take memory: a gigabyte
    /// at most.
    ///
    /// # Errors
    /// [`Error::Store`] where its table is not what was written; [`Error::Missing`],
    /// [`Error::Damaged`] and [`Error::Bucket`] of commits; [`Error::Hole`] where the archive does
    /// not know the store at [that moment](Which::At). What reading fails with names the object.
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

    /// It alone.
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

    /// Whether the clock passed a time behind it, as far as the commits say.
    fn passes(&self, time: u64, next: Option<Moment>) -> Result<bool, Error> {
        let commits = shipping::shipped(&self.bucket, self.record.upload())?;
        Ok(matches!(self.find(&self.plain(0)?, &commits, time, next)?, Some(Found::Known(_))))
    }

    /// Reads every object that it needs, and looks whether it is what was written, and whether the
    /// commits behind it, if they [belong to it](Which), go on from it; reports to
    /// `progress`. Goes on where something is wrong; where `progress` returns `Break`, it ends with
    /// [`Error::Cancelled`] as its last defect.
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
                    Some(damaged("its checksum does not fit"))
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

/// The number of the last backup; `known` is one that was there once.
///
/// Lists may be out of date; objects are not. Backups and tombstones leave no gap from the oldest
/// on: so one that is there, and is not followed by another, is the last.
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

/// When a backup was taken, and of which place in the store's log it is.
pub(crate) fn moment_of(bucket: &Bucket, record: &Record) -> Result<Moment, Error> {
    let located = Parts::new(bucket, 0).of(Arc::new(record.clone()));
    let view = View::from_parts(&record.table, 0, |name| located.open(name))?;
    Ok(Moment { lsn: view.lsn(), time_ms: record.taken })
}
