//! A campaign: one cut after another over one kind of disk, each checked before the next.
//!
//! A store lives for some rounds. Each round serves the image that the last cut left, opens the
//! store, compares it with the oracle, runs a victim on it, cuts the power, and draws an image that
//! a real disk might hold then.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use brooklet::io::{Fault, MemVolume, Rng};
use brooklet::{Create, Options};

use crate::drive::Drive;
use crate::host::{Skipped, patiently};
use crate::oracle::{Lost, Oracle};
use crate::story::{STORE, options};

/// Number of rounds of a store's life.
const LIFE: u64 = 25;
/// Seconds without progress after which the harness ends itself.
const STALL: u64 = 180;
/// Time limit for the start of a victim, and the slowness of an emulated machine, as a factor.
const BOOT: Duration = Duration::from_secs(90);
const EMULATION: u32 = 6;

/// A kind of disk, with its part of a round.
pub trait Stage {
    /// Returns the first image of a store's life.
    fn fresh(&mut self) -> anyhow::Result<Vec<u8>>;

    /// Serves `image`, checks the store on it, runs a victim, and cuts the power; returns the image
    /// that is left.
    fn round(&mut self, image: Vec<u8>, campaign: &mut Campaign) -> anyhow::Result<Vec<u8>>;
}

/// The state and the sums of a campaign.
pub struct Campaign {
    /// Source of all choices of the harness.
    pub rng: Rng,
    /// Promises of this store's life.
    pub oracle: Oracle,
    /// Number of further outcomes of each cut that are checked in memory.
    outcomes: u64,
    stop: Arc<AtomicBool>,
    heartbeat: Arc<AtomicU64>,
    /// Sums of the campaign.
    pub outcome: Outcome,
}

/// The sums of a campaign.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Number of power cuts, or kills.
    pub cuts: u64,
    /// Number of recorded acknowledgements.
    pub acks: u64,
    /// Number of entries read back and compared.
    pub entries: u64,
    /// Number of further outcomes of the same cuts, checked in memory.
    pub outcomes: u64,
    /// Number of device errors that stopped the victim's store.
    pub stopped: u64,
}

impl Campaign {
    /// Creates a campaign whose choices follow from `seed`; it ends early once `stop` is set.
    pub fn new(seed: u64, outcomes: u64, stop: Arc<AtomicBool>) -> Self {
        Self {
            rng: Rng::new(seed),
            oracle: Oracle::default(),
            outcomes,
            stop,
            heartbeat: watched(),
            outcome: Outcome::default(),
        }
    }

