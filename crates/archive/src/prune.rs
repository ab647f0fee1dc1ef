//! Retention: removes old backups and the objects that only they need.
//!
//! Of the backups that stay, the oldest refers to its own upload and to some of the older objects.
//! Each later backup refers to objects of the previous one and to its own upload. So an object of
//! an upload up to the oldest backup's number is needed only if the oldest backup refers to it. All
//! later objects are kept, until a later backup is the oldest. So pruning reads one record only,
//! and a host that writes to the archive meanwhile loses nothing.
//!
//! A removed backup leaves a tombstone for some time. A host that stopped while it created a
//! backup, and continues later, must not find its number free again.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Duration;

use crate::bucket::Bucket;
use crate::error::Error;
use crate::objects::Listed;
use crate::record::{BACKUPS, BUNDLES, COMMITS, IN_USE, TOMBSTONE, name_of};
use crate::records::read_record;

/// Number of objects that are deleted at a time.
const AT_ONCE: usize = 1000;

/// Time for which a tombstone is kept.
const BURIED: Duration = Duration::from_secs(30 * 24 * 3600);

/// The removed part of an archive; in a dry run, the part that would be removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// Number of backups.
    pub backups: u64,
    /// Number of objects that only those backups needed, or that are left over from uploads that
    /// were given up.
    pub objects: u64,
    /// Size of the backups' records and of the objects, in bytes.
    pub bytes: u64,
}

/// Prunes an archive. `go_on` is called before each request that removes something; if it returns
/// `Break`, the call ends with [`Error::Cancelled`].
pub(crate) fn prune(
    bucket: &Bucket,
    keep: Duration,
    dry_run: bool,
    go_on: &dyn Fn() -> ControlFlow<()>,
) -> Result<Pruned, Error> {
    let listed = bucket.list(BACKUPS)?;
    let (tombs, backups): (Vec<Listed>, Vec<Listed>) = listed.into_iter().partition(Listed::is_tombstone);
    let Some(now) = backups.last().map(|latest| latest.written) else { return Ok(Pruned::default()) };
    let before = |age: Duration| now.saturating_sub(age.as_millis().try_into().unwrap_or(u64::MAX));
    if !dry_run {
        // The remaining tombstones have no gap, whatever their times are.
        let old = tombs.iter().take_while(|tomb| tomb.written < before(BURIED));
        let old: Vec<_> = old.filter_map(|tomb| tomb.number(BACKUPS)).collect();
        remove_tombstones(bucket, &old, go_on)?;
    }
    let Some(oldest) = oldest_kept(&backups, before(keep), now) else { return Ok(Pruned::default()) };
    let is_older = |backup: &&Listed| backup.number(BACKUPS).is_some_and(|number| number < oldest);
    let gone: Vec<&Listed> = backups.iter().filter(is_older).collect();
    if gone.is_empty() {
        return Ok(Pruned::default());
    }
    let record = read_record(bucket, oldest)?;
    // Records first: no record may refer to a missing object.
    if !dry_run {
        gone.iter().try_for_each(|backup| {
            expect_time(go_on)?;
            bucket.put(&backup.name, TOMBSTONE[..].into()).wait()
        })?;
    }
    let needed: BTreeSet<String> = record.objects.keys().map(|(upload, at)| upload.object(*at)).collect();
    let is_left_over = |object: &Listed| {
        object.number(BUNDLES).is_some_and(|number| number <= oldest) && !needed.contains(&object.name)
    };
    let mut objects = bucket.list(BUNDLES)?;
    objects.retain(is_left_over);
    let mut commits = bucket.list(COMMITS)?;
    commits.retain(|object| object.number(COMMITS).is_some_and(|number| number < oldest));
    objects.extend(commits);
    let names: Vec<String> = objects.iter().map(|object| object.name.clone()).collect();
    if !dry_run {
        names.chunks(AT_ONCE).try_for_each(|names| {
            expect_time(go_on)?;
            bucket.delete(names)
        })?;
    }
    let bytes = gone.into_iter().chain(&objects).map(|object| object.bytes).sum();
    Ok(Pruned { backups: backups.iter().filter(is_older).count() as u64, objects: names.len() as u64, bytes })
}

/// Returns the number of the newest backup that was written up to the time `before`. No backup
/// before it is younger than that.
///
/// The clock may have been wrong. A backup with a time after `now`, which is the time of the newest
/// backup, or with an earlier time than a backup before it, has no known age.
fn oldest_kept(backups: &[Listed], before: u64, now: u64) -> Option<u64> {
    let (mut last, mut oldest) = (0, None);
    let dated = backups.iter().filter(|backup| backup.written <= now);
    for backup in dated.take_while(|backup| backup.written <= before) {
        if backup.written >= last {
            last = backup.written;
            oldest = backup.number(BACKUPS).or(oldest);
        }
    }
    oldest
}

/// Removes tombstones one after the other: the remaining tombstones must have no gap.
fn remove_tombstones(
    bucket: &Bucket,
    numbers: &[u64],
    go_on: &dyn Fn() -> ControlFlow<()>,
) -> Result<(), Error> {
    if !numbers.is_empty() {
        bucket.put(IN_USE, "backups go on from where this archive left off".into()).wait()?;
    }
    numbers.iter().try_for_each(|number| {
        expect_time(go_on)?;
        bucket.delete(&[name_of(*number)])
    })
}

/// Returns an error once the call is to end.
fn expect_time(go_on: &dyn Fn() -> ControlFlow<()>) -> Result<(), Error> {
    match go_on() {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::Cancelled { what: "the removal of old backups" }),
    }
}
