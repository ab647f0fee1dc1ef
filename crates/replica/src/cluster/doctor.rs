//! The doctor of a cluster: it looks for what no host would notice in time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use brooklet_archive::object_store::ObjectStore;
use brooklet_archive::object_store::path::Path;
use brooklet_archive::{Bucket, Which};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::time::Instant;

use crate::bucket::BucketJournal;
use crate::claim::Claim;
use crate::cluster::health::{Health, written};
use crate::drive::{Listener, follow_with, send};
use crate::error::Error;
use crate::journal::{Journal, Key};
use crate::machine::follower::{Follower, FollowerState};
use crate::machine::{Reply, Request};
use crate::map::{Map, Shard};
use crate::object::Object;
use crate::place::{Drawn, Epoch, Mark, Place, StoreId};
use crate::probe::Probe;
use crate::record::Record;
use crate::shipper::draw;
use crate::standby::block_on_while;

/// Time without a sign after which an owner counts as gone.
const SILENT: Duration = Duration::from_secs(10);
/// Time for which nothing comes at the end of a log.
const QUIET: Duration = Duration::from_secs(1);
/// Objects behind the last backup from which on backups must have failed for long: an owner makes
/// one after 20,000 objects.
const LONG: usize = 200_000;
/// Numbers that an owner may use before it knows the fate of the first one: more than its window.
pub(super) const FLIGHTS: u64 = 64;
/// Places or epochs that are looked at at a time.
pub(super) const AT_ONCE: usize = 16;

/// A finding of the doctor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind of the finding, for programs.
    pub kind: &'static str,
    /// The finding and the remedy, for people.
    pub what: String,
}

fn finding(kind: &'static str, what: impl Into<String>) -> Finding {
    Finding { kind, what: what.into() }
}

/// Looks by a [`Probe`] whether a bucket creates objects as the protocol needs it, while `goes_on`
/// returns true.
///
/// # Errors
/// Those of [`Probe::run`], except [`Error::NotAtomic`]; [`Error::GivenUp`].
pub fn examine_creates(bucket: &Bucket, goes_on: &dyn Fn() -> bool) -> Result<Vec<Finding>, Error> {
    match Probe::default().wait(&BucketJournal::new(bucket), goes_on) {
        Ok(true) => Ok(Vec::new()),
        Ok(false) => Err(Error::GivenUp),
        Err(error @ Error::NotAtomic { .. }) => Ok(vec![finding("not-atomic", error.to_string())]),
        Err(error) => Err(error),
    }
}

/// Returns the time by the clock of a bucket, while `goes_on` returns true. Creates an object, and
/// removes it.
///
/// # Errors
/// Those of the bucket; [`Error::GivenUp`].
pub fn time_of(bucket: &Bucket, goes_on: &dyn Fn() -> bool) -> Result<SystemTime, Error> {
    block_on_while(read_time(bucket), goes_on)?.ok_or(Error::GivenUp)
}

async fn read_time(bucket: &Bucket) -> Result<SystemTime, Error> {
    let (journal, Drawn(drawn)) = (BucketJournal::new(bucket), draw());
    let key = Key::Probe(drawn, 0);
    journal.create(key, Bytes::from_static(b"the time")).await?;
    let time = written(bucket, key).await;
    journal.remove(key).await?;
    time
}

/// Looks at the log of a shard, while `goes_on` returns true: at its claims, fences and objects,
/// its owner and its backup, at the time `now` by the clock of the [bucket](time_of). Reads the log
/// behind the last backup.
///
/// # Errors
/// Those of the bucket; [`Error::GivenUp`].
pub fn examine(
    bucket: &Bucket,
    backups: &Bucket,
    name: &str,
    shard: &Shard,
    now: SystemTime,
    goes_on: &dyn Fn() -> bool,
) -> Result<Vec<Finding>, Error> {
    let look = look(bucket, name, shard, now);
    let (mut findings, record) = block_on_while(look, goes_on)?.ok_or(Error::GivenUp)?;
    if let Some(record) = record {
        findings.extend(backup(backups, record.backup));
    }
    Ok(findings)
}

async fn look(
    bucket: &Bucket,
    name: &str,
    shard: &Shard,
    now: SystemTime,
) -> Result<(Vec<Finding>, Option<Record>), Error> {
    let mut findings = Vec::from_iter(hosts(name, shard));
    let there = Listed::of(bucket).await?;
    let health = match Health::look(bucket).await {
        Ok(health) => health,
        Err(error) if error.is_temporary() => return Err(error),
        Err(error) => {
            findings.push(finding("log-damaged", format!("the log cannot be read: {error}")));
            return Ok((findings, None));
        }
    };
    let Some(health) = health else {
        if there.is_empty() {
            findings.push(finding("no-log", "nobody has served the shard yet: start its wanted host"));
        } else {
            let what = "the claim of epoch 1 is missing: objects were removed; a host that starts would begin a new log, so restore the claim, or make the store anew from a backup";
            findings.push(finding("claims-missing", what));
        }
        return Ok((findings, None));
    };
    findings.extend(owner(shard, &health, health.silence(now)));
    findings.extend(claims(&there));
    findings.extend(length(&there, &health));
    findings.extend(objects(bucket, &there, &health).await?);
    Ok((findings, health.record))
}

