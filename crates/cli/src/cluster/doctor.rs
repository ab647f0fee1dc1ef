//! `cluster doctor`: findings, and an exit code.

use std::fmt::{self, Display};
use std::time::SystemTime;

use brooklet_replica::doctor::{Finding, examine, examine_creates, examine_map};
use brooklet_replica::{Error, Refusal};
use serde::Serialize;

use super::{Opened, goes_on};
use crate::failure::{Failure, Kind};
use crate::output::Output;
use crate::serve::replicate::refused;

pub fn run(place: &str, out: &mut Output) -> Result<(), Failure> {
    let opened = Opened::at(place)?;
    let map = match opened.cluster.look_now(None, &goes_on) {
        Ok(Some(map)) => map,
        Ok(None) => {
            let found = examine_map(&opened.bucket, None, &goes_on).map_err(refused)?;
            let Some(Finding { kind, what }) = found.into_iter().next() else {
                return Err(refused(Error::Map(Refusal::NoMap)));
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
    for (name, shard) in &map.shards {
        let (log, backups) = opened.shard(name)?;
        put(Some(name), examine(&log, &backups, name, shard, SystemTime::now(), &goes_on))?;
    }
    match count {
        0 => out.line(format_args!("sound: {} shards", map.shards.len())),
        n => Err(Failure::no(format!("the doctor has {n} findings"))),
    }
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
