//! Streams that have expired, and that nobody asks for any more, give back their room.
//!
//! A stream that can expire has a log in the reserved corner, with the minute in its key by which it may have expired. So
//! those that are due are first in the order of keys, and others are not looked at. One that was used meanwhile is due
//! later, and only then told so.

use std::sync::Arc;

use super::about::Change;
use super::draft::Draft;
use super::name::{DUE, Name};
use super::remove::Why;
use super::reply::Refusal;
use super::{Streams, time};

const MINUTE: u64 = 60_000;
const LAST_MINUTE: u64 = 9_999_999_999;
/// Streams that are looked at before others get at the store.
const AT_ONCE: usize = 256;

/// The first minute that begins after a time.
pub fn minute_after(millis: u64) -> u64 {
    (millis / MINUTE + 1).min(LAST_MINUTE)
}

impl Streams {
    /// Looks at what is due every now and then, until the server stops.
    pub async fn keep_sweeping(self: Arc<Self>) {
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(self.config.sweep) => {}
            }
            loop {
                match self.blocking(&self.writes, |streams| streams.sweep(time::now())).await {
                    Ok(AT_ONCE) if !self.stop.is_cancelled() => {}
                    Ok(_) => break,
                    Err(refusal) => {
                        tracing::warn!(?refusal, "expired streams could not be removed; this is tried again");
                        break;
                    }
                }
            }
        }
    }

    /// Removes some of what is due; gives the number of streams that it looked at.
    pub fn sweep(&self, now: u64) -> Result<usize, Refusal> {
        let mut due = Vec::new();
        for log in self.store.scan(DUE)?.take(AT_ONCE) {
            let key = log?.key;
            match Name::of_due(&key) {
                Some((minute, _)) if minute > now / MINUTE => break,
                Some(found) => due.push(found),
                None => tracing::warn!(key = %key.escape_ascii(), "a log tells no stream that is due"),
            }
        }
        for (minute, name) in &due {
            self.see_to(*minute, name)?;
        }
        // What went is listed until that is durable.
        self.store.flush()?;
        Ok(due.len())
    }

    fn see_to(&self, minute: u64, name: &Name) -> Result<(), Refusal> {
        let stream = self.registry.get(name);
        drop(stream.turn(&self.store)?);
        self.remove(&stream, Why::Expired)?;
        let mut written = stream.turn(&self.store)?;
        match &written.about {
            Some(about) if about.due == Some(minute) => {
                // It was used meanwhile; or it is kept for its forks, and the last of them will take it along.
                let expires = stream.expires(&about.outline).filter(|_| !about.gone);
                let due = expires.map_or(LAST_MINUTE, |at| minute_after(at.max(time::now())));
                let change = Change { due: Some(due), ..Change::default() };
                self.commit(&stream, &mut written, &change, &[])
            }
            // The stream goes by another log, or there is none.
            _ => {
                let mut draft = Draft::default();
                draft.delete(name.due(minute));
                match draft.commit(&self.store) {
                    Err(refusal) if !refusal.is_stale => Err(refusal),
                    // Or it went a moment ago.
                    _ => Ok(()),
                }
            }
        }
    }
}
