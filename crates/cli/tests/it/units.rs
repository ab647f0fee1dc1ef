//! Times and dates: people read them in the units that they write.

use crate::common;

use common::{Place, text};

#[test]
fn ages_are_shown_as_they_are_written() {
    let place = Place::new();
    place.ok(&["append", "STORE", "k", "x", "--ring-size", "1M"]);
    for (written, shown) in [
        ("7d", "7d"),
        ("90m", "1h 30m"),
        ("1h 30m", "1h 30m"),
        ("1h30m", "1h 30m"),
        ("7200250 ms", "2h 250ms"),
        ("2w", "14d"),
        ("3600500ms", "1h 500ms"),
    ] {
        let row = place.ok(&["retain", "STORE", "k", "--age", written]);
        assert_eq!(row, format!("k  first 0  next 1  1 entry  for {shown}\n"), "{written}");
        assert_eq!(place.ok(&["list", "STORE"]), row);
        assert_eq!(place.ok(&["inspect", "STORE", "k"]), row);
        assert_eq!(place.ok(&["retain", "STORE", "k", "--age", shown]), row, "it is read back");
    }
    for wrong in ["7", "d", "1h30", "1x", "-1s"] {
        assert_eq!(place.run(&["retain", "STORE", "k", &format!("--age={wrong}")]).status.code(), Some(2));
    }
}

#[test]
fn dates_are_dates_and_are_read_back() {
    let place = Place::new();
    place.ok(&["append", "STORE", "k", "x", "--ring-size", "1M"]);
    let map = place.ok(&["inspect", "STORE"]);
    let created = map.lines().find_map(|line| line.strip_prefix("created    ")).unwrap();
    let date = created.split(',').next().unwrap();
    assert!(is_date(date), "{date}");
    let json = &place.json(&["inspect", "STORE"])[0];
    assert_eq!(json["created"], date.replacen(' ', "T", 1).replace(" UTC", ".000Z"));
    place.ok(&["archive", "STORE", "bucket"]);
    let row = place.ok(&["backups", "bucket"]);
    let written = row.trim().strip_prefix("0  ").unwrap();
    assert!(is_date(written), "{written}");
    let one = place.ok(&["backups", "bucket", "--at", written]);
    let taken = one.strip_prefix("backup 0, taken ").unwrap().split(" by ").next().unwrap();
    assert!(is_date(taken), "{taken}");
    let told = place.ok(&["restore", "bucket", "new", "--dry-run"]);
    assert!(told.contains(&format!("taken {taken}, ")), "{told}");
    let json = &place.json(&["backups", "bucket", "--backup", "0"])[0];
    assert_eq!(json["taken"], taken.replacen(' ', "T", 1).replace(" UTC", "Z"));
    assert_eq!(text(&place.run(&["backups", "bucket", "--at", "yesterday"]).stdout), "");
}

/// Whether this is such as `2026-11-27 09:30:00 UTC`, perhaps with milliseconds.
fn is_date(text: &str) -> bool {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    ["0000-00-00 00:00:00 UTC", "0000-00-00 00:00:00.000 UTC"].contains(&&shape[..])
}
