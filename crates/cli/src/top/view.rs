//! A store's looks as lines of text, with sparklines of those before.

use std::collections::VecDeque;
use std::fmt::{self, Display};
use std::time::Duration;

use super::sample::Sample;
use crate::colours::{bad, warning};
use crate::time::Span;

/// Looks that are kept for the sparklines.
const KEPT: usize = 240;
/// Columns in front of a sparkline.
const FIGURES: usize = 30;
const SHORTEST: usize = 10;
const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The samples so far.
#[derive(Default)]
pub struct View {
    looks: VecDeque<Sample>,
}

impl View {
    pub fn push(&mut self, sample: Sample) {
        if self.looks.len() == KEPT {
            self.looks.pop_front();
        }
        self.looks.push_back(sample);
    }

    pub fn last(&self) -> Option<&Sample> {
        self.looks.back()
    }

    /// The last look, `width` columns wide; `silent` is how long nothing has been heard. With
    /// `colours`, trouble is red or yellow.
    pub fn page(&self, name: &str, width: usize, silent: Option<Duration>, colours: bool) -> String {
        match self.last() {
            Some(last) => Page { view: self, name, last, width, silent, colours }.to_string(),
            None => format!("{name}: looking\n"),
        }
    }

    /// One figure of the last looks, as many as there is room for; the largest of them is as high
    /// as it gets.
    fn spark(&self, width: usize, of: impl Fn(&Sample) -> f64) -> String {
        let room = width.saturating_sub(FIGURES).max(SHORTEST);
        let values: Vec<f64> = self.looks.iter().rev().take(room).map(of).collect();
        let most = values.iter().copied().fold(0.0, f64::max);
        let step =
            |value: &f64| STEPS[(value / most.max(f64::MIN_POSITIVE) * 7.0).round().clamp(0.0, 7.0) as usize];
        values.iter().rev().map(step).collect()
    }
}

struct Page<'a> {
    view: &'a View,
    name: &'a str,
    last: &'a Sample,
    width: usize,
    silent: Option<Duration>,
    colours: bool,
}

impl Display for Page<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, last, silent, .. } = self;
        write!(f, "{name}")?;
        if last.stopped {
            let stopped = bad("THE STORE STOPPED WRITING: open it again").force_styling(self.colours);
            write!(f, "   {stopped}")?;
        }
        match silent {
            Some(silent) => {
                let whole = Duration::from_secs(silent.as_secs());
                let since = format!("no new metrics for {}", Span(whole));
                writeln!(f, "   {}", warning(since).force_styling(self.colours))?;
            }
            None => writeln!(f)?,
        }
        self.rates(f)?;
        self.writes(f)?;
        self.stalls(f)?;
        self.reads(f)?;
        self.maintenance(f)?;
        self.spaces(f)
    }
}

