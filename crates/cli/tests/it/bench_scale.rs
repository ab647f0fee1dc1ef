//! The bench from few logs to many: every station gives its figures, and nothing is left behind.
//! What it measures is the machine's affair.

use crate::common;

use common::Place;
use serde_json::Value;

const QUICK: [&str; 6] = ["bench", "scale", "--seconds", "0.2", "--ring-size", "8M"];

#[test]
fn every_station_gives_its_figures() {
    let place = Place::new();
    let more = ["--rate", "500", "--logs", "10,2e3", "--plot", "scale.svg", "--json"];
    let output = place.run(&[&QUICK[..], &more].concat());
    let told = common::text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{told}");
    for station in ["filling", "500 appends/s, logs at work", "full throttle, creating logs", "kills"] {
        assert!(told.contains(station), "{station} is missing: {told}");
    }
    let table: Value = serde_json::from_slice(&output.stdout).expect("one document");
    let points = table["points"].as_array().unwrap();
    assert_eq!(points.iter().map(|point| point["logs"].as_u64()).collect::<Vec<_>>(), [Some(10), Some(2000)]);
    for point in points {
        let figures = ["filled", "device_p50", "restart_s"];
        let more =
            ["amplification", "snapshot_amplification", "space_idle", "space_compacted", "memory_told"];
        for figure in figures.into_iter().chain(more) {
            assert!(point[figure].as_f64() > Some(0.0), "{figure}: {point}");
        }
        for load in ["full_at_work", "full_spread", "creates", "snapshots"] {
            assert!(point[load]["per_second"].as_f64() > Some(0.0), "{load}: {point}");
        }
        assert!(
            point["all_logs"].as_u64() > point["logs"].as_u64() && point["runs"].as_u64() > Some(0),
            "{point}"
        );
        for load in ["at_work", "spread"] {
            let of = |figure: &str| point[load][figure].as_f64().unwrap();
            assert!(of("p50") > 0.0 && of("p50") <= of("p99") && of("p99") <= of("p999"), "{point}");
            assert!(of("p999") <= of("max") * 1.01 && of("sent") > 0.0, "{point}");
        }
    }
    for row in table["rows"].as_array().unwrap() {
        assert_eq!(row["figures"].as_array().unwrap().len(), 2, "{row}");
        assert!(row["mark"].is_string() || row["holds"].is_null(), "{row}");
    }
    let svg = std::fs::read_to_string(place.dir.path().join("scale.svg")).unwrap();
    assert!(svg.starts_with("<svg ") && svg.contains(">2,000<") || svg.contains(">10,000<"), "{svg}");
    let left = std::fs::read_dir(place.dir.path()).unwrap().count();
    assert_eq!(left, 1, "the plot alone is left");
}

#[test]
fn a_run_goes_on_where_it_was_cut_short() {
    let place = Place::new();
    let args = [&QUICK[..], &["--rate", "500", "--points", "points", "--json", "--logs"]].concat();
    let logs = |list| {
        let output = place.run(&[&args[..], &[list]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", common::text(&output.stderr));
        let table: Value = serde_json::from_slice(&output.stdout).expect("one document");
        let points = table["points"].as_array().unwrap();
        let logs: Vec<_> = points.iter().map(|point| point["logs"].as_u64().unwrap()).collect();
        (logs, common::text(&output.stderr).contains("20 logs, "))
    };
    assert_eq!(logs("20"), (vec![20], true));
    assert_eq!(logs("10,20"), (vec![10, 20], false));
    let other = ["bench", "scale", "--seconds", "0.1", "--logs", "20", "--points", "points"];
    assert!(place.fails(2, &other).contains("points holds points of"));
}

#[test]
fn people_get_a_table_with_verdicts() {
    let place = Place::new();
    let output = place.run(&[&QUICK[..], &["--rate", "500", "--logs", "100"]].concat());
    let told = common::text(&output.stdout);
    for part in ["logs    ", "full throttle: logs at work [1/s]", "restart after a kill [s]", "at most 0.8: "]
    {
        assert!(told.contains(part), "{part} is missing: {told}");
    }
}

#[test]
fn wrong_calls_are_told() {
    let place = Place::new();
    let clap = place.run(&["bench", "scale", "--logs", "1e3,1e12"]);
    assert_eq!((clap.status.code(), common::text(&clap.stderr).contains("use 1 to 1e8")), (Some(2), true));
    place.file("there", "");
    assert!(place.fails(2, &["bench", "scale", "--plot", "there"]).contains("exists"));
    assert!(place.fails(7, &["bench", "scale", "--dir", "no/such/place"]).contains("no/such/place"));
}
