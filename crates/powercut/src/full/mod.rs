//! Fills a small file system below a real store: `writer` fills and frees the store in its own
//! process, a second file takes the rest of the disk (`disk`), and each life ends with a comparison
//! of the store with the acknowledged operations (`promises`).
//! What must hold on a file system that keeps its word on allocated space, while there is not a
//! On a file system that guarantees allocated space, these conditions must hold while no byte is
//! free:
//! - appends are refused, and nothing else is: every trim, truncation and delete is taken, to the
//! - appends are refused, and nothing else: every trim, truncation and delete is accepted;
//! - all entries read as written, also while the disk is full, and after a kill;
//! - the store opens, even with a ring full of entries that no run has yet, and its check finds
//!   nothing;
//! - appends succeed again in freed space.
//!
//! On a copy-on-write file system the store may stop. Then nothing acknowledged is missing after
//! another file was removed, and the store can be emptied and filled again.

pub mod disk;
pub mod logs;
pub mod promises;
pub mod writer;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, ensure};
use brooklet::Create;
use brooklet::io::Rng;
use clap::ValueEnum;

use crate::cuts::store_in;
use disk::{Disk, Hog, Small};
use promises::{Promises, Said, lost};
use writer::Plan;

/// Bytes of payloads after which the second file takes the rest of the disk.
const CROWDED: u64 = 6 << 20;
/// Number of kills in a row.
const KILLS: u64 = 3;

/// The counts of one file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Number of complete stories.
    pub rounds: u64,
    /// Number of writing processes.
    pub lives: u64,
    /// Number of killed processes.
    pub kills: u64,
    /// Number of acknowledged operations.
    pub acks: u64,
    /// Number of refused commits.
    pub refused: u64,
    /// Number of entries read back and compared.
    pub entries: u64,
}

/// Runs the whole story on one file system, and adds to `outcome`; `heartbeat` grows with the
/// progress. Returns [`Lost`](crate::oracle::Lost) if a promise was broken; the store's file is
/// then kept.
pub fn run(small: Small, seed: u64, heartbeat: &AtomicU64, outcome: &mut Outcome) -> anyhow::Result<()> {
    let mut story = Story {
        hog: None,
        disk: Disk::new(small)?,
        promises: Promises::default(),
        rng: Rng::new(seed),
        heartbeat,
        outcome,
    };
    let told = if small.keeps_its_word() { story.tell() } else { story.tell_of_copies() };
    told.map_err(|error| story.keep(small, error))?;
    outcome.rounds += 1;
    Ok(())
}

/// The life of one store. The order of the fields is the order of their drop: the file system must
/// not be in use when it is unmounted.
struct Story<'a> {
    hog: Option<Hog>,
    disk: Disk,
    promises: Promises,
    /// Source of all choices.
    rng: Rng,
    heartbeat: &'a AtomicU64,
    outcome: &'a mut Outcome,
}