fn hosts(name: &str, shard: &Shard) -> Option<Finding> {
    let none =
        || format!("no host serves shard {name}: start `brooklet serve --cluster PLACE --shard {name}`");
    shard.hosts.is_empty().then(|| finding("no-host", none()))
}

fn owner(shard: &Shard, health: &Health, silence: Duration) -> Vec<Finding> {
    let mut findings = Vec::new();
    let owner = &health.claim.owner;
    if *owner != shard.wanted && shard.moving.is_none() {
        let what = format!(
            "the owner is {owner}, and {} is wanted: the shard has failed over; move it to one of the two",
            shard.wanted
        );
        findings.push(finding("not-wanted", what));
    }
    if silence > SILENT {
        let seconds = silence.as_secs();
        let what =
            format!("the owner {owner} gave the last sign {seconds} seconds ago: no host serves the shard");
        findings.push(finding("silent", what));
    }
    findings
}

/// The names in the place of a log, by a list.
#[derive(Default)]
struct Listed {
    claims: Vec<u64>,
    records: Vec<u64>,
    /// The numbers of the objects of each epoch, in order.
    log: BTreeMap<Epoch, Vec<u64>>,
}

impl Listed {
    async fn of(bucket: &Bucket) -> Result<Self, Error> {
        let mut listed = Self::default();
        for folder in ["claims", "records", "log"] {
            list(bucket, folder).await?.iter().for_each(|name| listed.add(name));
        }
        listed.claims = ascending(listed.claims.into_iter());
        listed.records.sort_unstable();
        listed.log.values_mut().for_each(|numbers| numbers.sort_unstable());
        Ok(listed)
    }

    fn add(&mut self, name: &str) {
        let number = |text: &str| text.parse::<u64>().ok();
        match &name.split('/').collect::<Vec<_>>()[..] {
            ["claims", epoch] => self.claims.extend(number(epoch)),
            ["records", of] => self.records.extend(number(of)),
            ["log", epoch, of] => {
                if let (Some(epoch), Some(of)) = (number(epoch), number(of)) {
                    self.log.entry(Epoch(epoch)).or_default().push(of);
                }
            }
            _ => {}
        }
    }

    fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.records.is_empty() && self.log.is_empty()
    }

    fn has(&self, place: Place) -> bool {
        let numbers = self.log.get(&place.epoch);
        numbers.is_some_and(|numbers| numbers.binary_search(&place.number).is_ok())
    }
}

/// Returns the first number from 1 to `last` that is not among numbers, which ascend.
fn gap(there: &[u64], last: u64) -> Option<u64> {
    let gap = (1..).zip(there).find(|(wanted, number)| wanted != *number).map(|(wanted, _)| wanted);
    gap.or_else(|| Some(there.len() as u64 + 1).filter(|next| *next <= last))
}

/// Claims have all numbers. A host that cannot find the newest one would claim an old epoch. One
/// that is newer than the list may have come after it.
fn claims(there: &Listed) -> Vec<Finding> {
    let mut findings = Vec::new();
    let last = there.claims.last().copied().unwrap_or_default();
    let missing = last - there.claims.len() as u64;
    if let Some(first) = gap(&there.claims, last) {
        let what = format!(
            "{} of {last} claims are missing, the first is {}: a rule of the bucket, or a person, removed objects, and a former owner could write again; stop all hosts of the shard, end the rule, and begin anew from a backup",
            missing,
            Claim::name(Epoch(first))
        );
        findings.push(finding("claims-missing", what));
    }
    let records = there.records.last().map_or(0, |last| last.saturating_add(1));
    if there.records.len() as u64 != records {
        let what = "records are missing: a takeover may begin behind an old backup; end the rule of the bucket that removes objects";
        findings.push(finding("records-missing", what));
    }
    findings
}

