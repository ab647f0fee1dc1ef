//! Frees the space of expired streams that no client reads any more.
//!
//! A stream that can expire has a log in the reserved part of the space, whose key has the minute
//! of its earliest expiry. So the due streams are first in the order of keys, and the sweep reads
//! no others. A stream that was used meanwhile gets its new minute only when the old one is due.

use std::sync::Arc;

use brooklet::Error;

use super::draft::Draft;
use super::metadata::Change;
use super::name::{DUE, Name};
use super::remove::Why;
use super::{Streams, time};
use crate::http::reply::Refusal;

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
            let mut from = Vec::new();
            loop {
                let begin = std::mem::take(&mut from);
                match self.blocking(&self.writes, move |streams| streams.sweep(time::now(), &begin)).await {
                    Ok(Some(next)) if !self.stop.is_cancelled() => from = next,
                    Ok(_) => break,
                    Err(refusal) => {
                        tracing::warn!(?refusal, "the server could not remove expired streams; it retries");
                        break;
                    }
                }
            }
        }
    }

    /// Removes some of what is due, from this key on. Returns the key to go on from, if there may
    /// be more. A stream that cannot be read or listed stays, and keeps no other from going.
    pub fn sweep(&self, now: u64, from: &[u8]) -> Result<Option<Vec<u8>>, Refusal> {
        let (mut due, mut next, mut damage) = (Vec::new(), None, None);
        let mut listing = self.store.scan_from(DUE, from)?;
        for (i, log) in listing.by_ref().take(AT_ONCE).enumerate() {
            let key = match log {
                Ok(log) => log.key,
                Err(error @ Error::Damaged { .. }) => {
                    damage = Some(error);
                    break;
                }
                Err(error) => return Err(error.into()),
            };
            match Name::of_due(&key) {
                Some((minute, _)) if minute > now / MINUTE => break,
                Some(found) => due.push(found),
                None => tracing::warn!(key = %key.escape_ascii(), "a key names no stream that is due"),
            }
            if i + 1 == AT_ONCE {
                next = Some([&key[..], b"\0"].concat());
            }
        }
        if let Some(error) = damage.or_else(|| listing.take_damage()) {
            tracing::warn!(%error, "damage may hide expired streams, which the server does not remove");
        }
        drop(listing);
        for (minute, name) in &due {
            if let Err(refusal) = self.see_to(*minute, name) {
                self.store.flush()?;
                tracing::warn!(?refusal, stream = %name, "the server could not remove an expired stream; it retries");
            }
        }
        // What went is listed until that is durable.
        self.store.flush()?;
        Ok(next)
    }

    fn see_to(&self, minute: u64, name: &Name) -> Result<(), Refusal> {
        let stream = self.registry.get(name);
        drop(stream.turn(&self.store)?);
        self.remove(&stream, Why::Expired)?;
        let mut written = stream.turn(&self.store)?;
        match &written.metadata {
            Some(metadata) if metadata.due == Some(minute) => {
                // It was used meanwhile; or it is kept for its forks, and the last of them will
                // take it along.
                let expires = stream.expires(&metadata.identity).filter(|_| !metadata.gone);
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

#[cfg(test)]
mod tests {
    use axum::http::Request;
    use brooklet::Options;
    use brooklet::io::{MemVolume, Rng};
    use bytes::Bytes;

    use super::*;
    use crate::http::Config;
    use crate::http::limits::Limits;
    use crate::http::streams::stream::Stream;

    async fn make(streams: &Arc<Streams>, name: &str, headers: &[(&'static str, &str)]) -> Arc<Stream> {
        let stream = streams.open(&Name::new(name).unwrap(), false).await.unwrap();
        let request = headers.iter().fold(Request::new(()), |mut request, (name, value)| {
            request.headers_mut().insert(*name, value.parse().unwrap());
            request
        });
        streams.put(&stream, &request.into_parts().0, Bytes::from_static(b"x")).await.unwrap();
        stream
    }

    fn keys(streams: &Streams) -> Vec<String> {
        streams.store.flush().unwrap();
        let logs = streams.store.scan("").unwrap();
        logs.map(|log| String::from_utf8(log.unwrap().key).unwrap()).collect()
    }

    #[tokio::test]
    async fn what_has_expired_goes_without_being_asked_for() {
        let store = brooklet::Store::in_memory(1).unwrap();
        let config = Config::default();
        let limits = Limits::new(&config);
        let streams = Streams::new(store, config, limits, None, Default::default()).unwrap();
        make(&streams, "stays", &[]).await;
        make(&streams, "idle", &[("stream-ttl", "0")]).await;
        make(&streams, "past", &[("stream-expires-at", "2020-01-01T00:00:00Z")]).await;
        make(&streams, "later", &[("stream-ttl", "30")]).await;
        streams.store.append("streams/__ds/due/0000000009/left-over", "").unwrap().wait().unwrap();
        let soon = time::now() + 2 * MINUTE;
        assert_eq!(streams.sweep(soon, b"").unwrap(), None);
        // That one has a life of its own yet, and is looked at when it ends.
        let again = Name::new("later").unwrap();
        let due = streams.registry.get(&again).turn(&streams.store).unwrap().metadata.clone().unwrap().due;
        let kept = ["about/later", "about/stays"].map(|key| format!("streams/__ds/{key}"));
        let due = [again.due(due.unwrap())];
        let data = ["later", "stays"].map(|key| format!("streams/{key}"));
        assert_eq!(keys(&streams), [&kept[..], &due, &data].concat());
        streams.sweep(time::now(), b"").unwrap();
        assert_eq!(keys(&streams), [&kept[..], &due, &data].concat());
    }

    /// In the old state a read of a stream that had expired waited until the stream was removed,
    /// and so for a writer who may wait for room.
    #[test]
    fn a_read_of_what_has_expired_does_not_wait_for_its_removal() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let store = brooklet::Store::in_memory(1).unwrap();
        let config = Config::default();
        let limits = Limits::new(&config);
        let streams = Streams::new(store, config, limits, None, Default::default()).unwrap();
        let stream = runtime.block_on(make(&streams, "past", &[("stream-ttl", "0")]));
        let turn = stream.turn(&streams.store).unwrap();
        let read = streams.open(&stream.name, true);
        // Longer than that takes, however busy the machine is.
        let forever = std::time::Duration::from_secs(120);
        let read = runtime.block_on(async { tokio::time::timeout(forever, read).await });
        drop(turn);
        let refused = read.expect("it does not wait").err().map(|refusal| refusal.status);
        assert_eq!(refused, Some(axum::http::StatusCode::NOT_FOUND));
    }

    #[tokio::test]
    async fn streams_that_cannot_be_read_keep_no_other_from_going() {
        let store = brooklet::Store::in_memory(1).unwrap();
        let config = Config::default();
        let limits = Limits::new(&config);
        let streams = Streams::new(store, config, limits, None, Default::default()).unwrap();
        make(&streams, "past", &[("stream-ttl", "0")]).await;
        for i in 0..AT_ONCE {
            let name = Name::new(&format!("bad-{i}")).unwrap();
            drop(streams.store.append(name.metadata(), "no note").unwrap());
            drop(streams.store.append(name.due(1), "").unwrap());
        }
        streams.store.flush().unwrap();
        let (soon, mut from, mut rounds) = (time::now() + 2 * MINUTE, Vec::new(), 0);
        while let Some(next) = streams.sweep(soon, &from).unwrap() {
            (from, rounds) = (next, rounds + 1);
        }
        assert_eq!(rounds, 1, "the streams that cannot be read are passed");
        let logs = keys(&streams);
        assert!(!logs.contains(&"streams/past".to_owned()), "{logs:?}");
        assert_eq!(logs.len(), 2 * AT_ONCE);
    }

    /// In an earlier state, the sweep ended at the error of the listing, and removed nothing.
    #[tokio::test]
    async fn what_is_due_goes_beside_damage() {
        let (volume, mut rng) = (MemVolume::new(1), Rng::new(1));
        let options = Options::new().ring_size(1 << 20).max_payload(16 << 10).threads(false).rng_seed(1);
        let store = options.create_on(Arc::new(volume.clone())).unwrap();
        let config = Config::default();
        let limits = Limits::new(&config);
        let streams = Streams::new(store, config, limits, None, Default::default()).unwrap();
        for i in 0..200 {
            let noise: Vec<u8> = (0..2000).map(|_| rng.below(256) as u8).collect();
            let name = Name::new(&format!("left-over-{i:03}")).unwrap();
            drop(streams.store.append(name.due(9), noise).unwrap());
        }
        streams.store.checkpoint().unwrap();
        let run = streams.store.info().unwrap().runs[0];
        volume.flip((run.offset + run.bytes / 2) as usize, 1);
        let listed = || streams.store.scan(DUE).unwrap().filter(Result::is_ok).count();
        assert!((150..200).contains(&listed()), "{} can be listed", listed());
        assert_eq!(streams.sweep(time::now(), b"").unwrap(), None);
        assert_eq!(listed(), 0);
    }

    #[tokio::test]
    async fn what_was_used_meanwhile_is_due_later() {
        let store = brooklet::Store::in_memory(1).unwrap();
        let config = Config::default();
        let limits = Limits::new(&config);
        let streams = Streams::new(store, config, limits, None, Default::default()).unwrap();
        let stream = make(&streams, "used", &[("stream-ttl", "600")]).await;
        let due = || stream.turn(&streams.store).unwrap().metadata.clone().unwrap().due.unwrap();
        let before = due();
        let identity = stream.seen().identity.unwrap();
        stream.begin(time::now() + 300_000);
        streams.sweep(before * MINUTE, b"").unwrap();
        assert_eq!(due(), minute_after(stream.expires(&identity).unwrap()));
        assert!(due() > before);
        let logs = keys(&streams);
        assert!(
            logs.contains(&stream.name.due(due())) && !logs.contains(&stream.name.due(before)),
            "{logs:?}"
        );
    }

    /// In the old state a stream whose reader waited for longer than it may be idle was lost when
    /// the server started anew, because nobody notes how long a reader waits.
    #[tokio::test]
    async fn a_stream_outlives_a_restart_while_a_reader_waits() {
        let store = brooklet::Store::in_memory(1).unwrap();
        let config = Config::default();
        let longest = config.events.max(config.long_poll).as_millis() as u64;
        let open = || {
            let limits = Limits::new(&config);
            Streams::new(store.clone(), config.clone(), limits, None, Default::default()).unwrap()
        };
        let streams = open();
        let used = |stream: &Arc<Stream>, before: u64| {
            let change = Change { touched: Some(time::now() - before), ..Change::default() };
            let mut written = stream.turn(&streams.store).unwrap();
            streams.commit(stream, &mut written, &change, &[]).unwrap();
        };
        // One had a reader until now, who came when the last use was noted; the other had none.
        used(&make(&streams, "read", &[("stream-ttl", "50")]).await, longest);
        used(&make(&streams, "idle", &[("stream-ttl", "50")]).await, 2 * longest);
        store.flush().unwrap();
        let again = open();
        for (name, is_there) in [("read", true), ("idle", false)] {
            let stream = again.open(&Name::new(name).unwrap(), true).await.unwrap();
            assert_eq!(stream.seen().identity.is_some(), is_there, "{name}");
        }
    }
}