impl Story<'_> {
    fn tell(&mut self) -> anyhow::Result<()> {
        self.crowded().context("crowded by another file")?;
        self.killed().context("killed while the disk is full")?;
        self.emptied().context("emptied while the disk is full")?;
        self.merging().context("filled in the midst of merges")?;
        self.alone().context("with the disk for itself")
    }

    /// Tests a store while the second file takes the rest of the disk, and all released space.
    fn crowded(&mut self) -> anyhow::Result<()> {
        self.fill_beside_hog()?;
        self.audit()?;
        self.life(Plan::Thin, false)?;
        self.audit()?;
        self.fill(1)?;
        self.audit()?;
        // The store can reuse all space that it releases from here on.
        self.hog().stop()?;
        let before = self.promises.bytes();
        self.life(Plan::Thin, true)?;
        self.audit()?;
        let freed = before - self.promises.bytes();
        self.fill(freed / 2)?;
        self.audit()
    }

    /// Kills the store during appends and frees on a full disk.
    fn killed(&mut self) -> anyhow::Result<()> {
        self.set_hog()?;
        for _ in 0..KILLS {
            let until = 100 + self.rng.below(900);
            self.life_until(Plan::Churn, |_, said| Ok(said.acknowledged > until))?;
            self.audit()?;
        }
        Ok(())
    }

    /// Deletes all logs on a full disk, with a kill in between.
    fn emptied(&mut self) -> anyhow::Result<()> {
        let until = self.rng.below(500);
        self.life_until(Plan::Empty, |_, said| Ok(said.acknowledged > until))?;
        self.audit()?;
        self.life(Plan::Empty, true)?;
        self.audit()?;
        ensure!(self.promises.bytes() == 0, "not all logs were deleted");
        self.fill(1)?;
        self.audit()
    }

    /// Fills the disk during merges that began with room.
    fn merging(&mut self) -> anyhow::Result<()> {
        self.dismiss_hog()?;
        let (merged, more) = (2 + self.rng.below(20), 1_000 + self.rng.below(4_000));
        let mut until = None;
        self.life_until(Plan::Churn, |story, said| {
            if until.is_none() && said.merged >= merged {
                story.set_hog()?;
                until = Some(said.acknowledged + more);
            }
            Ok(until.is_some_and(|until| said.acknowledged > until))
        })?;
        self.hog().sated()?;
        self.audit()?;
        self.life(Plan::Empty, false)?;
        self.audit()
    }

    /// Fills the disk with the store alone; then the second file takes the rest.
    fn alone(&mut self) -> anyhow::Result<()> {
        self.dismiss_hog()?;
        let first = self.fill(1)?;
        self.set_hog()?;
        self.hog().sated()?;
        self.audit()?;
        self.life(Plan::Thin, true)?;
        self.fill(1)?;
        self.audit()?;
        self.life(Plan::Empty, true)?;
        self.audit()?;
        self.dismiss_hog()?;
        self.fill(first / 4 * 3)?;
        self.audit()
    }

    /// Runs the story of a file system that may refuse to overwrite data while it is full.
    fn tell_of_copies(&mut self) -> anyhow::Result<()> {
        self.fill_beside_hog_or_stop()?;
        self.disk.drop_ballast()?;
        self.dismiss_hog()?;
        self.audit()?;
        self.life(Plan::Empty, true)?;
        self.audit()?;
        self.life_until(Plan::Fill, |_, said| Ok(said.bytes > CROWDED))?;
        self.audit()
    }

    /// Fills the disk together with the second file, which starts later.
    fn fill_beside_hog(&mut self) -> anyhow::Result<()> {
        self.fill_beside_hog_or_stop()?;
        self.hog().sated()?;
        self.has_filled(CROWDED)
    }

    fn fill_beside_hog_or_stop(&mut self) -> anyhow::Result<()> {
        self.live(Plan::Fill, true, |story, said| {
            if story.hog.is_none() && said.bytes > CROWDED {
                story.set_hog()?;
            }
            Ok(false)
        })
    }

    /// Fills the store until it refuses; returns the number of bytes, at least `least`.
    fn fill(&mut self, least: u64) -> anyhow::Result<u64> {
        let abandon = self.rng.percent(50);
        self.live(Plan::Fill, abandon, |_, _| Ok(false))?;
        self.has_filled(least).map(|()| self.promises.said.bytes)
    }

    fn has_filled(&self, least: u64) -> anyhow::Result<()> {
        self.has_not_stopped()?;
        let Said { refused, bytes, .. } = &self.promises.said;
        ensure!(*refused > 0, "it is never full");
        if *bytes < least {
            lost(format!("{bytes} bytes were taken until it was full, not {least}"))
        } else {
            Ok(())
        }
    }

    /// Runs a writing process to its end.
    fn life(&mut self, plan: Plan, abandon: bool) -> anyhow::Result<()> {
        self.live(plan, abandon, |_, _| Ok(false))?;
        self.has_not_stopped()
    }

    /// Runs a writing process until it is killed, or its work is done.
    fn life_until(
        &mut self,
        plan: Plan,
        enough: impl FnMut(&mut Self, &Said) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        self.live(plan, true, enough)?;
        self.has_not_stopped()
    }

    fn has_not_stopped(&self) -> anyhow::Result<()> {
        match &self.promises.said.stopped {
            Some(why) => lost(format!("the store gave up: {why}")),
            None => Ok(()),
        }
    }

    /// Runs a writing process until `enough` returns `true`; records its promises.
    fn live(
        &mut self,
        plan: Plan,
        abandon: bool,
        enough: impl FnMut(&mut Self, &Said) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("writer").arg(self.store()).args(["--plan", &named(&plan)]);
        command.args(["--seed", &self.rng.next().to_string()]).args(abandon.then_some("--abandon"));
        // A signal for the harness must not reach the writers.
        command.process_group(0);
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = started.context("starting writers")?;
        self.promises.begin();
        let killed = self.listen(&mut child, enough);
        if killed.is_err() {
            child.kill()?;
        }
        let (status, killed) = (child.wait()?, killed?);
        let Said { acknowledged, refused, stopped, .. } = &self.promises.said;
        ensure!(killed || status.success() || stopped.is_some(), "the writers ended with {status}");
        self.outcome.lives += 1;
        self.outcome.kills += u64::from(killed);
        self.outcome.acks += acknowledged;
        self.outcome.refused += refused;
        Ok(())
    }

    /// Records the lines of a process until its end; returns whether the process was killed.
    fn listen(
        &mut self,
        child: &mut Child,
        mut enough: impl FnMut(&mut Self, &Said) -> anyhow::Result<bool>,
    ) -> anyhow::Result<bool> {
        let mut lines = BufReader::new(child.stdout.take().expect("it was asked for"));
        let (mut line, mut killed) = (String::new(), false);
        // Every complete line counts, even after the kill; an incomplete line does not.
        while lines.read_line(&mut line)? > 0 && line.ends_with('\n') {
            self.heartbeat.fetch_add(1, Ordering::Relaxed);
            self.promises.take(serde_json::from_str(&line)?)?;
            line.clear();
            let said = self.promises.said.clone();
            if !killed && enough(self, &said)? {
                child.kill()?;
                killed = true;
            }
        }
        Ok(killed)
    }

    /// Opens the store on the disk as it is, compares it with the promises, and checks it.
    fn audit(&mut self) -> anyhow::Result<()> {
        self.heartbeat.fetch_add(1, Ordering::Relaxed);
        let path = self.store();
        let opened = writer::options().create(Create::Never).open(&path);
        let store = opened.or_else(|error| lost(format!("the store cannot be opened: {error}")))?;
        self.outcome.entries += self.promises.audit(&store)?;
        if self.rng.percent(50) {
            store.close()?;
            drop(store);
        } else {
            store.abandon();
        }
        let report = brooklet::check(&path, brooklet::Progress::ignore)?;
        match report.findings.first() {
            Some(finding) => lost(format!("the check found: {}", finding.what)),
            None => Ok(()),
        }
    }

    fn store(&self) -> PathBuf {
        store_in(self.disk.path())
    }

    fn set_hog(&mut self) -> anyhow::Result<()> {
        self.hog = None;
        self.hog = Some(Hog::start(self.disk.path())?);
        Ok(())
    }

    fn hog(&mut self) -> &mut Hog {
        self.hog.as_mut().expect("it was set")
    }

    fn dismiss_hog(&mut self) -> anyhow::Result<()> {
        self.hog.take().map_or(Ok(()), Hog::give_back)
    }

    /// Keeps the store that led to an error.
    fn keep(&self, small: Small, error: anyhow::Error) -> anyhow::Error {
        let to = format!("full-{}-{:016x}.brooklet", named(&small), brooklet::io::system_seed());
        match fs::copy(self.store(), &to) {
            Ok(_) => error.context(format!("the store is kept in {to}")),
            Err(failed) => error.context(format!("the store could not be kept: {failed}")),
        }
    }
}

/// Returns the name of a value on the command line.
pub fn named(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
