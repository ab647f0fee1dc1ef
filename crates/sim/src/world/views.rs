//! Views, and the stores that are made of them.

use std::sync::Arc;
use std::time::Duration;

use brooklet::io::{ManualClock, MemVolume, Rng};
use brooklet::{Bytes, Error, LogInfo, View, WalkItem};

use super::World;
use crate::checker::{CheckCounts, Checker};
use crate::model::{self, Log, Logs, Moment};
use crate::oracle::{Violation, violated};
use crate::plan::Shape;

/// A view, and its contents when it was taken.
pub(super) struct Viewed {
    view: View,
    /// The contents, as the view shows them.
    shown: Logs,
    /// The state of the store whose contents these are. `None` if several states look the same:
    /// they may differ later, by the ages of their entries.
    state: Option<Logs>,
}

impl World {
    /// Takes a view: it must show the state of one moment since the call. Reads the previous view
    /// once more, which must show the same as before, and makes a store of it now and then.
    pub(super) fn view(&self) -> Result<(), Violation> {
        let (store, before) = (self.open_store(), self.state().views.pop_front());
        if let Some(before) = before {
            self.look_again(&before)?;
            if let Some(state) = before.state.as_ref().filter(|_| self.state().rng.percent(50)) {
                self.copy(&before.view, state, false)?;
            }
        }
        let outer = self.watch();
        let view = store.view();
        // Ages count from the view's own time: time may have passed since its position in the log.
        let moment = Moment::at(view.as_ref().map_or_else(|_| self.now(), |view| view.taken_ms()));
        let states = self.watched(outer)?;
        // Of logs in memory, the view shows the last dump.
        let states = self.expectation()?.in_runs(&states);
        let (shown, view) = match view.and_then(|view| Ok((all_of(&view)?, view))) {
            Ok(seen) => seen,
            Err(error) => return self.excuse(Err::<(), _>(error)),
        };
        let same: Vec<&Logs> = states.iter().filter(|state| model::shown(state, &moment) == shown).collect();
        let Some(first) = same.first() else {
            let nearest = model::shown(states.last().expect("the first is there"), &moment);
            let difference = model::difference(&shown, &nearest);
            return violated(format!("a view shows what was there at no moment:\n{difference}"));
        };
        let state = same.iter().all(|other| other == first).then(|| (*first).clone());
        self.state().views.push_back(Viewed { view, shown, state });
        Ok(())
    }

    fn look_again(&self, Viewed { view, shown, .. }: &Viewed) -> Result<(), Violation> {
        match all_of(view) {
            Ok(again) if again == *shown => Ok(()),
            Ok(again) => {
                let difference = model::difference(&again, shown);
                violated(format!("a view shows what it did not show before:\n{difference}"))
            }
            Err(error) => self.excuse(Err::<(), _>(error)),
        }
    }

    /// Makes a store of a view that shows `state`. The original may have gone on since. The new
    /// store must have this state, also after its own checkpoints. `beside`: the view is of a
    /// reader beside the store, which may come too late.
    pub(super) fn copy(&self, view: &View, state: &Logs, beside: bool) -> Result<(), Violation> {
        if self.tolerance().damaged {
            return Ok(());
        }
        let mut rng = Rng::new(self.state().rng.next());
        let shape = Shape { apart: false, capacity: 0, ..self.plan.shape };
        let (clock, disk) = (Arc::new(ManualClock::default()), MemVolume::new(rng.next()));
        clock.advance(Duration::from_millis(self.now()));
        let options = shape.options(&clock, rng.next());
        let copy = match options.copy_on(Arc::new(disk.clone()), view) {
            Ok(copy) => copy,
            Err(Error::Replaced { .. }) if beside => return Ok(()),
            Err(error) => return self.excuse(Err::<(), _>(error)),
        };
        self.tell(|| "  a copy of the last view lives on".into());
        let mut checker = Checker { shape: &shape, rng, counts: CheckCounts::default() };
        let lived = checker.live_on(copy, &clock, &disk, state);
        lived.map_err(|Violation(what)| Violation(format!("the copy of a view: {what}")))
    }
}

/// Reads everything that a view shows.
fn all_of(view: &View) -> Result<Logs, Error> {
    let (mut logs, mut key) = (Logs::new(), Bytes::new());
    for walked in view.walk("")? {
        match walked? {
            WalkItem::Log(LogInfo { key: log, bounds, retention, .. }) => {
                key = log.into();
                let log = Log { first: bounds.first, retention, ..Log::default() };
                logs.insert(key.clone(), log.into());
            }
            WalkItem::Entry(entry) => {
                let log = logs.get_mut(&key).expect("a log comes before its entries");
                Arc::make_mut(log).entries.push(entry.payload);
            }
        }
    }
    Ok(logs)
}
