//! Retention: backups that are too old go, and what only they need.
//!
//! Of the backups that stay, the oldest refers to what it uploaded and to some of what was there before; later ones refer to
//! that, or to what they uploaded themselves. So an object of an upload up to the oldest one's number is needed if that refers to
//! it, and all later ones are needed, or will be told apart once that backup is the oldest. Nothing else needs to be read,
//! and whoever writes to the archive meanwhile loses nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::backups::read_record;
use crate::bucket::Bucket;
use crate::error::Error;
use crate::record::{BACKUPS, BUNDLES, number_of};
use crate::request::Listed;

/// So many objects are deleted at a time.
const AT_ONCE: usize = 1000;

/// What was removed from an archive, or would be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// Backups.
    pub backups: u64,
    /// Objects that only those needed, or that were left over from backups that were given up.
    pub objects: u64,
    /// Bytes of both.
    pub bytes: u64,
}

pub(crate) fn prune(bucket: &Bucket, keep: Duration, dry_run: bool) -> Result<Pruned, Error> {
    let backups = bucket.list(BACKUPS)?;
    let of = |name: &str, under: &str| number_of(name.strip_prefix(under)?.strip_prefix('/')?);
    let Some(now) = backups.last().map(|latest| latest.written) else { return Ok(Pruned::default()) };
    let begin = now.saturating_sub(keep.as_millis().try_into().unwrap_or(u64::MAX));
    let old_enough = backups.iter().filter(|backup| backup.written <= begin);
    let Some(oldest) = old_enough.filter_map(|backup| of(&backup.name, BACKUPS)).max() else {
        return Ok(Pruned::default());
    };
    let mut pruned = Pruned::default();
    let mut remove = |listed: Vec<Listed>, goes: &dyn Fn(&str) -> bool| {
        let gone: Vec<Listed> = listed.into_iter().filter(|object| goes(&object.name)).collect();
        pruned.bytes += gone.iter().map(|object| object.bytes).sum::<u64>();
        let names: Vec<String> = gone.into_iter().map(|object| object.name).collect();
        if !dry_run {
            names.chunks(AT_ONCE).try_for_each(|names| bucket.delete(names))?;
        }
        Ok::<_, Error>(names.len() as u64)
    };
    let record = read_record(bucket, oldest)?;
    // Records first: none is to refer to what is not there.
    let too_old = |name: &str| of(name, BACKUPS).is_some_and(|number| number < oldest);
    let gone = remove(backups, &too_old)?;
    if gone == 0 {
        return Ok(pruned);
    }
    let needed: BTreeSet<String> = record.objects.keys().map(|(upload, at)| upload.object(*at)).collect();
    let left_over = |name: &str| of(name, BUNDLES).is_some_and(|n| n <= oldest) && !needed.contains(name);
    let objects = remove(bucket.list(BUNDLES)?, &left_over)?;
    (pruned.backups, pruned.objects) = (gone, objects);
    Ok(pruned)
}