impl Page<'_> {
    /// A figure and its sparkline.
    fn line(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        shown: fn(f64) -> String,
        of: impl Fn(&Sample) -> f64,
    ) -> fmt::Result {
        writeln!(f, "  {name:<14} {:>11}  {}", shown(of(self.last)), self.view.spark(self.width, of))
    }

    fn rates(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        self.line(f, "commits/s", count, |sample| sample.commits_per_second)?;
        self.line(f, "reads/s", count, |sample| sample.reads_per_second)?;
        self.line(f, "durable, p50", micros, |sample| sample.commit_p50.unwrap_or_default())?;
        self.line(f, "durable, p99", micros, |sample| sample.commit_p99.unwrap_or_default())?;
        self.line(f, "written/s", bytes, |sample| sample.written_bytes_per_second)?;
        self.line(f, "ring", percent, |sample| sample.ring)?;
        self.line(f, "memory", percent, |sample| sample.memory)?;
        self.line(f, "stalled", percent, Sample::stalled)
    }

    fn writes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.last;
        writeln!(
            f,
            "\n  a write       {}",
            last.stages.iter().map(|s| format!("{:>10}", s.stage)).collect::<String>()
        )?;
        let row = |of: fn(&super::sample::Stage) -> Option<f64>| -> String {
            last.stages.iter().map(|stage| format!("{:>10}", of(stage).map_or("-".into(), micros))).collect()
        };
        writeln!(f, "    p50         {}", row(|stage| stage.p50))?;
        writeln!(f, "    p99         {}", row(|stage| stage.p99))?;
        let (batch, per_byte) = (figure(last.records_per_block), figure(last.written_per_byte));
        writeln!(f, "    {batch} records a block; {per_byte} bytes written for each of theirs")?;
        let (queued, flying, waiting) = (last.queued_blocks, last.writes_in_flight, last.waiting_writers);
        writeln!(
            f,
            "    now: {queued} blocks queued, {flying} writes in flight, {waiting} writers wait for room"
        )
    }

    fn stalls(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stalls = self.last.stalls.iter().filter(|stall| stall.share > 0.0 || stall.now > 0);
        let mut none = true;
        for stall in stalls {
            none = false;
            let (reason, rate, share) = (&stall.reason, count(stall.per_second), percent(stall.share));
            let line = format!(
                "waiting for {reason}: {rate} commits/s, {share} of a writer's time; {} now",
                stall.now
            );
            writeln!(f, "    {}", warning(line).force_styling(self.colours))?;
        }
        if none { writeln!(f, "    no commit had to wait for room") } else { Ok(()) }
    }

    fn reads(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.last;
        let sources = last.reads.iter().map(|(source, share)| format!("{source} {}", percent(*share)));
        let sources = sources.collect::<Vec<_>>().join(", ");
        writeln!(
            f,
            "\n  reads, by what answers them: {}",
            if sources.is_empty() { "none" } else { &sources }
        )?;
        let (p50, p99) = (last.run_lookup_p50.map(micros), last.run_lookup_p99.map(micros));
        let (p50, p99) = (p50.unwrap_or("-".into()), p99.unwrap_or("-".into()));
        let (rate, hits) = (count(last.run_lookups_per_second), last.cache_hits.map_or("-".into(), percent));
        let read = bytes(last.cache_read_bytes_per_second);
        writeln!(f, "    runs: {rate} look-ups/s, p50 {p50}, p99 {p99}; {hits} in memory, {read}/s read")
    }

    fn maintenance(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.last;
        let at_work = match (last.checkpointing, last.compacting) {
            (true, true) => "checkpoint and compaction go on",
            (true, false) => "a checkpoint goes on",
            (false, true) => "a compaction goes on",
            (false, false) => "at rest",
        };
        let share = percent(last.maintenance);
        let (checkpoints, compactions) = (last.checkpoints, last.compactions);
        writeln!(
            f,
            "\n  maintenance: {at_work}, {share} of a core; {checkpoints} checkpoints, {compactions} compactions"
        )?;
        let (runs, size, heap) = (last.runs, bytes(last.run_bytes as f64), bytes(last.heap_bytes as f64));
        let dead = last.dead_entries.map_or("-".into(), percent);
        let free = last.heap_free.map_or("-".into(), percent);
        writeln!(f, "    {runs} runs of {size}, {dead} of their entries dead; heap of {heap}, {free} free")
    }

    fn spaces(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, space) in self.last.spaces.iter().enumerate() {
            let head = if i == 0 { "\n  spaces\n" } else { "" };
            let (name, memory) = (&space.space, space.memory_bytes);
            let (appended, read) = (count(space.appended_per_second), count(space.reads_per_second));
            let refused = count(space.refused_per_second);
            write!(f, "{head}    {name:<20} {appended} entries/s, {read} reads/s, {refused} refused/s")?;
            let memory =
                if memory > 0 { format!(", {} in memory", bytes(memory as f64)) } else { String::new() };
            writeln!(f, "{memory}")?;
        }
        Ok(())
    }
}

