//! `cluster doctor`: findings, and an exit code.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::time::{Instant, SystemTime};

use brooklet_archive::Bucket;
use brooklet_replica::doctor::{Finding, examine, examine_creates, examine_map, time_of};
use brooklet_replica::{Error, Map, Refusal};
use serde::Serialize;

use super::{Opened, PLACES, goes_on};
use crate::bucket::open_to_read;
use crate::failure::{Failure, Kind};
use crate::output::{Output, counted};
use crate::serve::replicate::{refusal, refused};

#[derive(clap::Args)]
#[command(after_help = PLACES)]
pub struct Args {
    /// The place of the cluster
    place: String,
    /// The place of the backups of a shard whose hosts run with --backups; name each such shard
    #[arg(long, value_name = "SHARD=BUCKET", value_parser = of_shard)]
    backups: Vec<(String, String)>,
}

fn of_shard(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((shard, bucket)) if !shard.is_empty() && !bucket.is_empty() => Ok((shard.into(), bucket.into())),
        _ => Err("it is no SHARD=BUCKET, such as a=s3://bucket/backups".into()),
    }
}

pub fn run(args: Args, out: &mut Output) -> Result<(), Failure> {
    let opened = Opened::at(&args.place)?;
    let map = match opened.cluster.look_now(None, &goes_on) {
        Ok(Some(map)) => map,
        Ok(None) => {
            let found = examine_map(&opened.bucket, None, &goes_on).map_err(refused)?;
            let Some(Finding { kind, what }) = found.into_iter().next() else {
                return Err(opened.refused(Error::Map(Refusal::NoMap)));
            };
            out.put(&Row { shard: None, kind, what })?;
            return Err(Failure::no("the doctor has 1 finding"));
        }
        Err(error @ (Error::Damaged { .. } | Error::NewerFormat { .. } | Error::OtherStore { .. })) => {
            let what = format!("the map cannot be read: {error}");
            out.put(&Row { shard: None, kind: "map-damaged", what })?;
            return Err(Failure::no("the doctor has 1 finding"));
        }
        Err(error) => return Err(refused(error)),
    };
    let elsewhere = elsewhere(args.backups, &map)?;
    let mut count = 0;
    let mut put = |shard: Option<&str>, found: Result<Vec<Finding>, Error>| {
        let found = match found {
            Err(Error::GivenUp) => return Err(Failure::new(Kind::Interrupted, "stopped by a signal")),
            // The other parts may be worse.
            Err(error) => vec![Finding { kind: "no-look", what: format!("it cannot be looked at: {error}") }],
            Ok(found) => found,
        };
        count += found.len();
        let row = |Finding { kind, what }| Row { shard: shard.map(str::to_owned), kind, what };
        found.into_iter().map(row).try_for_each(|row| out.put(&row))
    };
    put(None, examine_creates(&opened.bucket, &goes_on))?;
    put(None, examine_map(&opened.bucket, Some(map.number), &goes_on))?;
    // The times of its objects are by its clock. If it takes no object, that is a finding already.
    let (there, since) = (time_of(&opened.bucket, &goes_on), Instant::now());
    let now = || there.as_ref().map_or_else(|_| SystemTime::now(), |there| *there + since.elapsed());
    for name in map.shards.keys() {
        let (log, below) = opened.shard(name)?;
        let backups = elsewhere.get(name).unwrap_or(&below);
        put(Some(name), examine_shard(&opened, &map, name, [&log, backups], &now))?;
    }
    match count {
        0 => out.line(format_args!("sound: {}", counted(map.shards.len() as u64, "shard"))),
        n => Err(Failure::no(format!("the doctor has {}", counted(n as u64, "finding")))),
    }
}

/// Looks at a shard. A move may have ended since the map was read, so that the map is read again
/// before its owner counts as one that nobody wants.
fn examine_shard(
    opened: &Opened,
    map: &Map,
    name: &str,
    [log, backups]: [&Bucket; 2],
    now: &dyn Fn() -> SystemTime,
) -> Result<Vec<Finding>, Error> {
    let mut newest = map.clone();
    loop {
        let Some(shard) = newest.shards.get(name).cloned() else { return Ok(Vec::new()) };
        let found = examine(log, backups, name, &shard, now(), &goes_on)?;
        if !found.iter().any(|finding| finding.kind == "not-wanted") {
            return Ok(found);
        }
        match opened.cluster.look_now(Some(newest.clone()), &goes_on) {
            Ok(Some(map)) if map.shards.get(name) != Some(&shard) => newest = map,
            _ => return Ok(found),
        }
    }
}

/// Opens the named places of backups.
fn elsewhere(named: Vec<(String, String)>, map: &Map) -> Result<BTreeMap<String, Bucket>, Failure> {
    let open = |(shard, address): (String, String)| {
        if !map.shards.contains_key(&shard) {
            return Err(refusal(&Refusal::NoShard(shard)));
        }
        Ok((shard, open_to_read(&address)?))
    };
    named.into_iter().map(open).collect()
}

#[derive(Serialize)]
struct Row {
    shard: Option<String>,
    kind: &'static str,
    what: String,
}

impl Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shard {
            Some(shard) => write!(f, "shard {shard}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

#[cfg(test)]
mod tests {
    use brooklet::{MirrorOptions, Options};
    use brooklet_replica::{BucketJournal, Change, Replica, ShipperOptions};

    use super::*;

    /// In the old state the owner counted as one that nobody wants.
    #[test]
    fn a_move_that_ends_while_the_doctor_looks_is_no_finding() {
        let folder = tempfile::tempdir().unwrap();
        let opened = Opened::at(folder.path().to_str().unwrap()).unwrap();
        let (shard, [one, two]) = ("a".to_owned(), ["one", "two"].map(str::to_owned));
        let change = |change| opened.cluster.change_now(change, None, &|| true).unwrap();
        change(Change::Begin);
        change(Change::AddShard { shard: shard.clone() });
        change(Change::Register { shard: shard.clone(), host: one, url: String::new() });
        let before = change(Change::Register { shard: shard.clone(), host: two.clone(), url: String::new() });
        let (log, backups) = opened.shard("a").unwrap();
        let mut options = ShipperOptions::default();
        options.owner.clone_from(&two);
        let replica = Replica::new(BucketJournal::new(&log), options);
        let mirror = MirrorOptions::new(replica.clone());
        let store = Options::new().mirror(mirror).open(folder.path().join("store")).unwrap();
        store.append("log", "entry").unwrap().wait().unwrap();
        let is_unwanted = || {
            let found = examine_shard(&opened, &before, "a", [&log, &backups], &SystemTime::now).unwrap();
            found.iter().any(|finding| finding.kind == "not-wanted")
        };
        assert!(is_unwanted());
        change(Change::Move { shard: shard.clone(), to: two.clone() });
        assert!(!is_unwanted(), "it is about to move there");
        change(Change::Serves { shard, host: two });
        assert!(!is_unwanted());
        store.close().unwrap();
    }
}
