//! The bench of the write-ahead log: each section measures and leaves nothing behind. What it
//! measures is the machine's affair.

use crate::common;

use common::Place;
use serde_json::Value;

/// Runs one section as quickly as it goes; gives its rows.
#[track_caller]
fn measured(section: &str, more: &[&str]) -> Vec<Value> {
    let place = Place::new();
    // Little is written in no time to a volume that is metered.
    let seconds = if section == "shrink" { "0.1" } else { "0.01" };
    let args =
        ["bench", "wal", "--rounds", "1", "--seconds", seconds, "--ring-size", "8M", "--only", section];
    let output = place.run(&[&args[..], more, &["--json"]].concat());
    let message = common::text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{message}");
    let table: Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert!(table["best"]["mb_per_s"].as_f64() > Some(0.0) && table["rounds"] == 1, "{table}");
    let rows = table["rows"].as_array().unwrap();
    if message.contains("skipped: ") {
        eprintln!("{message}");
        return Vec::new();
    }
    assert!(!rows.is_empty(), "{table}");
    for row in rows {
        assert_eq!(row["section"], section, "{row}");
        let figure = row["figure"].as_f64().unwrap();
        // The process may take no more memory than before, and a write may be in time.
        assert!(figure > 0.0 || ["memory", "pace"].contains(&section), "{row}");
        if let Some(limit) = row["limit"].as_f64() {
            assert!((row["ratio"].as_f64().unwrap() - figure / limit).abs() < 1e-6 * figure, "{row}");
        }
        assert_eq!(row["mark"].is_null(), row["holds"].is_null(), "{row}");
    }
    let left: Vec<_> =
        std::fs::read_dir(place.dir.path()).unwrap().flatten().map(|e| e.file_name()).collect();
    assert!(left.is_empty(), "what it made is removed: {left:?}");
    rows.clone()
}

fn marked(rows: &[Value]) -> usize {
    rows.iter().filter(|row| !row["mark"].is_null()).count()
}

#[test]
fn a_lone_writer() {
    let rows = measured("lone", &[]);
    assert_eq!((rows.len(), marked(&rows)), (2, 2));
}

#[test]
fn a_pace() {
    let rows = measured("pace", &[]);
    assert_eq!((rows.len(), marked(&rows)), (3, 1));
}

#[test]
fn full_throttle() {
    let rows = measured("throttle", &[]);
    assert_eq!((rows.len(), marked(&rows)), (6, 5));
    assert!(rows.iter().all(|row| row["notes"]["device with that MB/s"].as_f64() > Some(0.0)));
}

#[test]
fn most_of_the_bandwidth_offered() {
    let rows = measured("offered", &[]);
    assert_eq!(rows.len(), 6);
    for row in rows {
        let note = |name: &str| row["notes"][name].as_f64().unwrap();
        assert!(note("ack avg us") > 0.0 && note("ack p99 us") > 0.0, "{row}");
    }
}

#[test]
fn the_ladder() {
    let rows = measured("ladder", &[]);
    assert_eq!((rows.len(), marked(&rows)), (20, 3));
    for row in rows.iter().skip(3).step_by(4) {
        assert!(row["notes"]["flushes per ack"].as_f64() > Some(0.0), "{row}");
    }
}

#[test]
fn thousands_in_flight() {
    let rows = measured("flight", &[]);
    assert_eq!((rows.len(), marked(&rows)), (4, 4));
}

#[test]
fn codecs() {
    assert_eq!(measured("codec", &[]).len(), 2);
}

#[test]
fn bytes_on_the_device_of_what_is_made_up_and_of_traces() {
    let place = Place::new();
    place.file("t.json", r#"{"endContent":"ab","txns":[{"patches":[[0,0,"a"]]},{"patches":[[1,0,"b"]]}]}"#);
    let rows = measured("shrink", &["--traces", place.dir.path().to_str().unwrap()]);
    assert_eq!((rows.len(), marked(&rows)), (6, 6));
}

#[test]
fn recovery() {
    let rows = measured("recovery", &[]);
    assert_eq!((rows.len(), marked(&rows)), (2, 1));
}

#[test]
fn memory() {
    for row in measured("memory", &[]) {
        assert!(row["figure"].as_f64() >= Some(0.0), "{row}");
    }
}

#[test]
fn the_table_is_for_people_and_says_what_it_cannot_tell() {
    let place = Place::new();
    let output = place.run(&["bench", "wal", "--rounds", "1", "--seconds", "0.01", "--only", "lone"]);
    let told = common::text(&output.stdout);
    for part in ["the device's best: ", "lone (limit: ", "p50 [us]", "ratio at most 1.1: ", "not told here: "]
    {
        assert!(told.contains(part), "{part} is missing: {told}");
    }
}

#[test]
fn wrong_calls_are_told() {
    let place = Place::new();
    assert!(place.fails(2, &["bench", "wal", "--only", "nothing"]).contains("choose from lone, "));
    assert!(place.fails(7, &["bench", "wal", "--dir", "no/such/place"]).contains("no/such/place"));
}