/// A log that no backup shortens grows without a bound, and a takeover reads all of it.
fn length(there: &Listed, health: &Health) -> Option<Finding> {
    let begin = health.record.as_ref().map_or(Mark::BEGIN.place, |record| record.mark.place);
    let behind = |(epoch, numbers): (&Epoch, &Vec<u64>)| {
        let first = if *epoch == begin.epoch { begin.number } else { 0 };
        numbers.len() - numbers.partition_point(|number| *number < first)
    };
    let count: usize = there.log.range(begin.epoch..).map(behind).sum();
    let what = || {
        format!(
            "the log has {count} objects behind its last backup, and a takeover reads all of them: the backups of {} fail, cannot be recorded, or take too long; its log says why",
            health.claim.owner
        )
    };
    (count > LONG).then(|| finding("long-log", what()))
}

/// Each epoch before the newest has its fence, and the log has no hole.
async fn objects(bucket: &Bucket, there: &Listed, health: &Health) -> Result<Vec<Finding>, Error> {
    let mut findings = Vec::new();
    let none = BTreeMap::new();
    let ends = health.record.as_ref().map_or(&none, |record| &record.ends);
    let begin = health.record.as_ref().map_or(Epoch::FIRST, |record| record.mark.place.epoch);
    let journal = &BucketJournal::new(bucket);
    let epochs = (1..begin.0).map(Epoch).map(|epoch| async move {
        let has_end = match ends.get(&epoch) {
            Some(number) => {
                let place = Place { epoch, number: *number };
                // It may have come after the list.
                there.has(place) || is_fence(journal, health.store, place).await?
            }
            None => has_fence(journal, health.store, there, epoch).await?,
        };
        Ok::<_, Error>((!has_end).then_some(epoch))
    });
    let missing: Vec<Option<Epoch>> = stream::iter(epochs).buffered(AT_ONCE).try_collect().await?;
    let missing: Vec<Epoch> = missing.into_iter().flatten().collect();
    if let Some(first) = missing.first() {
        let what = format!(
            "{} fences of former owners are missing, the first of epoch {first}: a rule of the bucket, or a person, removed them, and that owner could be confirmed again if it is still running; end the rule, and make sure that it is not",
            missing.len()
        );
        findings.push(finding("fences-missing", what));
    }
    match walk(bucket, health).await {
        Ok(Some(end)) => findings.extend(hole(there, end, health.end.epoch)),
        // The log was trimmed meanwhile: its owner lives.
        Ok(None) => {}
        Err(error) if error.is_temporary() => return Err(error),
        Err(error) => findings.push(finding("log-damaged", format!("the log cannot be read: {error}"))),
    }
    Ok(findings)
}

