//! Pages of logs and of entries, bounded in number and in bytes. Threads that may wait for a slow
//! device read both.

use std::ops::Range;

use axum::Json;
use axum::extract::{RawQuery, State};
use brooklet::{Bounds, Entry, Error, LogInfo, Store};
use serde::Serialize;

use super::Watch;
use super::query::{Query, Refusal, Shown, encode};

/// Most logs of a page, and as many as are given where nobody asks for a number.
const LOGS: u64 = 1000;
const SOME_LOGS: u64 = 100;
/// Most entries of a page.
const ENTRIES: u64 = 500;
const SOME_ENTRIES: u64 = 50;
/// About the most bytes of an entry that are shown, and of all entries of a page.
const PAYLOAD: usize = 64 << 10;
const PAYLOADS: usize = 1 << 20;
/// How often a log is looked at again, where entries went between two looks.
const TRIES: usize = 5;

type Answer<T> = Result<Json<T>, Refusal>;

#[derive(Serialize)]
pub(super) struct LogsPage {
    logs: Vec<LogRow>,
    /// What to ask for as `after` for those that follow, if any do.
    after: Option<String>,
    /// The damage because of which logs may be missing on this page.
    damage: Option<String>,
}

#[derive(Serialize)]
struct LogRow {
    #[serde(flatten)]
    key: Key,
    first: u64,
    next: u64,
    keeps_entries: Option<u64>,
    keeps_bytes: Option<u64>,
    keeps_seconds: Option<f64>,
}

/// A key, and how it is asked for.
#[derive(Serialize)]
pub(super) struct Key {
    key: Shown,
    url: String,
}

impl Key {
    pub fn of(key: &[u8]) -> Self {
        Self { key: Shown::of(key, usize::MAX), url: encode(key) }
    }
}

#[derive(Serialize)]
pub(super) struct LogPage {
    #[serde(flatten)]
    key: Key,
    first: u64,
    next: u64,
    entries: Vec<EntryRow>,
    /// What to ask for as `from` for those that follow in this order, if any do.
    from: Option<u64>,
}

#[derive(Serialize)]
struct EntryRow {
    seq: u64,
    bytes: usize,
    #[serde(flatten)]
    payload: Shown,
    /// Whether that is only the beginning.
    cut: bool,
}

/// `/api/logs?prefix=&after=&limit=`: logs in the order of their keys. A page with damage has the
/// logs that can be listed.
pub(super) async fn logs(State(watch): State<Watch>, RawQuery(query): RawQuery) -> Answer<LogsPage> {
    let query = Query::parse(query.as_deref());
    let prefix = query.bytes("prefix").unwrap_or_default().to_vec();
    // The least key behind it.
    let from = query.bytes("after").map_or(Vec::new(), |after| [after, b"\0"].concat());
    let limit = query.number("limit")?.unwrap_or(SOME_LOGS).clamp(1, LOGS) as usize;
    apart(watch, move |store| logs_page(store, &prefix, &from, limit)).await
}

fn logs_page(store: &Store, prefix: &[u8], from: &[u8], limit: usize) -> Result<LogsPage, Error> {
    let mut logs = store.scan_from(prefix, from)?;
    let (mut listed, mut more, mut damage): (Vec<LogInfo>, _, _) = (Vec::new(), false, None);
    while !more {
        if listed.len() == limit {
            damage = logs.take_damage();
        }
        match logs.next() {
            Some(Ok(_)) if listed.len() == limit => more = true,
            Some(Ok(log)) => listed.push(log),
            Some(Err(error @ Error::Damaged { .. })) => {
                damage = damage.or(Some(error));
                break;
            }
            Some(Err(error)) => return Err(error),
            None => break,
        }
    }
    let damage = damage.map(|error| error.to_string());
    let after = listed.last().filter(|_| more).map(|log| encode(&log.key));
    let row = |log: &LogInfo| LogRow {
        key: Key::of(&log.key),
        first: log.bounds.first,
        next: log.bounds.next,
        keeps_entries: log.retention.entries,
        keeps_bytes: log.retention.bytes,
        keeps_seconds: log.retention.age.map(|age| age.as_secs_f64()),
    };
    Ok(LogsPage { logs: listed.iter().map(row).collect(), after, damage })
}

