//! `/api/live`: the data of the page, and the history of the last minutes.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use brooklet::io::Clock;
use brooklet::{Activity, SpaceInfo, StallReason};
use serde::Serialize;
use serde_json::{Value, json};

use super::browse::Key;
use super::point::{Point, STAGES};
use super::query::{Query, Refusal};
use super::runs::{Runs, Told};
use super::{EVERY, Watch};
use crate::hot_logs::HotLog;

/// Points that are kept: ten minutes.
const KEPT: usize = 600;
/// The busiest logs that are told.
const BUSIEST: usize = 12;
/// Most spaces that are told.
const SPACES: usize = 100;

/// Points, and the look that the next begins with.
#[derive(Default)]
pub(super) struct History(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    last: Option<(Duration, Activity)>,
    points: VecDeque<Point>,
    next: u64,
}

impl Kept {
    /// Takes a look, where the last is long enough ago.
    fn look(&mut self, activity: impl FnOnce() -> Activity, now: Duration, wall: Duration) {
        let passed = self.last.as_ref().map(|(at, _)| now.saturating_sub(*at));
        // Looks on time come a little early now and then.
        if passed.is_some_and(|passed| passed < EVERY * 9 / 10) {
            return;
        }
        let activity = activity();
        if let Some(((_, before), passed)) = self.last.as_ref().zip(passed) {
            let point = Point::between(before, &activity, passed, self.next, wall);
            self.points.push_back(point);
            self.next += 1;
            if self.points.len() > KEPT {
                self.points.pop_front();
            }
        }
        self.last = Some((now, activity));
    }
}

impl Watch {
    /// Looks at the store, if nobody has in the last second.
    pub(super) fn look(&self) {
        let now = self.now();
        self.0.hot_logs.pass(now);
        if let Some(store) = self.store() {
            let mut kept = self.0.history.0.lock().expect("no panics");
            kept.look(|| store.activity(), now, self.0.clock.wall());
        }
    }

    fn points(&self, since: Option<u64>) -> Vec<Point> {
        let kept = self.0.history.0.lock().expect("no panics");
        let is_new = |point: &&Point| since.is_none_or(|since| point.n > since);
        kept.points.iter().filter(is_new).cloned().collect()
    }

    fn extras(&self) -> Vec<Value> {
        let extras = self.0.extras.read().expect("no panics");
        extras.iter().map(|(name, extra)| json!({ "name": name, "value": extra.tell() })).collect()
    }
}

#[derive(Serialize)]
struct Live {
    version: &'static str,
    uptime_seconds: f64,
    now_at: f64,
    /// Why the server is not ready, if it is not.
    unready: Option<String>,
    stages: [&'static str; 5],
    points: Vec<Point>,
    now: Option<Value>,
    made_of: Option<Told>,
    hot_logs: Vec<BusyRow>,
    extras: Vec<Value>,
}

#[derive(Serialize)]
struct BusyRow {
    #[serde(flatten)]
    key: Key,
    #[serde(flatten)]
    log: HotLog,
}

/// `/api/live?since=`: how it is now, and the points behind that of a number.
pub(super) async fn live(State(watch): State<Watch>, RawQuery(query): RawQuery) -> Result<Response, Refusal> {
    let since = Query::parse(query.as_deref()).number("since")?;
    watch.look();
    let busiest = watch.hot_logs().top(BUSIEST).into_iter();
    let live = Live {
        version: env!("CARGO_PKG_VERSION"),
        uptime_seconds: watch.now().as_secs_f64(),
        now_at: watch.0.clock.wall().as_secs_f64(),
        unready: watch.unready(),
        stages: STAGES,
        points: watch.points(since),
        now: watch.store().map(|store| now(&store.activity())),
        made_of: Runs::last(&watch),
        hot_logs: busiest.map(|log| BusyRow { key: Key::of(&log.key), log }).collect(),
        extras: watch.extras(),
    };
    Ok(Json(live).into_response())
}

/// What a store has now, and what it did since it was opened.
fn now(activity: &Activity) -> Value {
    let Activity { wal, kept, reads, lookups, .. } = activity;
    let stalls = StallReason::ALL.map(|reason| {
        let stall = activity.stall(reason);
        json!({ "reason": reason.name(), "count": stall.count, "seconds": stall.time.as_secs_f64(), "now": stall.now })
    });
    let cached =
        lookups.filter_bytes + lookups.index_bytes + lookups.block_bytes + lookups.bounds_cache_bytes;
    json!({
        "commits": activity.commits,
        "ring": { "used_bytes": wal.used, "size_bytes": wal.size, "block_bytes": wal.block_size, "depth": wal.depth,
            "in_flight": wal.in_flight, "queued": wal.queued, "waiting": wal.waiting },
        "memory": { "used_bytes": activity.memtable_bytes, "budget_bytes": activity.memory_budget, "logs": activity.memtable_logs },
        "reads": { "active": reads.active, "frozen": reads.frozen, "memory": reads.memory,
            "bounds_cache": reads.bounds_cache, "runs": reads.runs },
        "cache": { "used_bytes": cached, "budget_bytes": lookups.cache_budget },
        "heap": { "bytes": kept.heap_bytes, "free_bytes": kept.heap_free, "largest_free_bytes": kept.heap_largest_free },
        "runs": { "count": activity.runs, "bytes": activity.run_bytes, "entries": activity.run_entries,
            "dead": activity.dead_entries },
        "maintenance": { "checkpoint_per_mille": kept.checkpoint, "compacting": kept.compacting,
            "checkpoints": kept.stats.checkpoints, "compactions": kept.stats.compactions },
        "stalls": stalls,
        "spaces": activity.spaces.iter().take(SPACES).map(space).collect::<Vec<_>>(),
    })
}

fn space(space: &SpaceInfo) -> Value {
    json!({
        "name": space.name,
        "logs": space.logs,
        "bytes": space.bytes,
        "appended": space.appended,
        "reads": space.reads,
        "refused": space.refused,
        "memory_bytes": space.memory.as_ref().map(|memory| memory.used),
    })
}

#[cfg(test)]
mod tests {
    use brooklet::Store;

    use super::*;

    #[test]
    fn points_are_a_second_long_and_the_old_ones_go() {
        let (store, mut kept) = (Store::in_memory(1).unwrap(), Kept::default());
        let second = Duration::from_secs(1);
        let mut look = |millis: u64| {
            let now = Duration::from_millis(millis);
            kept.look(|| store.activity(), now, second * 1000 + now);
            kept.points.iter().map(|point| (point.n, point.seconds)).collect::<Vec<_>>()
        };
        assert_eq!(look(5000), []);
        assert_eq!(look(5500), []);
        assert_eq!(look(5990), [(0, 0.99)]);
        assert_eq!(look(6000), [(0, 0.99)]);
        assert_eq!(look(8990), [(0, 0.99), (1, 3.0)]);
        let last = (10..20 + KEPT as u64).map(|n| look(n * 1000)).last().unwrap();
        assert_eq!((last.len(), last[0].0), (KEPT, last[KEPT - 1].0 + 1 - KEPT as u64));
    }
}
