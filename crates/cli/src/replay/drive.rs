//! Forward and back: appending what documents and histories hold, and reading all of it again.
//!
//! Entries of one log are appended in order, each before the next is begun: a log belongs to one
//! writer. What must hold afterwards is that every log has exactly the entries it was given, and
//! that they make the text they should.

use std::thread;
use std::time::Instant;

use brooklet::{Commit, Durability, Error, Store};
use indicatif::ProgressBar;

use crate::latency::{Latencies, latencies};
use crate::replay::flight::Flight;
use crate::replay::history::History;
use crate::replay::trace::Text;

/// A log, what it is to hold, and the text that makes, where it is one.
pub struct Document<'a> {
    /// The log's key.
    pub key: String,
    /// Its entries.
    pub entries: &'a [Box<[u8]>],
    /// The text they make.
    pub text: Option<&'a str>,
}

/// How to append.
#[derive(Clone, Copy)]
pub struct Manner {
    /// Threads that append.
    pub writers: usize,
    /// Unacknowledged writes of each.
    pub in_flight: usize,
    /// When a write counts as acknowledged.
    pub durability: Durability,
}

impl Manner {
    fn flight<'a>(&self, bar: &'a ProgressBar) -> Flight<'a> {
        Flight::new(self.in_flight, self.durability != Durability::Durable, bar)
    }
}

/// Appends many documents at once: each writer has its own, and goes round them, an entry at a
/// time.
pub fn append(
    store: &Store,
    documents: &[Document<'_>],
    manner: Manner,
    bar: &ProgressBar,
) -> Result<Latencies, Error> {
    let write = |writer: usize| {
        let mut flight = manner.flight(bar);
        let mut mine: Vec<_> = documents.iter().skip(writer).step_by(manner.writers).collect();
        for round in 0.. {
            mine.retain(|document| round < document.entries.len());
            if mine.is_empty() {
                break;
            }
            for document in &mine {
                let start = Instant::now();
                let ticket = store.append_with(&document.key, &document.entries[round], manner.durability)?;
                flight.add(start, ticket)?;
            }
        }
        flight.finish()
    };
    in_parallel(manner.writers, write).try_fold(latencies(), |mut all, one| {
        all += one?;
        Ok(all)
    })
}

/// Commits a history, in its order: one writer, since its commits share logs.
pub fn commit(
    store: &Store,
    history: &History,
    manner: Manner,
    bar: &ProgressBar,
) -> Result<Latencies, Error> {
    let mut flight = manner.flight(bar);
    let mut next = vec![0; history.logs.len()];
    for logs in &history.commits {
        let mut commit = Commit::new();
        commit.durability(manner.durability);
        for &log in logs {
            commit.append(&history.logs[log].key, &history.logs[log].entries[next[log]]);
            next[log] += 1;
        }
        let start = Instant::now();
        flight.add(start, store.commit(&commit)?)?;
    }
    flight.finish()
}

/// Reads every document back, and tells what differs.
pub fn verify(store: &Store, documents: &[Document<'_>], threads: usize, bar: &ProgressBar) -> Vec<String> {
    let check = |thread: usize| {
        let mut differing = Vec::new();
        for document in documents.iter().skip(thread).step_by(threads) {
            if let Err(why) = verify_one(store, document) {
                differing.push(format!("{}: {why}", document.key));
            }
            bar.inc(1);
        }
        differing
    };
    in_parallel(threads, check).flatten().collect()
}

fn verify_one(store: &Store, document: &Document<'_>) -> Result<(), String> {
    if document.entries.is_empty() && document.text.is_none_or(str::is_empty) {
        return Ok(());
    }
    let mut text = Text::default();
    let mut count = 0;
    for entry in store.read(&document.key, ..).map_err(|e| e.to_string())? {
        let entry = entry.map_err(|e| e.to_string())?;
        if entry.seq != count || document.entries.get(count as usize).is_none_or(|e| **e != *entry.payload) {
            return Err(format!("entry {} is not what was appended as number {count}", entry.seq));
        }
        if document.text.is_some() {
            text.apply(&entry.payload).map_err(|e| format!("entry {count} {e}"))?;
        }
        count += 1;
    }
    if count != document.entries.len() as u64 {
        return Err(format!("{count} of {} entries were read back", document.entries.len()));
    }
    match document.text {
        Some(wanted) => same(&text.to_string(), wanted),
        None => Ok(()),
    }
}

fn same(text: &str, wanted: &str) -> Result<(), String> {
    if text == wanted {
        return Ok(());
    }
    let equal = text.chars().zip(wanted.chars()).take_while(|(a, b)| a == b).count();
    let [len, wanted] = [text, wanted].map(|text| text.chars().count());
    Err(format!(
        "the text has {len} characters, the trace says {wanted}; they differ from character {equal} on"
    ))
}

/// Runs `work` on several threads, each with its number, and gives what they return.
fn in_parallel<T: Send>(threads: usize, work: impl Fn(usize) -> T + Sync) -> std::vec::IntoIter<T> {
    let work = &work;
    let results: Vec<T> = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|i| scope.spawn(move || work(i))).collect();
        running.into_iter().map(|thread| thread.join().expect("no panics")).collect()
    });
    results.into_iter()
}
