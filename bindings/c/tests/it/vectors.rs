//! Plays `bindings/vectors/vectors.json` in Rust. The other libraries play the same file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use brooklet::error::Found;
use brooklet::{Commit, Create, Error, ErrorKind, Options, Retention, Store, Tail, TailEvent, Ticket};
use serde_json::{Value, json};

/// Far more than a tail ever needs.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn vectors() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors/vectors.json");
    let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert!(cases.len() > 10);
    for case in &cases {
        let folder = tempfile::tempdir().unwrap();
        let mut player = Player { path: folder.path().join("store.brooklet"), store: None, tail: None };
        player.open(&json!({})).unwrap();
        for step in case["steps"].as_array().unwrap() {
            let played = player.play(step).unwrap_or_else(|error| json!({ "error": outline(&error) }));
            assert_eq!(played, expected(step), "{}: {step}", case["name"]);
        }
    }
}

/// A store, and the tail that is open.
struct Player {
    path: PathBuf,
    store: Option<Store>,
    tail: Option<Tail>,
}

impl Player {
    fn open(&mut self, how: &Value) -> Result<Value, Error> {
        self.tail = None;
        self.store = None;
        let create = match how["create"].as_str() {
            Some("never") => Create::Never,
            Some("new") => Create::New,
            _ => Create::IfMissing,
        };
        let options = Options::new().create(create).read_only(how["read_only"] == true);
        let options = options.ring_size(4 << 20).memory_budget(16 << 20).max_payload(1 << 20);
        self.store = Some(options.open(&self.path)?);
        Ok(json!({}))
    }

    /// Plays a step, and returns what the store returned, in the form of the file.
    fn play(&mut self, step: &Value) -> Result<Value, Error> {
        if let Some(how) = step.get("reopen") {
            return self.open(how);
        }
        let store = self.store.as_ref().expect("a case opens its store before it goes on");
        let mut played = json!({});
        if let Some(operation) = step.get("call") {
            let ticket = call(store, operation)?;
            let seq = step.get("seq").is_some().then(|| ticket.seq());
            ticket.wait()?;
            if let Some(seq) = seq {
                played["seq"] = seq.into();
            }
        } else if let Some(operations) = step.get("commit") {
            let mut commit = Commit::new();
            operations.as_array().unwrap().iter().for_each(|operation| add(&mut commit, operation));
            let ticket = store.commit(&commit)?;
            let seqs: Vec<u64> = ticket.seqs().to_vec();
            ticket.wait()?;
            played["seqs"] = seqs.into();
        } else if let Some(key) = step.get("read") {
            played["entries"] = read(store, &bytes(key), step)?;
        } else if let Some(key) = step.get("bounds") {
            let bounds = store.bounds(bytes(key))?;
            played = json!({ "first": bounds.first, "next": bounds.next });
        } else if let Some(prefix) = step.get("scan") {
            let start = step.get("start").map(bytes).unwrap_or_default();
            let logs = store.scan_from(bytes(prefix), start)?.collect::<Result<Vec<_>, _>>()?;
            let logs = logs.iter().map(|log| json!([hex(&log.key), log.bounds.first, log.bounds.next]));
            played["logs"] = logs.collect();
        } else if let Some(key) = step.get("tail") {
            self.tail = Some(store.tail(bytes(key), number(step, "from"))?);
        } else if step.get("event").is_some() {
            let tail = self.tail.as_mut().expect("a tail is open");
            played["event"] = event(&tail.next_timeout(PATIENCE)?.expect("the event comes"));
        } else if step.get("flush").is_some() {
            store.flush()?;
        } else if step.get("checkpoint").is_some() {
            store.checkpoint()?;
        } else if step.get("close").is_some() {
            store.close()?;
        } else {
            panic!("an unknown step: {step}");
        }
        Ok(played)
    }
}

/// The results that a step names, with bytes as hexadecimal digits.
fn expected(step: &Value) -> Value {
    let entry = |entry: &Value| json!([entry[0], hex(&bytes(&entry[1]))]);
    let log = |log: &Value| json!([hex(&bytes(&log[0])), log[1], log[2]]);
    let each = |value: &Value, of: &dyn Fn(&Value) -> Value| -> Value {
        value.as_array().unwrap().iter().map(of).collect()
    };
    if let Some(error) = step.get("error") {
        return json!({ "error": error });
    }
    let mut expected = json!({});
    match step.as_object().unwrap() {
        step if step.contains_key("call") && step.contains_key("seq") => {
            expected["seq"] = step["seq"].clone()
        }
        step if step.contains_key("commit") => expected["seqs"] = step["seqs"].clone(),
        step if step.contains_key("read") => expected["entries"] = each(&step["entries"], &entry),
        step if step.contains_key("bounds") => {
            expected = json!({ "first": step["first"], "next": step["next"] });
        }
        step if step.contains_key("scan") => expected["logs"] = each(&step["logs"], &log),
        step if step.contains_key("event") => {
            let event = &step["event"];
            expected["event"] = match event.get("entry") {
                Some(of) => json!({ "entry": entry(of) }),
                None => event.clone(),
            };
        }
        _ => {}
    }
    expected
}