/// Three digits and a letter.
fn scaled(value: f64, steps: &[(f64, &str)]) -> String {
    let (size, unit) = steps.iter().rev().find(|(size, _)| value >= *size * 0.9995).unwrap_or(&steps[0]);
    let value = value / size;
    let digits = if value >= 99.95 || value == 0.0 { 0 } else { 1 };
    format!("{value:.digits$}{unit}")
}

fn count(value: f64) -> String {
    scaled(value, &[(1.0, ""), (1e3, " k"), (1e6, " M"), (1e9, " G")])
}

fn bytes(value: f64) -> String {
    scaled(value, &[(1.0, " B"), (1e3, " kB"), (1e6, " MB"), (1e9, " GB"), (1e12, " TB")])
}

fn micros(value: f64) -> String {
    scaled(value, &[(1.0, " µs"), (1e3, " ms"), (1e6, " s")])
}

fn percent(value: f64) -> String {
    format!("{:.0} %", value * 100.0)
}

fn figure(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.1}"))
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Space, Stage, Stall};
    use super::*;

    #[test]
    fn figures_have_three_digits_and_a_unit() {
        let shown = [0.0, 0.4, 7.25, 99.96, 999.0, 999.9, 1234.0, 56_789_000.0].map(count);
        assert_eq!(shown, ["0", "0.4", "7.2", "100", "999", "1.0 k", "1.2 k", "56.8 M"]);
        assert_eq!([bytes(0.0), bytes(123_456.0)], ["0 B", "123 kB"]);
        assert_eq!([micros(12.0), micros(4_500_000.0), percent(0.126)], ["12.0 µs", "4.5 s", "13 %"]);
    }

    #[test]
    fn a_page_tells_what_is_slow_and_why() {
        let mut view = View::default();
        assert_eq!(view.page("s.prom", 80, None, false), "s.prom: looking\n");
        for n in 0..300 {
            view.push(Sample { commits_per_second: f64::from(n), ..Sample::default() });
        }
        let stall = |reason: &str, share| Stall { reason: reason.into(), per_second: 9.0, share, now: 0 };
        let space = "games".to_owned();
        view.push(Sample {
            commits_per_second: 150.0,
            stages: vec![Stage { stage: "write", p50: Some(120.0), p99: None }],
            stalls: vec![stall("ring", 0.4), stall("heap", 0.0)],
            reads: vec![("active".into(), 0.9), ("runs".into(), 0.1)],
            spaces: vec![Space {
                space,
                appended_per_second: 5.0,
                reads_per_second: 0.0,
                refused_per_second: 0.0,
                memory_bytes: 5_000_000,
            }],
            stopped: true,
            ..Sample::default()
        });
        let page = view.page("s.prom", 50, Some(Duration::from_secs(7)), false);
        let has = |part: &str| assert!(page.contains(part), "{part}\n{page}");
        has("s.prom   THE STORE STOPPED WRITING: open it again   no new metrics for 7s\n");
        has("waiting for ring: 9.0 commits/s, 40 % of a writer's time; 0 now");
        has("active 90 %, runs 10 %");
        has("games                5.0 entries/s, 0 reads/s, 0 refused/s, 5.0 MB in memory");
        assert!(!page.contains("heap:") && !page.contains("no commit had to wait"), "{page}");
        let spark = page.lines().find(|line| line.contains("commits/s")).unwrap();
        assert_eq!(spark.chars().filter(|c| STEPS.contains(c)).count(), 20, "as wide as there is room");
        assert!(spark.ends_with("█▅"), "{spark}");
        assert_eq!(view.looks.len(), KEPT);
        let coloured = view.page("s.prom", 50, Some(Duration::from_secs(7)), true);
        assert!(
            coloured.contains("\x1b[31m\x1b[1mTHE STORE STOPPED") && !page.contains('\x1b'),
            "{coloured:?}"
        );
        assert!(coloured.contains("\x1b[33mwaiting for ring") && coloured.contains("\x1b[33mno new"));
        assert_eq!(console::strip_ansi_codes(&coloured), page);
    }
}
