//! Plays keystroke traces as documents, and compares the texts and the space.
//!
//! ```sh
//! cargo run --release -p brooklet-documents --example traces -- automerge-paper.json.gz sveltecomponent.json.gz
//! ```
//!
//! A trace is JSON, gzipped or not: `startContent`, `endContent`, and `txns`, a list of
//! `{patches: [[position, deleted, inserted], …]}` as josephg/editing-traces has them. Each
//! transaction is one update: of a text, with undo; and of a CRDT document of yrs. A third log has
//! the updates of the text alone, without undo, request ids and snapshots.

mod text;

use std::error::Error;
use std::io::Read;
use std::path::Path;

use brooklet::Store;
use brooklet_documents::{Bytes, Documents, Model, Opaque, Options, Request};
use serde::Deserialize;
use text::{Edit, Text, byte_of};
use yrs::updates::decoder::Decode;
use yrs::{Doc, GetString, Text as _, Transact, Update};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Patches that are not durable at once.
const IN_FLIGHT: usize = 256;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Trace {
    #[serde(default)]
    start_content: String,
    end_content: String,
    txns: Vec<Transaction>,
}

#[derive(Deserialize)]
struct Transaction {
    patches: Vec<Edit>,
}

fn main() -> Result<()> {
    let paths: Vec<_> = std::env::args_os().skip(1).collect();
    if paths.is_empty() {
        return Err("name at least one trace, such as sveltecomponent.json.gz".into());
    }
    println!(
        "| trace | updates | log alone, bytes | text, bytes | ratio | yrs: updates alone, bytes | document, bytes | ratio |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for path in &paths {
        play(Path::new(path))?;
    }
    Ok(())
}

fn load(path: &Path) -> Result<Trace> {
    let mut bytes = std::fs::read(path)?;
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut text = Vec::new();
        flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_end(&mut text)?;
        bytes = text;
    }
    Ok(serde_json::from_slice(&bytes)?)
}

fn play(path: &Path) -> Result<()> {
    let trace = load(path)?;
    let dir = tempfile::tempdir_in(".")?;
    let store = Store::open(dir.path().join("traces.brooklet"))?;
    let edits: Vec<Vec<Edit>> = trace.txns.into_iter().map(|txn| txn.patches).collect();

    let texts = Documents::open(&store, Text, Options::new("text/"))?;
    patch_all(&texts, &trace.start_content, &edits)?;
    let updates = yrs_updates(&trace.start_content, &edits);
    let crdts = Documents::open(&store, yrs_model(), Options::new("yrs/"))?;
    patch_all(&crdts, &Opaque::state(updates[0].clone()), &updates[1..])?;
    for edit in &edits {
        drop(store.append("log", Text.encode(edit)?)?);
    }
    store.flush()?;

    // Read back as a client of tomorrow does: nothing is in memory.
    let texts = Documents::open(&store, Text, Options::new("text/"))?;
    let crdts = Documents::open(&store, yrs_model(), Options::new("yrs/"))?;
    let text = texts.get("doc")?.ok_or("the text is gone")?;
    let crdt = crdts.get("doc")?.ok_or("the CRDT is gone")?;
    let folded = crdts.model().fold(&crdt.state)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if *text.state != trace.end_content || text_of(&folded)? != trace.end_content {
        return Err(format!("{name}: the text differs from the end of the trace").into());
    }
    let (alone, with) = (bytes_of(&store, "log")?, bytes_of(&store, "text/ddoc")?);
    let crdt_alone: usize = updates.iter().map(Bytes::len).sum();
    let crdt_with = bytes_of(&store, "yrs/ddoc")?;
    let ratio = |with: usize, alone: usize| with as f64 / alone as f64;
    println!(
        "| {name} | {} | {alone} | {with} | {:.2} | {crdt_alone} | {crdt_with} | {:.2} |",
        edits.len(),
        ratio(with, alone),
        ratio(crdt_with, crdt_alone)
    );
    store.close()?;
    Ok(())
}

/// Creates the document "doc", and makes one patch of each change.
fn patch_all<M: Model>(documents: &Documents<M>, start: &M::State, changes: &[M::Change]) -> Result<()> {
    let created = documents.create("doc", "start", start)?.version;
    let mut flight = std::collections::VecDeque::new();
    for (version, change) in (created..).zip(changes) {
        let request = Request::new(version.to_le_bytes()).author("the author");
        flight.push_back(documents.submit("doc", version, request, change)?);
        if flight.len() >= IN_FLIGHT {
            flight.pop_front().map(|first| first.wait()).transpose()?;
        }
    }
    flight.into_iter().try_for_each(|rest| rest.wait().map(drop))?;
    // The last snapshot has the state, and the history before it stays.
    documents.snapshot("doc", 100)?;
    Ok(())
}

/// Returns the bytes of all entries of a log.
fn bytes_of(store: &Store, key: &str) -> Result<usize> {
    let lengths = store.read(key, ..)?.map(|entry| entry.map(|entry| entry.payload.len()));
    Ok(lengths.sum::<std::result::Result<usize, brooklet::Error>>()?)
}

/// Returns the update of each transaction; the first one makes the text before them.
fn yrs_updates(start: &str, edits: &[Vec<Edit>]) -> Vec<Bytes> {
    let doc = Doc::with_client_id(1);
    let crdt = doc.get_or_insert_text("text");
    let mut text = String::new();
    let first = vec![(0, 0, start.to_owned())];
    let all = std::iter::once(&first).chain(edits);
    all.map(|edits| {
        let mut txn = doc.transact_mut();
        for (at, deleted, inserted) in edits {
            let begin = byte_of(&text, *at).expect("the trace fits its text");
            let end = byte_of(&text, at + deleted).expect("the trace fits its text");
            crdt.remove_range(&mut txn, begin as u32, (end - begin) as u32);
            crdt.insert(&mut txn, begin as u32, inserted);
            text.replace_range(begin..end, inserted);
        }
        Bytes::from(txn.encode_update_v1())
    })
    .collect()
}

/// Documents of yrs: a state is one update that has the effect of all.
fn yrs_model() -> Opaque {
    let fold = |state: &[u8], updates: &[Bytes]| {
        let all = Some(state).into_iter().chain(updates.iter().map(|update| &update[..]));
        yrs::merge_updates_v1(all).map_err(|error| error.to_string())
    };
    Opaque::new("yrs", 1, fold)
}

fn text_of(update: &[u8]) -> Result<String> {
    let doc = Doc::new();
    let text = doc.get_or_insert_text("text");
    doc.transact_mut().apply_update(Update::decode_v1(update)?)?;
    let txn = doc.transact();
    Ok(text.get_string(&txn))
}