    /// Cuts the power `cuts` times. Returns [`Lost`] if a promise was broken; the image is then
    /// kept.
    pub fn run(&mut self, kind: &str, stage: &mut dyn Stage, cuts: u64) -> anyhow::Result<()> {
        let mut told = Instant::now();
        while self.outcome.cuts < cuts && !self.stopped() {
            self.oracle = Oracle::default();
            let mut image = stage.fresh()?;
            let life = LIFE.min(cuts - self.outcome.cuts);
            // A cut counts once the next round has checked the image that it left; the cut of the
            // last round does not count.
            let mut unchecked = 0;
            for round in 0..=life {
                let before = image.clone();
                match stage.round(image, self) {
                    Ok(left) => image = left,
                    Err(error) if self.stopped() && !error.is::<Lost>() => return Ok(()),
                    // A missing resource is missing from the first round on.
                    Err(error) if error.is::<Skipped>() && self.outcome.cuts == 0 => return Err(error),
                    Err(error) => return Err(keep(&before, kind, error)),
                }
                self.heartbeat.fetch_add(1, Ordering::Relaxed);
                let acks = std::mem::take(&mut self.oracle.acknowledged);
                self.outcome.acks += std::mem::replace(&mut unchecked, acks);
                self.outcome.cuts += u64::from(round > 0);
                if self.stopped() {
                    return Ok(());
                }
            }
            if told.elapsed() > Duration::from_secs(10) {
                told = Instant::now();
                let Outcome { cuts: done, acks, entries, .. } = self.outcome;
                println!("{kind}: {done} of {cuts} cuts, {acks} acknowledged, {entries} entries read back");
            }
        }
        Ok(())
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Recovers the store at `path` and compares it with the oracle; leaves the store as a killed
    /// process would. Returns `false` if no store exists and none was promised: the first victim
    /// was cut while it created the store.
    pub fn inspect(&mut self, path: &Path) -> anyhow::Result<bool> {
        if !path.try_exists()? {
            return self.oracle.expects_nothing().map(|()| false);
        }
        let store = reopen(&options().create(Create::Never), path)?;
        self.outcome.entries += self.oracle.audit(&store)?;
        store.abandon();
        let report = brooklet::check(path, brooklet::Progress::ignore)?;
        if let Some(finding) = report.findings.first() {
            return Err(Lost(format!("the check found: {}", finding.what)).into());
        }
        Ok(true)
    }

    /// Checks further outcomes of the cut, if the drive's bytes are the store's. Call it before
    /// [`Drive::crash`] draws the outcome that counts.
    pub fn imagine(&mut self, drive: &Drive) -> anyhow::Result<()> {
        for _ in 0..self.outcomes {
            let volume = MemVolume::from_image(drive.crash(), self.rng.next());
            let store = options().open_on(Arc::new(volume)).map_err(|error| match error.kind() {
                brooklet::ErrorKind::Io => anyhow::Error::from(error),
                _ => Lost(format!("the store cannot be opened: {error}")).into(),
            })?;
            self.outcome.entries += self.oracle.clone().audit(&store)?;
            self.outcome.outcomes += 1;
        }
        Ok(())
    }

    /// Runs a victim on the store at `path` until its power goes off, or for some time if the power
    /// stays on, and kills it.
    pub fn victim(&mut self, path: &Path, power: Power<'_>) -> anyhow::Result<()> {
        let plan = Plan::draw(&mut self.rng, power);
        self.cut(power, plan, |round, _| Running::victim(path, round))
    }

    /// Runs a victim in a virtual machine whose disk is `drive`; `start` receives the round and a
    /// seed.
    pub fn machine(
        &mut self,
        drive: &Drive,
        start: impl FnOnce(u32, u64) -> anyhow::Result<Running>,
    ) -> anyhow::Result<()> {
        let power = Power::Device(drive);
        let mut plan = Plan::draw(&mut self.rng, power);
        plan.time *= EMULATION;
        self.cut(power, plan, start)
    }

    fn cut(
        &mut self,
        power: Power<'_>,
        plan: Plan,
        start: impl FnOnce(u32, u64) -> anyhow::Result<Running>,
    ) -> anyhow::Result<()> {
        let (round, seed) = (self.oracle.begin(), self.rng.next());
        let drive = power.drive();
        let operations = drive.map_or(0, Drive::operations);
        drive.iter().for_each(|drive| plan.faults.iter().for_each(|fault| drive.fail(*fault)));
        let mut running = start(round, seed)?;
        let off = || drive.is_some_and(Drive::is_off);
        let mut give_up = Instant::now() + BOOT;
        let mut was_ready = false;
        while Instant::now() < give_up && !off() && !running.has_ended()? {
            if !was_ready && running.is_ready() {
                was_ready = true;
                give_up = Instant::now() + plan.time;
            }
            thread::sleep(Duration::from_micros(200));
        }
        let stopped_before = running.has_ended()? || running.has_stopped();
        let failed = plan.error_after.filter(|n| drive.map_or(0, Drive::operations) > operations + n);
        if failed.is_some() && !off() && matches!(power, Power::File(_)) {
            // A device error is final: the victim must stop by itself. (A file system may handle
            // the error differently.)
            if !(0..12).any(|_| patiently(|| running.has_ended().unwrap_or(true))) {
                bail!("a device error has not stopped the victim");
            }
            self.outcome.stopped += 1;
        }
        // What a victim says once the power is off, is no fault of its own.
        let still_on = !off();
        drive.iter().for_each(|drive| drive.power_off());
        let (status, output) = running.kill()?;
        self.oracle.take(&output);
        if self.stopped() {
            // A ctrl-c reaches the victim, too.
            return Ok(());
        }
        let stopped = self.oracle.stopped.as_deref();
        let by_itself = stopped_before && still_on && failed.is_none();
        if stopped.is_none() && status.code().is_some() || by_itself && stopped.is_some() {
            let why = stopped.unwrap_or("nothing said");
            return Err(Lost(format!("the victim ended by itself with {status}: {why}")).into());
        }
        if still_on && !was_ready && failed.is_none() {
            bail!("no victim wrote within {BOOT:?}");
        }
        Ok(())
    }
}

/// The medium of a victim's store.
#[derive(Clone, Copy)]
pub enum Power<'a> {
    /// The drive's bytes are the store's.
    File(&'a Drive),
    /// The drive is a block device below a file system, which treats a short transfer as an error.
    Device(&'a Drive),
    /// A medium without faults.
    Stays,
}

impl<'a> Power<'a> {
    fn drive(self) -> Option<&'a Drive> {
        match self {
            Power::File(drive) | Power::Device(drive) => Some(drive),
            Power::Stays => None,
        }
    }
}

/// The faults of a victim's round.
struct Plan {
    time: Duration,
    faults: Vec<Fault>,
    /// Number of operations after which the drive fails once.
    error_after: Option<u64>,
}

impl Plan {
    fn draw(rng: &mut Rng, power: Power<'_>) -> Self {
        let longest = if rng.percent(25) { 15 } else { 180 };
        let time = Duration::from_millis(1 + rng.below(longest));
        let mut plan = Self { time, faults: Vec::new(), error_after: None };
        if matches!(power, Power::Stays) {
            return plan;
        }
        if rng.percent(60) {
            // Some rounds are cut during the opening and recovery, others later.
            let most = if rng.percent(40) { 30 } else { 1_500 };
            plan.faults.push(Fault::PowerOffAfter(rng.below(most)));
            plan.time = Duration::from_millis(500);
        } else if rng.percent(25) {
            let operations = rng.below(400);
            let kind = std::io::ErrorKind::Other;
            plan.faults.push(Fault::ErrorAfter { operations, kind, sticky: false });
            plan.error_after = Some(operations);
        }
        if matches!(power, Power::File(_)) && rng.percent(15) {
            plan.faults.push(Fault::ShortTransfers);
        }
        plan
    }
}

/// A running victim, and its output.
pub struct Running {
    child: Child,
    output: JoinHandle<std::io::Result<Vec<u8>>>,
    ready: Arc<AtomicBool>,
    /// Whether it has said that its store stopped.
    stopped: Arc<AtomicBool>,
}

impl Running {
    /// Creates the handle of a process whose lines arrive at `output`. The process is ready once it
    /// has printed `ready`, or immediately with `at_once`.
    pub fn new(child: Child, mut output: impl Read + Send + 'static, at_once: bool) -> Self {
        let ready = Arc::new(AtomicBool::new(at_once));
        let stopped = Arc::new(AtomicBool::new(false));
        let (tell, tell_stopped) = (ready.clone(), stopped.clone());
        let output = thread::spawn(move || {
            let (mut lines, mut buf) = (Vec::new(), [0; 64 << 10]);
            loop {
                match output.read(&mut buf) {
                    Ok(0) => return Ok(lines),
                    Ok(n) => {
                        let told = lines.len().saturating_sub(8);
                        lines.extend_from_slice(&buf[..n]);
                        if lines[told..].windows(8).any(|line| line == b"stopped ") {
                            tell_stopped.store(true, Ordering::Relaxed);
                        }
                    }
                    // The socket of a killed machine ends with this error.
                    Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return Ok(lines),
                    Err(error) => return Err(error),
                }
                if !tell.load(Ordering::Relaxed) && lines.windows(6).any(|line| line == b"ready\n") {
                    tell.store(true, Ordering::Relaxed);
                }
            }
        });
        Self { child, output, ready, stopped }
    }

