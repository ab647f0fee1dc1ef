//! Power cuts at each operation of the device, beside a plain model of a log.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use brooklet::io::{Fault, ManualClock, MemVolume, Rng};
use brooklet::{Options, Store};
use brooklet_openraft::LogStore;
use openraft::storage::{RaftLogStorage, RaftLogStorageExt};
use openraft::{Entry, LogId, RaftLogReader, StorageError, Vote};

use crate::kv::machine::Types;
use crate::{entry, id, open};

/// Number of calls of a history.
const CALLS: u64 = 40;

#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    vote: Option<Vote<u64>>,
    committed: Option<LogId<u64>>,
    purged: Option<LogId<u64>>,
    entries: BTreeMap<u64, Entry<Types>>,
}

impl Model {
    fn last(&self) -> Option<LogId<u64>> {
        self.entries.values().next_back().map(|entry| entry.log_id).or(self.purged)
    }

    fn next(&self) -> u64 {
        self.last().map_or(0, |id| id.index + 1)
    }

    async fn read(log: &mut LogStore<Types>) -> Self {
        let entries = log.try_get_log_entries(..).await.unwrap();
        let model = Self {
            vote: log.read_vote().await.unwrap(),
            committed: log.read_committed().await.unwrap(),
            purged: log.get_log_state().await.unwrap().last_purged_log_id,
            entries: entries.into_iter().map(|entry| (entry.log_id.index, entry)).collect(),
        };
        assert_eq!(log.get_log_state().await.unwrap().last_log_id, model.last());
        model
    }
}

struct Host {
    store: Store,
    log: LogStore<Types>,
    rng: Rng,
    /// The contents that a power cut now may leave. The last one is the content now.
    possible: Vec<Model>,
}

/// Runs a call on a store without threads.
async fn run<T>(
    store: &Store,
    call: impl Future<Output = Result<T, StorageError<u64>>>,
) -> Result<T, StorageError<u64>> {
    let mut call = pin!(call);
    let first = poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await;
    if let Poll::Ready(done) = first {
        return done;
    }
    // The call reports a failure of the device.
    _ = store.flush();
    call.await
}

impl Host {
    /// Makes a random call. Returns whether it succeeded.
    async fn call(&mut self) -> bool {
        let Self { store, log, rng, possible } = self;
        let mut model = possible.last().unwrap().clone();
        let (kind, term) = (rng.below(10), 1 + rng.below(3) + model.last().map_or(0, |id| id.leader_id.term));
        let done = match kind {
            0..4 => {
                let next = model.next();
                let entries: Vec<_> = (0..1 + rng.below(3)).map(|n| entry(term, next + n)).collect();
                model.entries.extend(entries.iter().map(|entry| (entry.log_id.index, entry.clone())));
                run(store, log.blocking_append(entries)).await
            }
            4 => {
                let Some(first) = model.entries.keys().next() else { return true };
                let from = first + rng.below(model.next() - first);
                model.entries.split_off(&from);
                run(store, log.truncate(id(term, from))).await
            }
            5 => {
                let Some((&first, _)) = model.entries.first_key_value() else { return true };
                let at = first + rng.below(model.next() - first);
                let purged = model.entries[&at].log_id;
                model.entries = model.entries.split_off(&(at + 1));
                model.purged = Some(purged);
                run(store, log.purge(purged)).await
            }
            6 => {
                // A snapshot may also come from a leader of an earlier term.
                let purged = id(rng.below(term + 1), model.next() + rng.below(100));
                (model.purged, model.entries) = (Some(purged), BTreeMap::new());
                run(store, log.purge(purged)).await
            }
            7..9 => {
                let vote = Vote::new(term, rng.below(3));
                model.vote = Some(vote);
                run(store, log.save_vote(&vote)).await
            }
            _ => {
                model.committed = model.last();
                let saved = run(store, log.save_committed(model.committed)).await.is_ok();
                possible.push(model);
                return saved;
            }
        };
        if done.is_ok() {
            possible.clear();
        }
        possible.push(model);
        done.is_ok()
    }
}

fn options() -> Options {
    let options = Options::new().ring_size(1 << 20).max_payload(1 << 16).threads(false);
    options.clock(Arc::new(ManualClock::default())).rng_seed(5)
}

/// Runs a history until the power goes. Returns whether the history came to its end.
async fn is_whole(seed: u64, cut_after: u64) -> bool {
    let volume = MemVolume::new(seed);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    volume.fail(Fault::PowerOffAfter(cut_after));
    let log = open(&store);
    let mut host = Host { store, log, rng: Rng::new(seed), possible: vec![Model::default()] };
    let mut is_whole = true;
    for call in 0..CALLS {
        if call % 16 == 15 {
            _ = host.store.checkpoint();
        }
        is_whole = host.call().await;
        if !is_whole {
            break;
        }
    }
    host.store.clone().abandon();

    let volume = MemVolume::from_image(volume.crash(), seed);
    host.store = options().open_on(Arc::new(volume)).unwrap();
    host.log = open(&host.store);
    let found = Model::read(&mut host.log).await;
    assert!(host.possible.contains(&found), "{found:#?} is none of {:#?}", host.possible);
    host.possible = vec![found];
    for _ in 0..10 {
        assert!(host.call().await);
        let found = Model::read(&mut open(&host.store)).await;
        assert_eq!(Some(&found), host.possible.last());
    }
    is_whole
}

#[tokio::test]
async fn power_may_be_cut_anywhere() {
    for seed in 0..4 {
        let mut cut_after = 0;
        while !is_whole(seed, cut_after).await {
            cut_after += 1;
        }
        assert!(cut_after > CALLS / 2, "the history wrote {cut_after} times");
    }
}
