//! A round: the writing process is started, listened to, and killed, or asked to close the store.

use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use brooklet::io::Rng;

use super::acks::{Line, Work};
use super::story::Story;
use super::{Args, Plan};
use crate::failure::{Failure, Kind};
use crate::time::Span;

/// The longest wait for a store to be closed.
const PATIENCE: Duration = Duration::from_secs(120);

/// How a round ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By SIGKILL, so long after it was given its logs.
    Kill(Duration),
    /// By closing the store.
    Close(Duration),
}

impl End {
    /// By chance: mostly a kill, some of them while the store is hardly open.
    pub fn by_chance(rng: &mut Rng, every: Duration) -> Self {
        let mut part = |whole: Duration| whole.mul_f64(rng.below(1000) as f64 / 1000.0);
        let (early, long) = (part(Duration::from_millis(300)), part(every.mul_f64(1.8)) + every.mul_f64(0.1));
        match rng.below(8) {
            0 => End::Close(long),
            1..3 => End::Kill(early.min(every)),
            _ => End::Kill(long),
        }
    }
}

/// What a round told.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Operations of each writer that are done for good, and the payload bytes they brought.
    pub done: Vec<(u64, u64)>,
    pub opened: Option<Duration>,
    pub first: Option<Duration>,
    pub work: Work,
    pub ring_written: u64,
    pub wrong: Option<String>,
    pub closed: bool,
}

impl Told {
    fn take(&mut self, line: Line) {
        match line {
            Line::Opened(took) => self.opened = Some(took),
            Line::First(took) => self.first = Some(took),
            Line::Done { writer, operations, bytes } => match self.done.get_mut(writer as usize) {
                Some(done) => *done = (operations, bytes),
                None => self.wrong = Some(format!("the writing process reported {writer} as a writer")),
            },
            Line::Figures(work, ring) => (self.work, self.ring_written) = (work, ring),
            Line::Wrong(what) => self.wrong = Some(what),
            Line::Closed => self.closed = true,
        }
    }

    /// Operations of all writers.
    pub fn operations(&self) -> u64 {
        self.done.iter().map(|(operations, _)| operations).sum()
    }

    /// Payload bytes of all writers.
    pub fn bytes(&self) -> u64 {
        self.done.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// Lets a round happen. `progress` is called each second.
pub fn run(
    plan: &Plan<'_>,
    round: u16,
    stories: &[Story],
    end: End,
    progress: impl Fn(&Told),
) -> Result<Told, Failure> {
    let mut child = command(plan.args, plan.store, plan.seed, round)?
        .spawn()
        .map_err(Failure::io("starting the writing process"))?;
    let (input, output) = (child.stdin.take().expect("asked for"), child.stdout.take().expect("asked for"));
    let told = Mutex::new(Told { done: vec![(0, 0); stories.len()], ..Told::default() });
    let status = thread::scope(|scope| {
        let (ended, ends) = channel();
        scope.spawn(|| {
            listen(BufReader::with_capacity(64 << 10, output), &told);
            let _ = ended.send(());
            drop(ended);
        });
        // A process that ended before it took all is looked at below.
        let input = hand_over(input, stories).ok();
        let begin = Instant::now();
        let (End::Kill(time) | End::Close(time)) = end;
        let mut listened = false;
        while !listened && begin.elapsed() < time {
            let left = time.saturating_sub(begin.elapsed()).min(Duration::from_secs(1));
            match ends.recv_timeout(left) {
                Err(RecvTimeoutError::Timeout) => progress(&told.lock().expect("no panics")),
                _ => listened = true,
            }
        }
        if matches!(end, End::Close(_)) {
            drop(input);
            let closed = listened || ends.recv_timeout(PATIENCE).is_ok();
            if !closed {
                told.lock().expect("no panics").wrong =
                    Some(format!("the store was not closed within {}", Span(PATIENCE)));
            }
        }
        // One that has ended is not harmed by it.
        child.kill().and_then(|()| child.wait())
    });
    let status = status.map_err(Failure::io("killing the writing process"))?;
    let mut told = told.into_inner().expect("no panics");
    if told.wrong.is_none() && !as_it_should(status, end, told.closed) {
        told.wrong = Some(format!("the writing process ended by itself, with {status}"));
    }
    Ok(told)
}

fn as_it_should(status: ExitStatus, end: End, closed: bool) -> bool {
    match end {
        End::Kill(_) => status.signal() == Some(9),
        End::Close(_) => status.success() && closed,
    }
}

fn command(args: &Args, store: &Path, seed: u64, round: u16) -> Result<Command, Failure> {
    let mut command = Command::new(std::env::current_exe().map_err(Failure::io("finding this program"))?);
    command.arg("soak-writer").arg(store);
    let payloads = clap::ValueEnum::to_possible_value(&args.payloads).expect("none is hidden");
    for (name, value) in [
        ("--logs", args.logs.to_string()),
        ("--seed", seed.to_string()),
        ("--round", round.to_string()),
        ("--threads", args.writers().to_string()),
        ("--payloads", payloads.get_name().to_owned()),
    ] {
        command.args([name, &value]);
    }
    if std::env::var_os("RUST_LOG").is_none() {
        // That some rounds do without direct I/O or io_uring needs no warning each time.
        command.env("RUST_LOG", "warn,brooklet_io::file=error");
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    Ok(command)
}

/// Hands the logs over as they must be. What is given back keeps the process from closing the
/// store.
fn hand_over(input: ChildStdin, stories: &[Story]) -> io::Result<ChildStdin> {
    let mut out = BufWriter::with_capacity(1 << 20, input);
    let longest = stories.iter().map(|story| story.logs.len()).max().unwrap_or(0);
    for own in 0..longest {
        stories.iter().filter_map(|story| story.logs.get(own)).try_for_each(|log| log.put(&mut out))?;
    }
    out.flush()?;
    out.into_inner().map_err(io::IntoInnerError::into_error)
}

/// Takes down the reports of the process, to its end. A line that cannot be read is a fault, and is
/// the last one.
fn listen(output: impl BufRead, told: &Mutex<Told>) {
    if let Err(failure) = take_lines(output, told) {
        told.lock().expect("no panics").wrong.get_or_insert(failure.message);
    }
}

/// Takes down each line. A last line that was cut off is none.
fn take_lines(mut output: impl BufRead, told: &Mutex<Told>) -> Result<(), Failure> {
    let mut line = String::new();
    while output.read_line(&mut line)? > 0 && line.ends_with('\n') {
        let read = line.trim_end_matches('\n').parse::<Line>();
        let read = read.map_err(|()| Failure::new(Kind::Io, format!("the writing process told {line:?}")))?;
        told.lock().expect("no panics").take(read);
        line.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_no_writing_process_writes_is_a_fault() {
        for (output, wrong) in [
            ("", false),
            ("done 0 1 2\nclosed\n", false),
            ("done 0 1 2\nrubb", false),
            ("done 0 1 2\nrubbish\n", true),
            ("done 1 2 3\n", true),
        ] {
            let told = Mutex::new(Told { done: vec![(0, 0)], ..Told::default() });
            listen(output.as_bytes(), &told);
            let told = told.into_inner().expect("no panics");
            assert_eq!(told.wrong.is_some(), wrong, "{output:?}: {:?}", told.wrong);
        }
    }
}