    fn victim(path: &Path, round: u32) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("victim").arg(path).args(["--round", &round.to_string()]);
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = started.context("starting a victim")?;
        let output = child.stdout.take().expect("it was asked for");
        Ok(Self::new(child, output, true))
    }

    fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    fn kill(mut self) -> anyhow::Result<(ExitStatus, Vec<u8>)> {
        self.child.kill()?;
        if !(0..12).any(|_| patiently(|| self.child.try_wait().is_ok_and(|status| status.is_some()))) {
            bail!("the victim outlives SIGKILL");
        }
        let output = self.output.join().expect("no panics").context("reading the acknowledgements")?;
        Ok((self.child.wait()?, output))
    }
}

/// Opens a store whose last holder was killed.
fn reopen(options: &Options, path: &Path) -> anyhow::Result<brooklet::Store> {
    // The kernel may hold the file of a killed process until its last write has ended.
    let mut tries = 0;
    let opened = loop {
        match options.clone().open(path) {
            Err(brooklet::Error::Locked { .. }) if tries < 60 => {
                tries += 1;
                thread::sleep(Duration::from_secs(1));
            }
            opened => break opened,
        }
    };
    opened.map_err(|error| match error.kind() {
        brooklet::ErrorKind::Io => anyhow::Error::from(error).context("opening the store after the cut"),
        _ => Lost(format!("the store cannot be opened: {error}")).into(),
    })
}

/// Keeps the image that led to an error.
fn keep(image: &[u8], kind: &str, error: anyhow::Error) -> anyhow::Error {
    let error = if error.is::<Skipped>() { anyhow!("it does not work any more: {error:#}") } else { error };
    let path = PathBuf::from(format!("powercut-{kind}-{:016x}.img", brooklet::io::system_seed()));
    match fs::write(&path, image) {
        Ok(()) => error.context(format!("the image before that round is kept in {}", path.display())),
        Err(failed) => error.context(format!("the image could not be kept: {failed}")),
    }
}

/// Returns a number that grows with the progress. The process ends if the number stays the same: a
/// hang is a failure, and must not last.
pub fn watched() -> Arc<AtomicU64> {
    let heartbeat = Arc::new(AtomicU64::new(0));
    let watching = heartbeat.clone();
    thread::spawn(move || {
        let mut last = 0;
        loop {
            thread::sleep(Duration::from_secs(STALL));
            let now = watching.load(Ordering::Relaxed);
            if now == last {
                eprintln!("nothing has moved for {STALL} s");
                std::process::exit(3);
            }
            last = now;
        }
    });
    heartbeat
}

/// Returns the path of the store below `dir`.
pub fn store_in(dir: &Path) -> PathBuf {
    dir.join(STORE)
}
