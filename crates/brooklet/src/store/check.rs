//! Checking a closed store: every checksum and every invariant, and that reachable and free space
//! make up the whole.

use std::path::Path;
use std::sync::Arc;

use brooklet_io::Volume;

use crate::engine::recovery::{self, Opened};
use crate::error::Error;
use crate::format::run_entry::head_key;
use crate::model::progress::Progress;
use crate::model::resolve;
use crate::options::{Create, OffloadReader, Options};
use crate::read::ReadView;
use crate::read::scan::{Listed, LogInfo, Logs};
use crate::volume::{self, Volumes};
use std::ops::ControlFlow;

type OnProgress<'a> = &'a mut dyn FnMut(Progress) -> ControlFlow<()>;

/// Something that is wrong with a store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// Whether the store still answers rightly in spite of it, because another copy serves.
    pub harmless: bool,
    /// What is wrong, and where.
    pub what: String,
}

/// What a check found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CheckReport {
    /// What is wrong; empty for a sound store.
    pub findings: Vec<Finding>,
    /// Blocks of the ring that were checked.
    pub blocks: u64,
    /// Runs that were checked.
    pub runs: u64,
    /// Logs that were walked through.
    pub logs: u64,
    /// Entries that were read.
    pub entries: u64,
    /// Other logs, which damage in the ring may have touched: they read as they were before it.
    pub doubtful: u64,
}

impl CheckReport {
    /// Whether nothing at all is wrong.
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    fn add(&mut self, harmless: bool, what: impl Into<String>) {
        self.findings.push(Finding { harmless, what: what.into() });
    }
}

