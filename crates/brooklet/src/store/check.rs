//! Checks of a closed store: the check verifies every checksum and every invariant, and that
//! reachable and free space make up the whole.

use std::path::Path;
use std::sync::Arc;

use brooklet_io::Volume;

use crate::engine::recovery::{self, Opened};
use crate::error::Error;
use crate::format::run_entry::head_key;
use crate::model::progress::Progress;
use crate::model::resolve;
use crate::options::offload::OffloadReader;
use crate::options::{Create, Options};
use crate::read::ReadView;
use crate::read::asked::Asked;
use crate::read::scan::{Listed, LogInfo, Logs};
use crate::volume::{self, Volumes};
use std::ops::ControlFlow;

type OnProgress<'a> = &'a mut dyn FnMut(Progress) -> ControlFlow<()>;

/// A defect of a store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// Whether the store still answers correctly, because another copy serves.
    pub harmless: bool,
    /// Description of the defect and its place.
    pub what: String,
}

/// The result of a check.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CheckReport {
    /// Defects; empty for a sound store.
    pub findings: Vec<Finding>,
    /// Number of blocks of the ring that were checked.
    pub blocks: u64,
    /// Number of runs that were checked.
    pub runs: u64,
    /// Number of logs that were read to their ends.
    pub logs: u64,
    /// Number of entries that were read.
    pub entries: u64,
    /// Number of other logs, which damage in the ring may have changed. They read as they were
    /// before the damage.
    pub doubtful: u64,
}

impl CheckReport {
    /// Returns whether the check found no defect.
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    fn add(&mut self, harmless: bool, what: impl Into<String>) {
        self.findings.push(Finding { harmless, what: what.into() });
    }
}

/// Checks the store at `path` and reports to `progress`. The store must not be open for writing.
///
/// # Errors
/// An error only if the check itself cannot continue: the store is open elsewhere, the path holds
/// no store, or the device fails. [`Error::Cancelled`] if `progress` returned `Break`. Damage is
/// not an error but a finding.
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

/// Checks the store on a volume, with its ring on another volume.
#[doc(hidden)]
pub fn check_volume_with_ring(
    volume: Arc<dyn Volume>,
    ring: Arc<dyn Volume>,
    mut progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<CheckReport, Error> {
    check_volumes(&Volumes { data: volume, ring: Some(ring) }, None, &mut progress)
}

impl Options {
    /// Checks the store at `path`, like [`check`], with the ring at [the place in these
    /// options](Self::ring_at).
    pub fn check(
        self,
        path: impl AsRef<Path>,
        mut progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<CheckReport, Error> {
        let (path, options) = self.read_only(true).create(Create::Never).settled(path.as_ref())?;
        let found = volume::open(&path, &options)?;
        check_volumes(&found, options.offload_reader, &mut progress)
    }

    /// Checks the store on a volume. Its ring may be on another volume.
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
            report
                .add(true, format!("copy {copy} of the superblock: {why}; the store uses the other copies"));
        }
    }
    for copy in opened.label.iter().flat_map(|label| &label.stale) {
        report.add(
            true,
            format!("copy {copy} of the ring's label is damaged or older; the store uses the other copies"),
        );
    }
    report.blocks = opened.recovery.blocks;
    if let Some(lost) = &opened.state.lost {
        report.add(false, lost.error().to_string());
    }
    let total = opened.state.runs.iter().map(|r| r.len() * 2).sum::<u64>().max(1);
    check_runs(&opened, &mut report, total, progress)?;
    check_logs(&opened, &mut report);
    check_reads(&opened, &mut report);
    // The check is done, so a `Break` has no effect.
    let _ = progress(Progress::of_bytes(total, total));
    Ok(report)
}

/// Adds a finding if the device did not read all sectors of the ring that were asked for. No log
/// may need them, but an opening for writing may fail.
fn check_reads(opened: &Opened, report: &mut CheckReport) {
    let Some(offset) = opened.recovery.first_unread else { return };
    let name = opened.volumes.ring().info().name;
    let others = match opened.recovery.unread_sectors {
        1 => String::new(),
        sectors => format!(", and {} other sectors of the ring", sectors - 1),
    };
    let what = format!("the device does not read the sector at offset {offset} of {name}{others}");
    report.add(false, format!("{what}; an opening for writing may fail"));
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
        // A run that is being merged from others ends where those runs begin to count.
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
            format!(
                "{used} bytes in use and {} bytes free do not add up to the {heap} bytes of the heap",
                opened.heap.free_bytes()
            ),
        );
    }
    Ok(())
}

/// Reads every log to its end, and compares the live entries with the manifest. Skips damage that
/// is known already.
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
            let view = ReadView::take(&opened.state, &log.key, &Asked::ALL, 0)?;
            let mut all = view.entries(&log.key, &Asked::ALL)?;
            let read = all.try_for_each(|entry| entry.map(|_| entries += 1));
            match read {
                // One finding reports the damage of all such logs together.
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
        let said = run.meta.entries - opened.state.runs.dead(run);
        if live > said {
            let id = run.meta.id;
            report.add(false, format!("run {id} holds {live} live entries, and the manifest records {said}"));
        }
    }
}

/// Adds the number of a log's live entries in each run, as far as the runs know.
fn count_live(opened: &Opened, key: &[u8], live: &mut [u64]) -> Result<(), Error> {
    let runs = &opened.state.runs;
    let heads = runs.heads(key, None, u64::MAX)?;
    for (i, part) in resolve(heads.iter().map(|(_, head)| head.piece)).parts {
        let at = runs.iter().position(|run| run.meta.id == heads[i].0.meta.id);
        live[at.expect("heads come from the runs")] += part.end - part.start;
    }
    Ok(())
}