/// The kind of an error, and the bounds of the log where the error has them.
fn outline(error: &Error) -> Value {
    let kind = match error.kind() {
        ErrorKind::Invalid => "invalid",
        ErrorKind::NotFound => "not_found",
        ErrorKind::Conflict => "conflict",
        ErrorKind::CannotOpen => "cannot_open",
        ErrorKind::Stopped => "stopped",
        other => panic!("no vector has an error of the kind {other:?}: {error}"),
    };
    match error {
        Error::OutOfRange { first, next, .. } => json!({ "kind": kind, "first": first, "next": next }),
        Error::Conflict { found: Found::Next(next), .. } => json!({ "kind": kind, "next": next }),
        _ => json!({ "kind": kind }),
    }
}

fn read(store: &Store, key: &[u8], step: &Value) -> Result<Value, Error> {
    let from = number(step, "from");
    let entries = match (step["available"] == true, step["to"].as_u64()) {
        (true, Some(to)) => store.read_available(key, from..to),
        (true, None) => store.read_available(key, from..),
        (false, Some(to)) => store.read(key, from..to),
        (false, None) => store.read(key, from..),
    };
    let entries = entries?.collect::<Result<Vec<_>, _>>()?;
    Ok(entries.iter().map(|entry| json!([entry.seq, hex(&entry.payload)])).collect())
}

fn event(event: &TailEvent) -> Value {
    match event {
        TailEvent::Entry(entry) => json!({ "entry": [entry.seq, hex(&entry.payload)] }),
        TailEvent::Trimmed(range) => json!({ "trimmed": [range.start, range.end] }),
        TailEvent::Truncated { next } => json!({ "truncated": next }),
        TailEvent::Deleted => json!({ "deleted": true }),
        other => panic!("no vector has the event {other:?}"),
    }
}

/// The name of an operation, and the key of its log.
fn named(operation: &Value) -> (&str, Vec<u8>) {
    let names =
        ["append", "snapshot", "trim", "truncate", "keep_last", "begin_at", "delete", "set_retention"];
    let mut names = names.into_iter().chain(["expect_next", "expect_absent"]);
    let name = names.find(|name| operation.get(name).is_some()).expect("an operation has a name");
    (name, bytes(&operation[name]))
}

fn retention(operation: &Value) -> Retention {
    let mut retention = Retention::default();
    retention.entries = Some(number(operation, "entries"));
    retention
}

fn call(store: &Store, operation: &Value) -> Result<Ticket, Error> {
    match named(operation) {
        ("append", key) => store.append(key, bytes(&operation["payload"])),
        ("snapshot", key) => store.snapshot(key, bytes(&operation["payload"])),
        ("trim", key) => store.trim(key, number(operation, "before")),
        ("truncate", key) => store.truncate(key, number(operation, "from")),
        ("keep_last", key) => store.keep_last(key, number(operation, "n")),
        ("begin_at", key) => store.begin_at(key, number(operation, "first")),
        ("delete", key) => store.delete(key),
        ("set_retention", key) => store.set_retention(key, retention(operation)),
        (name, _) => panic!("{name} is an operation of commits alone"),
    }
}

fn add(commit: &mut Commit, operation: &Value) {
    match named(operation) {
        ("append", key) => commit.append(key, bytes(&operation["payload"])),
        ("snapshot", key) => commit.snapshot(key, bytes(&operation["payload"])),
        ("trim", key) => commit.trim(key, number(operation, "before")),
        ("truncate", key) => commit.truncate(key, number(operation, "from")),
        ("keep_last", key) => commit.keep_last(key, number(operation, "n")),
        ("begin_at", key) => commit.begin_at(key, number(operation, "first")),
        ("delete", key) => commit.delete(key),
        ("set_retention", key) => commit.set_retention(key, retention(operation)),
        ("expect_next", key) => commit.expect_next(key, number(operation, "next")),
        (_, key) => commit.expect_absent(key),
    };
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("{value} has no number {name}"))
}

/// The bytes that a value stands for: text, hexadecimal digits, or a repeated text.
fn bytes(value: &Value) -> Vec<u8> {
    match (value.as_str(), value["hex"].as_str()) {
        (Some(text), _) => text.as_bytes().to_vec(),
        (None, Some(digits)) => {
            let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
            pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
        }
        (None, None) => {
            value["repeat"].as_str().unwrap().repeat(number(value, "times") as usize).into_bytes()
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
