//! The results of a campaign, for people and for the page of counts.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::Serialize;

use crate::cuts::Outcome;
use crate::full;

/// A line of the file that `BROOKLET_COUNTS` names.
#[derive(Serialize)]
struct Count<'a> {
    kind: &'static str,
    name: &'a str,
    cuts: u64,
    acks: u64,
    lost: u64,
    seconds: f64,
    command: String,
}

/// A line for a disk that was filled.
#[derive(Serialize)]
struct FullCount<'a> {
    kind: &'static str,
    name: &'a str,
    rounds: u64,
    lives: u64,
    kills: u64,
    acks: u64,
    refused: u64,
    lost: u64,
    seconds: f64,
    command: String,
}

/// Command that runs this program.
const COMMAND: &str = "cargo run --release -p brooklet-powercut --";

/// Number of cuts that may all come before the first acknowledgement.
const FEW: u64 = 9;

/// Reports the results of a campaign; a campaign with a loss never gets here.
///
/// # Errors
/// No store acknowledged anything: the cuts prove nothing.
pub fn tell(name: &str, command: &str, outcome: Outcome, time: Duration) -> anyhow::Result<()> {
    let Outcome { cuts, acks, entries, outcomes, stopped } = outcome;
    ensure!(acks > 0 || cuts <= FEW, "{name}: no store acknowledged anything before {cuts} cuts");
    let seconds = time.as_secs_f64();
    if outcomes + stopped > 0 {
        println!(
            "{name}: {outcomes} further outcomes checked in memory, {stopped} device errors stopped a store"
        );
    }
    println!(
        "cuts over {name}: {cuts} cuts, {acks} acknowledged, {entries} entries read back, 0 lost, {seconds:.1} s"
    );
    let command = format!("{COMMAND} {command}");
    add(&Count { kind: "cut", name, cuts, acks, lost: 0, seconds, command })
}

/// Reports the results for a store on a small file system; a run with a loss never gets here.
pub fn tell_full(name: &str, outcome: full::Outcome, time: Duration) -> anyhow::Result<()> {
    let full::Outcome { rounds, lives, kills, acks, refused, entries } = outcome;
    let seconds = time.as_secs_f64();
    println!(
        "full {name}: {rounds} rounds, {lives} lives, {kills} of them killed, {acks} acknowledged, {refused} refused, \
         {entries} entries read back, 0 lost, {seconds:.1} s"
    );
    let command = format!("{COMMAND} full --filesystem {name} --rounds {rounds}");
    add(&FullCount {
        kind: "full-disk",
        name,
        rounds,
        lives,
        kills,
        acks,
        refused,
        lost: 0,
        seconds,
        command,
    })
}

/// Adds a line, if `BROOKLET_COUNTS` is set.
fn add(count: &impl Serialize) -> anyhow::Result<()> {
    let Some(path) = std::env::var_os("BROOKLET_COUNTS") else { return Ok(()) };
    let mut line = serde_json::to_string(count)?;
    line.push('\n');
    let file = File::options().create(true).append(true).open(&path);
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .with_context(|| format!("adding to {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_before_which_nothing_was_acknowledged_prove_nothing() {
        let outcome = Outcome { cuts: FEW + 1, ..Outcome::default() };
        assert!(tell("nothing", "nothing --cuts 10", outcome, Duration::ZERO).is_err());
    }
}
