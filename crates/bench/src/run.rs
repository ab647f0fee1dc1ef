//! Runs the workloads: round by round, store by store, each step in a child process.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::outcome::Result;
use crate::plan::{DATA, IDLE, ONE, Plan, RESTED, Work};
use crate::stores::Kind;
use crate::system;
use crate::works::{Data, Figures, READY, Step, Task};

/// What a workload gave, store by store: the figures of each round, or what went wrong.
pub type Rounds = BTreeMap<Kind, Vec<std::result::Result<Figures, String>>>;

/// Where it runs, and with what.
pub struct Bench {
    dir: PathBuf,
    stores: Vec<Kind>,
    rounds: usize,
    /// What the stores took on disk that were made, and where.
    filled: BTreeMap<PathBuf, Figures>,
}

impl Bench {
    /// In a directory, with these stores.
    pub fn new(dir: &Path, stores: Vec<Kind>, rounds: usize) -> Self {
        Self { dir: dir.to_owned(), stores, rounds: rounds.max(1), filled: BTreeMap::new() }
    }

    /// Runs a workload. In each round every store has its turn, another one first each time.
    pub fn work(&mut self, work: &Work) -> Rounds {
        let mut rounds = Rounds::new();
        let mut stores: Vec<Kind> = self.stores.iter().copied().filter(|kind| work.takes(*kind)).collect();
        for round in 0..self.rounds {
            for kind in &stores {
                let figures = self.turn(work.plan, *kind, round).map_err(|error| error.to_string());
                // A long run that is cut short has told something.
                match &figures {
                    Ok(figures) => {
                        eprintln!("{}: {}, round {}: {figures:?}", work.name, kind.name(), round + 1)
                    }
                    Err(why) => eprintln!("{}: {}, round {}: {why}", work.name, kind.name(), round + 1),
                }
                rounds.entry(*kind).or_default().push(figures);
            }
            if !stores.is_empty() {
                stores.rotate_left(1);
            }
        }
        rounds
    }

    fn turn(&mut self, plan: Plan, kind: Kind, round: usize) -> Result<Figures> {
        match plan {
            Plan::Write(load) => {
                let dir = self.dir.join("written");
                fs::create_dir(&dir)?;
                let figures = child(kind, &dir, Step::Write(load));
                fs::remove_dir_all(&dir)?;
                figures
            }
            Plan::Read { rested } => {
                let (name, data) = if rested { ("rested", RESTED) } else { ("data", DATA) };
                let (dir, mut figures) = self.filled(kind, name, data)?;
                system::evict(&dir)?;
                figures.extend(child(kind, &dir, Step::Read(data))?);
                Ok(figures)
            }
            Plan::Open { killed } => {
                let (dir, _) = self.filled(kind, "data", DATA)?;
                if killed {
                    kill(kind, &dir, round)?;
                }
                system::evict(&dir)?;
                child(kind, &dir, Step::Open(DATA))
            }
            Plan::Idle => {
                let mut weigh = |name, data| {
                    let (dir, _) = self.filled(kind, name, data)?;
                    child(kind, &dir, Step::Weigh(data))?
                        .remove("bytes")
                        .ok_or("the child told no weight".into())
                };
                let (all, one): (f64, f64) = match (weigh("idle", IDLE), weigh("one", ONE)) {
                    (Ok(all), Ok(one)) => (all, one),
                    (Err(error), _) | (_, Err(error)) => return Err(error),
                };
                let per_log = (all - one) / IDLE.logs as f64;
                Ok(Figures::from([
                    ("bytes per log".into(), per_log),
                    ("MiB".into(), all / f64::from(1 << 20)),
                ]))
            }
        }
    }

    /// A store with data, made when it is first asked for.
    fn filled(&mut self, kind: Kind, name: &str, data: Data) -> Result<(PathBuf, Figures)> {
        let dir = self.dir.join(format!("{name}-{}", kind.name()));
        if let Some(figures) = self.filled.get(&dir) {
            return Ok((dir, figures.clone()));
        }
        if dir.exists() {
            return Err("its data could not be made".into());
        }
        fs::create_dir(&dir)?;
        let figures = child(kind, &dir, Step::Fill(data))?;
        self.filled.insert(dir.clone(), figures.clone());
        Ok((dir, figures))
    }
}

fn command(kind: Kind, dir: &Path, step: Step) -> Result<Command> {
    let task = serde_json::to_string(&Task { kind, dir: dir.to_owned(), step })?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--child").arg(task).stdin(Stdio::null()).stdout(Stdio::piped());
    Ok(command)
}

/// Has a child carry out a step.
fn child(kind: Kind, dir: &Path, step: Step) -> Result<Figures> {
    let output = command(kind, dir, step)?.output()?;
    let said: std::result::Result<Figures, String> = match serde_json::from_slice(&output.stdout) {
        Ok(said) => said,
        Err(_) => {
            return Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)).into());
        }
    };
    Ok(said?)
}

/// Has a child append, and kills it.
fn kill(kind: Kind, dir: &Path, round: usize) -> Result<()> {
    let mut child = command(kind, dir, Step::Die(round as u64))?.spawn()?;
    let mut said = String::new();
    BufReader::new(child.stdout.take().ok_or("no pipe")?).read_line(&mut said)?;
    child.kill()?;
    child.wait()?;
    if said.trim_end() == READY {
        Ok(())
    } else {
        Err(format!("it ended before it was killed: {said}").into())
    }
}