/// Returns whether an epoch that was trimmed as a whole has its fence: what else is left of it came
/// late. Looks at the first objects.
async fn has_fence(
    journal: &BucketJournal,
    store: StoreId,
    there: &Listed,
    epoch: Epoch,
) -> Result<bool, Error> {
    let numbers = there.log.get(&epoch).map_or(&[][..], Vec::as_slice);
    for number in numbers.iter().take(FLIGHTS as usize) {
        if is_fence(journal, store, Place { epoch, number: *number }).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) async fn is_fence(journal: &BucketJournal, store: StoreId, place: Place) -> Result<bool, Error> {
    match send(journal, store, &Request::Read(place)).await {
        Ok(Reply::Object(Some(object))) => Ok(object.is_fence()),
        Err(error) if error.is_temporary() => Err(error),
        // One that cannot be read is no fence.
        _ => Ok(false),
    }
}

/// Reads the log behind its last record as a follower does, as far as it went when the doctor came.
/// Returns the end of the read objects; `None` if the log was trimmed meanwhile.
async fn walk(bucket: &Bucket, health: &Health) -> Result<Option<Place>, Error> {
    let journal = Arc::new(BucketJournal::new(bucket));
    let mut at = health.record.as_ref().map_or(Mark::BEGIN, |record| record.mark);
    let record = health.record.as_ref().map(|record| record.number);
    let mut walk = Walk { at: at.place, end: health.end, is_done: at.place >= health.end };
    while !walk.is_done {
        let mut follower = Follower::<Bytes>::new(health.store, at, record, QUIET, Duration::ZERO);
        match follow_with(&journal, health.store, &mut follower, &mut walk).await {
            Err(Error::GivenUp) if walk.is_done => {}
            Ok(FollowerState::HandedOver) => at = follower.at(),
            Ok(FollowerState::Behind) => return Ok(None),
            Ok(FollowerState::Broken(place)) => {
                let what = "it does not follow the object before it";
                return Err(Error::Damaged { object: place.to_string(), what });
            }
            Ok(_) => return Ok(Some(follower.at().place)),
            Err(error) => return Err(error),
        }
    }
    let is_hole = walk.at < health.end;
    if is_hole && is_trimmed(&journal, health, walk.at).await? { Ok(None) } else { Ok(Some(walk.at)) }
}

/// Returns whether the log was trimmed past a place since the doctor looked where it begins.
async fn is_trimmed(journal: &BucketJournal, health: &Health, at: Place) -> Result<bool, Error> {
    let known = health.record.as_ref().map(|record| record.number);
    let newest = send(journal, health.store, &Request::NewestRecord(known)).await?;
    Ok(matches!(newest, Reply::Record(Some(record)) if record.mark.place > at))
}

/// Ends the reading of a log at a place: its owner may append for ever.
struct Walk {
    /// The place behind the last object.
    at: Place,
    end: Place,
    is_done: bool,
}

impl Walk {
    fn go_on(&mut self) -> Result<(), Error> {
        if self.is_done { Err(Error::GivenUp) } else { Ok(()) }
    }
}

impl Listener for Walk {
    fn found(&mut self, object: Object<Bytes>) -> Result<(), Error> {
        self.at = object.place.next();
        self.is_done = self.at >= self.end;
        self.go_on()
    }

    fn claimed(&mut self, _claim: &Claim) {}

    fn pause(&mut self, none: Option<Instant>) -> Result<Duration, Error> {
        // The object may be in flight; the caller looks what is behind it.
        self.is_done = none.is_some() && self.at.epoch == self.end.epoch;
        self.go_on()?;
        Ok(QUIET / 20)
    }
}

fn hole(there: &Listed, end: Place, newest: Epoch) -> Option<Finding> {
    let numbers = there.log.get(&end.epoch).map_or(&[][..], Vec::as_slice);
    let is_behind = numbers.iter().any(|number| *number > end.number.saturating_add(FLIGHTS));
    let later = there.log.keys().any(|epoch| *epoch > end.epoch && *epoch <= newest);
    let what = || {
        format!(
            "{end} is missing, and objects behind it are there: a rule of the bucket, or a person, removed objects, and commits are lost to a takeover; stop no owner, back its store up elsewhere, and end the rule"
        )
    };
    (is_behind || later).then(|| finding("objects-missing", what()))
}

fn backup(backups: &Bucket, number: u64) -> Option<Finding> {
    let cannot_be_read = |error| {
        let what = format!(
            "backup {number}, behind which the log begins, cannot be read: {error}; a host that takes over cannot begin without it, so restart the owner with a short --backup-every"
        );
        finding("no-backup", what)
    };
    let missing = backups.backup(Which::Number(number)).and_then(|backup| backup.missing());
    let missing = match missing {
        Ok(missing) => missing,
        Err(error) => return Some(cannot_be_read(error)),
    };
    let first = missing.first()?;
    let what = format!(
        "backup {number}, behind which the log begins, lacks {} of its objects, the first is {backups}/{first}: a rule of the bucket, or a person, removed them; the file of the owner has the data, so end the rule, and back the owner up to an empty place with --backups",
        missing.len()
    );
    Some(finding("backup-parts-missing", what))
}

/// Looks at the chain of maps, of which `newest` was found; `None` if none was.
///
/// # Errors
/// Those of the bucket; [`Error::GivenUp`].
pub fn examine_map(
    bucket: &Bucket,
    newest: Option<u64>,
    goes_on: &dyn Fn() -> bool,
) -> Result<Vec<Finding>, Error> {
    let there = block_on_while(numbers(bucket), goes_on)?.ok_or(Error::GivenUp)?;
    let last = there.last().copied().max(newest).unwrap_or_default();
    let missing = gap(&there, last);
    let what = |first: u64| {
        format!(
            "{} is missing, and {last} maps were made: hosts find an old map, or none; end the rule of the bucket that removes objects, and restore the map",
            Map::name(first)
        )
    };
    Ok(missing.map(|first| finding("maps-missing", what(first))).into_iter().collect())
}

/// Returns the numbers of all maps, by a list.
async fn numbers(bucket: &Bucket) -> Result<Vec<u64>, Error> {
    let names = list(bucket, "map").await?;
    let number = |name: &String| name.strip_prefix("map/")?.parse().ok();
    Ok(ascending(names.iter().filter_map(number)))
}

/// Returns numbers from 1 on in their order, each once.
fn ascending(numbers: impl Iterator<Item = u64>) -> Vec<u64> {
    BTreeSet::from_iter(numbers.filter(|number| *number > 0)).into_iter().collect()
}

async fn list(bucket: &Bucket, folder: &str) -> Result<Vec<String>, Error> {
    let store = bucket.object_store();
    let found: Result<Vec<_>, _> = store.list(Some(&Path::from(folder))).try_collect().await;
    let doing = || format!("listing {bucket}/{folder}");
    let found = found.map_err(|cause| Error::Bucket { doing: doing(), cause })?;
    Ok(found.into_iter().map(|found| found.location.into()).collect())
}