/// `/api/log?key=&from=&limit=&order=newest|oldest`: entries from a number on, up or down.
pub(super) async fn log(State(watch): State<Watch>, RawQuery(query): RawQuery) -> Answer<LogPage> {
    let query = Query::parse(query.as_deref());
    let key = query
        .bytes("key")
        .ok_or_else(|| Refusal::asked("the key is missing: name the log, as ?key=…"))?
        .to_vec();
    let from = query.number("from")?;
    let limit = query.number("limit")?.unwrap_or(SOME_ENTRIES).clamp(1, ENTRIES);
    let newest = match query.bytes("order") {
        None | Some(b"" | b"newest") => true,
        Some(b"oldest") => false,
        Some(_) => return Err(Refusal::asked("order is neither newest nor oldest: use one of them")),
    };
    apart(watch, move |store| log_page(store, &key, from, limit, newest)).await
}

/// The numbers of a page.
fn window(bounds: Bounds, from: Option<u64>, limit: u64, newest: bool) -> Range<u64> {
    let Bounds { first, next } = bounds;
    if newest {
        let end = from.map_or(next, |from| from.saturating_add(1)).clamp(first, next);
        end.saturating_sub(limit).max(first)..end
    } else {
        let start = from.unwrap_or(first).clamp(first, next);
        start..start.saturating_add(limit).min(next)
    }
}

fn log_page(
    store: &Store,
    key: &[u8],
    from: Option<u64>,
    limit: u64,
    newest: bool,
) -> Result<LogPage, Error> {
    let (bounds, mut entries) = look(store, key, |bounds| window(bounds, from, limit, newest))?;
    let (mut rows, mut bytes) = (Vec::new(), 0);
    while bytes < PAYLOADS {
        let Some(entry) = (if newest { entries.next_back() } else { entries.next() }) else { break };
        let Entry { seq, payload } = entry?;
        let cut = payload.len() > PAYLOAD;
        bytes += payload.len().min(PAYLOAD);
        rows.push(EntryRow { seq, bytes: payload.len(), payload: Shown::of(&payload, PAYLOAD), cut });
    }
    let following =
        rows.last().and_then(|row| if newest { row.seq.checked_sub(1) } else { Some(row.seq + 1) });
    let from = following.filter(|seq| (bounds.first..bounds.next).contains(seq));
    Ok(LogPage { key: Key::of(key), first: bounds.first, next: bounds.next, entries: rows, from })
}

/// A log's bounds, and some of its entries as of then. Entries may go between the two, and then it
/// looks again.
fn look(
    store: &Store,
    key: &[u8],
    window: impl Fn(Bounds) -> Range<u64>,
) -> Result<(Bounds, brooklet::Entries), Error> {
    let mut tries = 0;
    loop {
        let bounds = store.bounds(key)?;
        match store.read(key, window(bounds)) {
            Err(Error::OutOfRange { .. }) if tries < TRIES => tries += 1,
            entries => return Ok((bounds, entries?)),
        }
    }
}

/// Reads what may have to wait for a device, on a thread for such things.
async fn apart<T: Send + 'static>(
    watch: Watch,
    read: impl FnOnce(&Store) -> Result<T, Error> + Send + 'static,
) -> Answer<T> {
    let store = watch.store().ok_or_else(|| Refusal::busy("the store is not open yet: retry"))?.clone();
    let Ok(turn) = watch.0.browsing.clone().try_acquire_owned() else {
        return Err(Refusal::busy("too many listings run at once, or the device is slow: retry"));
    };
    let read = tokio::task::spawn_blocking(move || {
        let read = read(&store);
        drop(turn);
        read
    });
    Ok(Json(read.await.expect("no panics")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_within_the_log_wherever_it_is_asked_for() {
        let bounds = Bounds { first: 10, next: 20 };
        for (from, newest, wanted) in [
            (None, true, 16..20),
            (None, false, 10..14),
            (Some(12), true, 10..13),
            (Some(18), false, 18..20),
            (Some(3), true, 10..10),
            (Some(3), false, 10..14),
            (Some(u64::MAX), true, 16..20),
            (Some(u64::MAX), false, 20..20),
        ] {
            assert_eq!(window(bounds, from, 4, newest), wanted, "{from:?} {newest}");
        }
    }
}
