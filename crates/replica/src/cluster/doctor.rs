//! The doctor of a cluster: it looks for what no host would notice in time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use brooklet_archive::object_store::ObjectStore;
use brooklet_archive::object_store::path::Path;
use brooklet_archive::{Bucket, Which};
use bytes::Bytes;
use futures_util::TryStreamExt;

use crate::bucket::BucketJournal;
use crate::claim::Claim;
use crate::cluster::health::Health;
use crate::drive::follow;
use crate::error::Error;
use crate::machine::follower::{Follower, FollowerState};
use crate::map::{Map, Shard};
use crate::object::Object;
use crate::place::{Epoch, Mark, Place};
use crate::probe::Probe;
use crate::record::Record;
use crate::standby::block_on_while;

/// Time without a sign after which an owner counts as gone.
const SILENT: Duration = Duration::from_secs(10);
/// Time for which nothing comes at the end of a log.
const QUIET: Duration = Duration::from_secs(1);
/// Numbers that an owner may give before it knows of the first one: more than its window.
const FLIGHTS: u64 = 64;

/// A finding of the doctor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind of the finding, for programs.
    pub kind: &'static str,
    /// What was found, and what to do.
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

/// Looks at the log of a shard, while `goes_on` returns true: at its claims, fences and objects,
/// its owner and its backup, at the time `now`. Reads the log behind the last backup.
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
    findings.extend(claims(&there, &health.claim));
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
        listed.claims.sort_unstable();
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

/// Claims have all numbers. A host that cannot find the newest one would claim an old epoch.
fn claims(there: &Listed, newest: &Claim) -> Vec<Finding> {
    let mut findings = Vec::new();
    let last = there.claims.last().copied().unwrap_or(newest.writer.epoch.0).max(newest.writer.epoch.0);
    let is_there = |number: u64| there.claims.binary_search(&number).is_ok();
    let missing: Vec<u64> = (1..=last).filter(|number| !is_there(*number)).collect();
    if let Some(first) = missing.first() {
        let what = format!(
            "{} of {last} claims are missing, the first is {}: a rule of the bucket, or a person, removed objects, and a former owner could write again; stop all hosts of the shard, end the rule, and begin anew from a backup",
            missing.len(),
            Claim::name(Epoch(*first))
        );
        findings.push(finding("claims-missing", what));
    }
    let records = there.records.last().map_or(0, |last| last + 1);
    if there.records.len() as u64 != records {
        let what = "records are missing: a takeover may begin behind an old backup; end the rule of the bucket that removes objects";
        findings.push(finding("records-missing", what));
    }
    findings
}

/// Each epoch before the newest has its fence, and the log has no hole.
async fn objects(bucket: &Bucket, there: &Listed, health: &Health) -> Result<Vec<Finding>, Error> {
    let mut findings = Vec::new();
    let none = BTreeMap::new();
    let ends = health.record.as_ref().map_or(&none, |record| &record.ends);
    let begin = health.record.as_ref().map_or(Epoch::FIRST, |record| record.mark.place.epoch);
    let lacks = |epoch: &Epoch| match ends.get(epoch) {
        Some(number) => !there.has(Place { epoch: *epoch, number: *number }),
        None => !there.log.contains_key(epoch),
    };
    let missing: Vec<Epoch> = (1..begin.0).map(Epoch).filter(lacks).collect();
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

/// Reads the log behind its last record as a follower does. Returns its end; `None` if it was
/// trimmed meanwhile.
async fn walk(bucket: &Bucket, health: &Health) -> Result<Option<Place>, Error> {
    let journal = Arc::new(BucketJournal::new(bucket));
    let mut at = health.record.as_ref().map_or(Mark::BEGIN, |record| record.mark);
    let record = health.record.as_ref().map(|record| record.number);
    loop {
        let mut follower = Follower::<Bytes>::new(health.store, at, record, QUIET, Duration::ZERO);
        let found = |_: Object<Bytes>| Ok(());
        match follow(&journal, health.store, &mut follower, QUIET / 20, found, |_| ()).await? {
            FollowerState::HandedOver => at = follower.at(),
            FollowerState::Behind => return Ok(None),
            FollowerState::Broken(place) => {
                let what = "it does not follow the object before it";
                return Err(Error::Damaged { object: place.to_string(), what });
            }
            _ => return Ok(Some(follower.at().place)),
        }
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
    let error = backups.backup(Which::Number(number)).err()?;
    let what = format!(
        "backup {number}, behind which the log begins, cannot be read: {error}; a host that takes over cannot begin without it, so restart the owner with a short --backup-every"
    );
    Some(finding("no-backup", what))
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
    let mut there = block_on_while(numbers(bucket), goes_on)?.ok_or(Error::GivenUp)?;
    there.sort_unstable();
    let last = there.last().copied().max(newest).unwrap_or_default();
    let missing = (1..=last).find(|number| there.binary_search(number).is_err());
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
    Ok(names.iter().filter_map(number).collect())
}

async fn list(bucket: &Bucket, folder: &str) -> Result<Vec<String>, Error> {
    let store = bucket.object_store();
    let found: Result<Vec<_>, _> = store.list(Some(&Path::from(folder))).try_collect().await;
    let doing = || format!("listing {bucket}/{folder}");
    let found = found.map_err(|cause| Error::Bucket { doing: doing(), cause })?;
    Ok(found.into_iter().map(|found| found.location.into()).collect())
}