/// Checks the store at `path`, which must not be open for writing, and reports to `progress`.
///
/// # Errors
/// Only where the check itself cannot go on: the store is open elsewhere, is no store, or the
/// device fails; [`Error::Cancelled`] where `progress` returned `Break`. Damage is no error but a
/// finding.
pub fn check(
    path: impl AsRef<Path>,
    progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<CheckReport, Error> {
    Options::new().check(path, progress)
}

/// Checks the store on a volume.
pub fn check_volume(
    volume: Arc<dyn Volume>,
    mut progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<CheckReport, Error> {
    check_volumes(&Volumes { data: volume, ring: None }, None, &mut progress)
}

/// Checks the store on a volume whose ring lies on another.
#[doc(hidden)]
pub fn check_volume_with_ring(
    volume: Arc<dyn Volume>,
    ring: Arc<dyn Volume>,
    mut progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<CheckReport, Error> {
    check_volumes(&Volumes { data: volume, ring: Some(ring) }, None, &mut progress)
}

impl Options {
    /// [`check`]s the store at `path`, whose ring is [where these options say](Self::ring_at).
    pub fn check(
        self,
        path: impl AsRef<Path>,
        mut progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<CheckReport, Error> {
        let (path, options) = self.read_only(true).create(Create::Never).settled(path.as_ref())?;
        let found = volume::open(&path, &options)?;
        check_volumes(&found, options.offload_reader, &mut progress)
    }

    /// The same, of the store on a volume, whose ring may lie on another.
    #[doc(hidden)]
    pub fn check_on(
        self,
        data: Arc<dyn Volume>,
        ring: Option<Arc<dyn Volume>>,
    ) -> Result<CheckReport, Error> {
        check_volumes(&Volumes { data, ring }, self.offload_reader, &mut Progress::ignore)
    }
}

fn check_volumes(
    volumes: &Volumes,
    offload_reader: Option<OffloadReader>,
    progress: OnProgress<'_>,
) -> Result<CheckReport, Error> {
    let options = Options::new().read_only(true).create(Create::Never);
    let options = Options { offload_reader, threads: false, ..options };
    let mut report = CheckReport::default();
    let opened = match recovery::load(volumes, &options) {
        Ok(opened) => opened,
        Err(error @ Error::Damaged { .. }) => {
            report.add(false, error.to_string());
            return Ok(report);
        }
        Err(error) => return Err(error),
    };
    for (copy, slot) in opened.slots.iter().enumerate() {
        if let Some(why) = slot.flaw() {
            report.add(true, format!("copy {copy} of the superblock: {why}; the others serve"));
        }
    }
    for copy in opened.label.iter().flat_map(|label| &label.stale) {
        report.add(true, format!("copy {copy} of the ring's label is damaged or older; the others serve"));
    }
    report.blocks = opened.recovery.blocks;
    if let Some(lost) = &opened.state.lost {
        report.add(false, lost.error().to_string());
    }
    let total = opened.state.runs.iter().map(|r| r.len() * 2).sum::<u64>().max(1);
    check_runs(&opened, &mut report, total, progress)?;
    check_logs(&opened, &mut report);
    // Nothing is left to cancel.
    let _ = progress(Progress::of_bytes(total, total));
    Ok(report)
}

fn check_runs(
    opened: &Opened,
    report: &mut CheckReport,
    total: u64,
    progress: OnProgress<'_>,
) -> Result<(), Error> {
    let mut before = 0;
    let merging = opened.state.runs.merging();
    for run in opened.state.runs.iter() {
        // What is being made of others ends where those begin to count.
        let end =
            merging.filter(|merging| merging.into == run.meta.id).map(|merging| head_key(&merging.from));
        let report_done = &mut |done| progress(Progress::of_bytes(before + done, total));
        match run.verify(end.as_deref(), report_done) {
            Err(Error::Cancelled { .. }) => return Err(Error::Cancelled { what: "the check" }),
            Err(error) => report.add(false, error.to_string()),
            Ok(()) => {}
        }
        before += run.len();
        report.runs += 1;
    }
    let used: u64 = opened.state.runs.iter().map(|r| r.bytes()).sum::<u64>()
        + opened.manifest.map_or(0, |extent| extent.len);
    let heap = opened.heap.end() - opened.superblock.heap_offset();
    if used + opened.heap.free_bytes() != heap {
        report.add(
            false,
            format!("{used} bytes in use and {} free do not make {heap}", opened.heap.free_bytes()),
        );
    }
    Ok(())
}

/// Reads every log to its end, and compares what lives with what the manifest says. What is known
/// to be damaged is not told again.
fn check_logs(opened: &Opened, report: &mut CheckReport) {
    let (logs, runs) = Logs::take(&opened.state, Listed::new(b"", b""), Vec::new(), 0);
    let logs = match logs.with_runs(&runs) {
        Ok(logs) => logs,
        Err(error) => return report.add(false, error.to_string()),
    };
    let mut live = vec![0; runs.len()];
    let known = |report: &CheckReport, error: &Error| {
        let error = error.to_string();
        report.findings.iter().any(|finding| finding.what == error)
    };
    let lost = opened.state.lost.as_ref().map(|lost| lost.place());
    for log in logs {
        let mut entries = 0;
        let mut walk = |log: LogInfo| {
            let doubt = opened.state.doubt(&log.key).is_some();
            count_live(opened, &log.key, &mut live)?;
            let view = ReadView::take(&opened.state, &log.key, &.., 0)?;
            let mut all = view.entries(&log.key, &..)?;
            let read = all.try_for_each(|entry| entry.map(|_| entries += 1));
            match read {
                // That is told of all such logs together.
                Err(Error::Damaged { place, .. }) if doubt && lost.as_ref() == Some(&place) => Ok(true),
                read => read.map(|()| doubt),
            }
        };
        match log.and_then(&mut walk) {
            Ok(doubt) => {
                report.logs += u64::from(!doubt);
                report.doubtful += u64::from(doubt);
            }
            Err(error) if known(report, &error) => {}
            Err(error) => report.add(false, error.to_string()),
        }
        report.entries += entries;
    }
    if report.findings.iter().any(|finding| !finding.harmless) {
        return;
    }
    for (run, live) in runs.iter().zip(live) {
        let said = run.meta.entries - run.dead();
        if live > said {
            let id = run.meta.id;
            report.add(false, format!("run {id} is said to hold {said} live entries and holds {live}"));
        }
    }
}

/// Adds what each run holds of a log's entries that live as far as the runs know.
fn count_live(opened: &Opened, key: &[u8], live: &mut [u64]) -> Result<(), Error> {
    let runs = &opened.state.runs;
    let heads = runs.heads(key, None, u64::MAX)?;
    for (i, part) in resolve(heads.iter().map(|(_, head)| head.piece)).parts {
        let at = runs.iter().position(|run| run.meta.id == heads[i].0.meta.id);
        live[at.expect("heads come from the runs")] += part.end - part.start;
    }
    Ok(())
}
