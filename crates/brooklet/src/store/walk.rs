//! Walks: all entries of some logs of a view, log after log in key order.

use std::iter::FusedIterator;

use brooklet_io::Process;

use crate::error::Error;
use crate::maintenance::merge::{Holder, MergedLog, Part, next_of_all};
use crate::model::retention_state::{retention, shown};
use crate::read::scan::{LogInfo, RunLogs};
use crate::read::{Entry, given_of};
use crate::run::ahead::Ahead;
use crate::run::cursor::RunCursor;
use crate::state::spaces::FIRST;
use crate::store::view::View;

/// After this number of bytes, a thread reads ahead.
const AHEAD_FROM: usize = 1 << 20;

/// An item of a [`Walk`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WalkItem {
    /// A log. The next items, up to the next log, are its entries.
    Log(LogInfo),
    /// The next entry of the log.
    Entry(Entry),
}

/// An iterator over all entries of some logs; see [`View::walk`]. An error ends the iteration; see
/// [`View::salvage`].
pub struct Walk {
    process: Process,
    /// The logs of all runs, newest first.
    logs: Vec<RunLogs>,
    /// The longer logs of each run, chunk by chunk.
    chunks: Vec<RunCursor>,
    prefix: Vec<u8>,
    now: u64,
    /// The current log, and the parts that are left of it; the next part is the last item.
    key: Vec<u8>,
    parts: Vec<Part>,
    /// Bytes that are left until a thread may read ahead; `None` if no thread may.
    alone: Option<usize>,
    /// The thread that reads ahead.
    ahead: Option<Ahead>,
    /// The error that ends the walk, if damage may hide more data.
    end: Option<Error>,
    through: bool,
    over: bool,
}

impl Walk {
    pub(crate) fn new(view: &View, prefix: &[u8]) -> Result<Self, Error> {
        let from = prefix.max(FIRST);
        let logs = view.runs.iter().map(|run| RunLogs::new(run, from)).collect::<Result<_, _>>()?;
        Ok(Self {
            process: view.process,
            logs,
            chunks: view.runs.iter().cloned().map(RunCursor::new).collect(),
            prefix: prefix.to_vec(),
            now: view.now,
            key: Vec::new(),
            parts: Vec::new(),
            alone: view.threads.then_some(AHEAD_FROM),
            ahead: None,
            end: view.lost.as_ref().map(|lost| lost.error()),
            through: false,
            over: false,
        })
    }

    fn step(&mut self) -> Result<Option<WalkItem>, Error> {
        loop {
            if let Some(entry) = self.next_entry()? {
                return Ok(Some(WalkItem::Entry(entry)));
            }
            let next = self.logs.iter().filter_map(|log| log.current.as_ref().map(|(key, _)| key)).min();
            if !next.is_some_and(|key| key.starts_with(&self.prefix)) {
                return Ok(None);
            }
            let Some(merged) = next_of_all(&mut self.logs)? else { return Ok(None) };
            let Some(MergedLog { piece, terms, parts }) = merged.log else { continue };
            let bounds = piece.bounds.expect("the oldest run is among them, so that every log is there");
            let bounds = shown(bounds, terms.as_deref(), self.now);
            (self.key, self.parts) = (merged.key, parts);
            for part in &mut self.parts {
                // Entries that are too old are not shown.
                part.range.start = part.range.start.max(bounds.first);
            }
            let key = self.key.clone();
            return Ok(Some(WalkItem::Log(LogInfo { key, bounds, retention: retention(terms.as_deref()) })));
        }
    }

    /// Returns the next entry of the current log.
    fn next_entry(&mut self) -> Result<Option<Entry>, Error> {
        while let Some(Part { range, holder }) = self.parts.last_mut() {
            let Some(seq) = range.next() else {
                self.parts.pop();
                continue;
            };
            let Holder::Run(run, chunk) = holder else { unreachable!("all runs are merged") };
            if !chunk.range().contains(&seq) {
                *chunk = self.chunks[*run].chunk(&self.key, seq)?;
            }
            let payload = given_of(chunk, seq);
            self.passed(payload.len());
            return Ok(Some(Entry { seq, payload }));
        }
        Ok(None)
    }

    /// Counts the bytes of an entry. After enough bytes, starts the thread that reads ahead.
    fn passed(&mut self, bytes: usize) {
        let Some(alone) = &mut self.alone else { return };
        *alone = alone.saturating_sub(bytes);
        if *alone > 0 {
            return;
        }
        self.alone = None;
        let places = self.logs.iter_mut().map(|logs| (logs.run().clone(), logs.cursor().key().to_vec()));
        match Ahead::start(places.collect()) {
            Ok(ahead) => {
                for (run, logs) in self.logs.iter_mut().enumerate() {
                    logs.cursor().read_ahead(ahead.of(run));
                }
                self.ahead = Some(ahead);
            }
            Err(error) => {
                tracing::warn!(%error, "the system has no thread for a walk; it goes on more slowly");
            }
        }
    }

    /// Returns whether the walk has read all runs, so that its error, if any, is about data that is
    /// not in the runs.
    pub(crate) fn is_through(&self) -> bool {
        self.through
    }
}

impl Iterator for Walk {
    type Item = Result<WalkItem, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let here = if self.process.is_here() { Ok(()) } else { Err(Error::Forked) };
        let step = here.and_then(|()| self.step()).and_then(|walked| match walked {
            None => {
                self.through = true;
                self.end.take().map_or(Ok(None), Err)
            }
            walked => Ok(walked),
        });
        let step = step.transpose();
        self.over = !matches!(step, Some(Ok(_)));
        step
    }
}

impl FusedIterator for Walk {}

impl std::fmt::Debug for Walk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Walk(\"{}…\")", self.prefix.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use brooklet_io::MemVolume;

    use crate::{Options, Store};

    #[test]
    fn a_long_walk_has_a_thread_if_the_store_may_have_threads() {
        for threads in [true, false] {
            let options = Options::new().threads(threads).rng_seed(1);
            let store: Store = options.create_on(Arc::new(MemVolume::new(1))).unwrap();
            for log in 0..2_000u32 {
                drop(store.append(log.to_be_bytes(), [7; 1000]).unwrap());
            }
            let mut walk = store.view().unwrap().walk("").unwrap();
            assert_eq!(walk.by_ref().take(1_000).count(), 1_000);
            assert!(walk.ahead.is_none(), "half a MiB needs none");
            assert_eq!(walk.by_ref().count(), 3_000);
            assert_eq!(walk.ahead.is_some(), threads);
        }
    }
}
