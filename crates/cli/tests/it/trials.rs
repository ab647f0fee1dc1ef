//! The trials as a newcomer runs them: the demo keeps its promises and leaves nothing behind, the
//! bench measures.

use crate::common;

use common::Place;

#[test]
fn the_demo_kills_three_times_and_loses_nothing() {
    let place = Place::new();
    let report = &place.json(&["demo"])[0];
    assert_eq!(report["lost"], 0);
    let rounds = report["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), 3);
    // On a busy machine a round may end before its first acknowledgement.
    assert!(report["acknowledged"].as_u64() > Some(0), "{report}");
    for round in rounds {
        assert!(round["acknowledged"].is_u64(), "{report}");
        assert!(round["recovery_ms"].as_f64() > Some(0.0), "{report}");
    }
    assert!(report["one_per_second"].as_f64() > Some(0.0) && report["many_per_second"].as_f64() > Some(0.0));
    assert_eq!(std::fs::read_dir(place.dir.path()).unwrap().count(), 0, "what it made is removed");
}

#[test]
fn the_bench_compares_the_store_with_its_limit() {
    let place = Place::new();
    let output = place.run(&["bench", "--rounds", "1", "--json"]);
    let table: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a table");
    let rows = table["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 5, "{table}");
    for row in rows {
        let figure = |name: &str| row[name].as_f64().unwrap();
        assert!(figure("store") > 0.0 && figure("limit") > 0.0, "{row}");
        assert!((figure("ratio") - figure("store") / figure("limit")).abs() < 1e-6, "{row}");
    }
    assert_eq!(std::fs::read_dir(place.dir.path()).unwrap().count(), 0, "what it made is removed");
}

#[test]
fn one_measurement_is_told_with_its_mark() {
    let place = Place::new();
    let output = place.run(&["bench", "--rounds", "1", "--only", "lone"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let told = common::text(&output.stdout);
    assert!(told.contains("one writer that waits for each ack, p50 [us]"), "{told}");
    assert!(told.contains("ratio at most 1.25: ") && told.contains("medians of 1 rounds"), "{told}");
}

#[test]
fn the_demo_of_failover_loses_nothing_with_the_host() {
    let place = Place::new();
    let report = &place.json(&["demo", "--failover"])[0];
    assert!(report["acknowledged"].as_u64() > Some(0), "{report}");
    assert!(report["found"].as_u64() >= report["acknowledged"].as_u64(), "{report}");
    // A busy machine may keep the owner from its beats, so that the standby comes before its end.
    assert!(report["seconds_until_served"].as_f64() > Some(0.0), "{report}");
    assert_eq!(std::fs::read_dir(place.dir.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn a_bench_that_has_no_place_to_work_says_so() {
    let place = Place::new();
    let message = place.fails(7, &["bench", "--dir", "no/such/place", "--only", "lone"]);
    assert!(message.contains("no/such/place"), "{message}");
}

#[test]
fn documents_are_measured_beside_the_device_and_the_store() {
    let place = Place::new();
    let small =
        ["--documents", "64", "--rate", "400", "--seconds", "0.5", "--rounds", "1", "--idle", "20", "--json"];
    let output = place.run(&[&["bench", "documents"], &small[..]].concat());
    let table: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a table");
    let rows = table["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6, "{table}");
    assert!(rows[..5].iter().all(|row| row["figure"].as_f64() > Some(0.0)), "{table}");
    assert!(rows[5]["figure"].as_f64() >= Some(0.0), "{table}");
    assert!(rows[0]["notes"]["patches/s done"].as_f64() > Some(0.0), "{table}");
    assert_eq!(std::fs::read_dir(place.dir.path()).unwrap().count(), 0, "what it made is removed");
}
