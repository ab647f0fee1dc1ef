//! `top`: shows a store at work, live, by the metrics that its process writes to a file. `text`
//! reads the file, `sample` computes rates of two moments, `view` shows them, and `keys` ends it.

mod keys;
mod sample;
mod text;
mod view;

use std::fs;
use std::io::{ErrorKind, IsTerminal, stdout};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use console::Term;
use keys::Keys;
use sample::Sample;
use serde::Serialize;
use text::Told;
use view::View;

use crate::failure::{Failure, Kind};
use crate::output::Output;
use crate::signals;
use crate::time::age;

/// Time between two looks at whether the file is a new one.
const TICK: Duration = Duration::from_millis(50);
/// After so long without news it is said.
const SILENT: Duration = Duration::from_secs(3);

/// Arguments of `brooklet top`.
#[derive(clap::Args)]
pub struct Args {
    /// The metrics file of the store's process: the FILE of `--metrics FILE`, or of
    /// `Options::metrics_file` in another program
    file: PathBuf,
    /// Least time between two updates: 1s, 500ms
    #[arg(long, value_parser = every, default_value = "1s")]
    every: Duration,
    /// Number of updates after which to stop
    #[arg(long)]
    count: Option<u64>,
}

/// Rates need a time that is not 0.
fn every(text: &str) -> Result<Duration, String> {
    age(text).and_then(|time| if time.is_zero() { Err("use 1ms or more".to_owned()) } else { Ok(time) })
}

/// A look as a page, and as a document.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    sample: &'a Sample,
    #[serde(skip)]
    page: &'a str,
}

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.page)
    }
}

/// Shows look after look, until the store is closed, or q or Esc is pressed.
pub fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let terminal = (!out.is_json() && stdout().is_terminal()).then(Term::stdout);
    let name = args.file.display().to_string();
    let (mut before, mut view, mut looks) = (first(&args.file)?, View::default(), 0);
    let keys = terminal.as_ref().and_then(|_| Keys::new());
    if let Some(terminal) = &terminal {
        signals::listen_quietly()?;
        terminal.clear_screen()?;
    }
    while args.count.is_none_or(|count| looks < count) {
        signals::check_done()?;
        let pause = TICK.min(args.every);
        match &keys {
            Some(keys) if keys.end_within(pause) => return Ok(()),
            Some(_) => {}
            None => thread::sleep(pause),
        }
        let Some((written, told)) = newest(&args.file)? else {
            return out.line(format_args!("{name}: the store was closed"));
        };
        if written < before.0 {
            // The clock went back: the next rates are those since now.
            before = (written, told);
            continue;
        }
        let passed = written.duration_since(before.0).unwrap_or_default();
        let is_new = passed >= args.every;
        if is_new {
            view.push(Sample::between(&before.1, &told, passed.as_secs_f64()));
            before = (written, told);
            looks += 1;
        }
        let silent = before.0.elapsed().ok().filter(|silent| *silent > SILENT.max(args.every * 2));
        let colours = terminal.is_some() && console::colors_enabled();
        let width = terminal.as_ref().map_or(100, |terminal| usize::from(terminal.size().1));
        match &terminal {
            Some(terminal) if is_new || silent.is_some() => {
                terminal.move_cursor_to(0, 0)?;
                for line in view.page(&name, width, silent, colours).lines() {
                    terminal.clear_line()?;
                    terminal.write_line(&console::truncate_str(line, width, "…"))?;
                }
                terminal.clear_to_end_of_screen()?;
                if keys.is_some() {
                    terminal.write_line("\n  q or Esc ends this display")?;
                }
            }
            None if is_new => {
                let page = view.page(&name, width, silent, colours);
                let sample = view.last().expect("it was just taken");
                out.put(&Shown { sample, page: &page })?;
                out.flush()?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn first(file: &Path) -> Result<(SystemTime, Told), Failure> {
    newest(file)?.ok_or_else(|| {
        let why = "an open store writes the file if --metrics or Options::metrics_file names it";
        Failure::new(Kind::NotFound, format!("{} does not exist: {why}", file.display()))
    })
}

/// Returns the last written metrics, and their time. `None` if there is no file.
fn newest(file: &Path) -> Result<Option<(SystemTime, Told)>, Failure> {
    let reading = || Failure::io(format!("reading {}", file.display()));
    let written = fs::metadata(file).and_then(|metadata| metadata.modified());
    let read = written.and_then(|written| Ok((written, fs::read(file)?)));
    let (written, text) = match read {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        read => read.map_err(reading())?,
    };
    let told = std::str::from_utf8(&text).ok().and_then(Told::parse);
    let told = told.ok_or_else(|| Failure::malformed(file, "these are not the metrics of a store"))?;
    Ok(Some((written, told)))
}
