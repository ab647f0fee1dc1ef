//! `cluster move`: it asks for a move in the map, and waits for its end.

use std::fmt::{self, Display};
use std::thread;
use std::time::{Duration, Instant};

use brooklet_replica::{Change, Health, Map};
use serde::Serialize;

use super::{Opened, goes_on};
use crate::failure::{Failure, Kind};
use crate::output::Output;
use crate::serve::replicate::refused;
use crate::time::age;

/// Time between two looks at the map.
const LOOK: Duration = Duration::from_millis(100);

#[derive(clap::Args)]
pub struct Args {
    /// The place of the cluster
    place: String,
    /// The shard
    shard: String,
    /// The target, which stands by for the shard
    #[arg(required_unless_present = "cancel", conflicts_with = "cancel")]
    host: Option<String>,
    /// End a move that is under way: the owner keeps the shard, unless it has left it already
    #[arg(long)]
    cancel: bool,
    /// Longest time to wait for the end; the move goes on after that (ms, s, m, h, d and w are
    /// understood)
    #[arg(long, value_name = "TIME", value_parser = age, default_value = "60s")]
    timeout: Duration,
}

pub fn run(args: Args, out: &mut Output) -> Result<(), Failure> {
    let opened = Opened::at(&args.place)?;
    let shard = args.shard;
    let Some(to) = args.host else {
        let map = opened.cluster.change_now(Change::Cancel { shard: shard.clone() }, None, &goes_on);
        let map = map.map_err(|error| opened.refused(error))?;
        let host = map.shards[&shard].wanted.clone();
        return out.put(&Moved { shard, host, map: map.number, is_cancelled: true });
    };
    let asked = Change::Move { shard: shard.clone(), to: to.clone() };
    let asked = opened.cluster.change_now(asked, None, &goes_on);
    let mut map = asked.map_err(|error| opened.refused(error))?;
    let was_wanted = map.shards.get(&shard).is_some_and(|entry| entry.wanted == to);
    let (begin, mut told) = (Instant::now(), String::new());
    loop {
        let Some(entry) = map.shards.get(&shard) else {
            return Err(Failure::new(Kind::NotFound, format!("the map lost shard {shard}")));
        };
        let is_wanted = entry.wanted == to;
        let has_moved = if is_wanted && was_wanted && entry.moving.is_none() {
            is_owner(&opened, &shard, &to)?
        } else {
            Some(is_wanted)
        };
        match (&entry.moving, has_moved) {
            (None, Some(true)) => {
                return out.put(&Moved { shard, host: to, map: map.number, is_cancelled: false });
            }
            (None, Some(false)) => {
                let what = format!("the move of shard {shard} was cancelled: {} is wanted", entry.wanted);
                return Err(Failure::no(what));
            }
            (Some(moving), _) if moving.to != to => {
                let what =
                    format!("another move of shard {shard} replaced this one: it goes to {}", moving.to);
                return Err(Failure::no(what));
            }
            _ => {}
        }
        let stage = stage(&opened, &map, &shard, &to);
        if stage != told {
            out.line(&stage)?;
            out.flush()?;
            told = stage;
        }
        if begin.elapsed() >= args.timeout {
            let what = format!(
                "shard {shard} has not moved after {} seconds: {told}; the move goes on, and --cancel ends it",
                args.timeout.as_secs()
            );
            return Err(Failure::no(what));
        }
        if !goes_on() {
            let what = format!(
                "the move of shard {shard} goes on: repeat the command to wait for its end, or use --cancel"
            );
            return Err(Failure::new(Kind::Interrupted, what));
        }
        thread::sleep(LOOK);
        map = match opened.cluster.look_now(Some(map.clone()), &goes_on) {
            Ok(newest) => newest.unwrap_or(map),
            Err(error) if error.is_temporary() || !goes_on() => map,
            Err(error) => return Err(refused(error)),
        };
    }
}

/// Returns whether a host owns a shard, as the log shows; `None` while the bucket does not answer.
/// The map does not show that: a host that was wanted before its move is wanted after the move, and
/// also after its cancellation.
fn is_owner(opened: &Opened, shard: &str, host: &str) -> Result<Option<bool>, Failure> {
    match Health::of(&opened.shard(shard)?.0, &goes_on) {
        Ok(health) => Ok(Some(health.is_some_and(|health| health.claim.owner == host))),
        Err(error) if error.is_temporary() || !goes_on() => Ok(None),
        Err(error) => Err(refused(error)),
    }
}

/// Returns what the move waits for.
fn stage(opened: &Opened, map: &Map, shard: &str, to: &str) -> String {
    let Some(moving) = &map.shards[shard].moving else {
        return "the move has ended, and the log does not show yet who owns the shard".into();
    };
    if moving.ready.is_none() {
        return format!("{to} follows the log to its end");
    }
    let claim = opened.shard(shard).ok().and_then(|(log, _)| Health::of(&log, &goes_on).ok().flatten());
    match claim.map(|health| health.claim) {
        Some(claim) if claim.owner == to => format!("{to} takes the shard over"),
        Some(claim) => format!("{to} is ready; {} keeps the log short, and leaves", claim.owner),
        None => format!("{to} is ready"),
    }
}

#[derive(Serialize)]
struct Moved {
    shard: String,
    host: String,
    map: u64,
    is_cancelled: bool,
}

impl Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_cancelled {
            true => write!(f, "no move of shard {} is under way; {} is wanted", self.shard, self.host),
            false => write!(f, "shard {} is on {}", self.shard, self.host),
        }
    }
}
