//! `brooklet space`: making, changing, listing and removing spaces, and what they refuse.

use crate::common;

use common::{Place, text};
use serde_json::Value;

#[test]
fn a_space_is_made_changed_listed_and_removed() {
    let place = Place::new();
    let made = place.ok(&["space", "create", "STORE", "games", "--class", "deferred", "--max-logs", "2"]);
    assert_eq!(made, "games: deferred within 100ms, 0 of 2 logs, 0 bytes\n");
    place.ok(&["append", "STORE", "games/7", "e4", "e5"]);
    let set =
        ["--within", "20ms", "--max-bytes", "1K", "--max-logs", "none", "--entries", "3", "--age", "1d"];
    let set = place.ok(&[&["space", "set", "STORE", "games"][..], &set].concat());
    let all = "games: deferred within 20ms, 1 log, 4 of 1024 bytes; a log keeps 3 entries, for 1d\n";
    assert_eq!(set, all);
    assert_eq!(place.ok(&["space", "list", "STORE"]), all);
    let json = place.json(&["space", "list", "STORE"]).remove(0);
    assert_eq!((&json["name"], &json["within_ms"]), (&"games".into(), &20.into()));
    assert!(json["max_logs"].is_null());
    place.ok(&["space", "set", "STORE", "games", "--class", "durable", "--max-logs", "1"]);
    let said = place.fails(6, &["append", "STORE", "games/8", "d4"]);
    assert!(said.contains("exceed the quota of space games, 1 logs"), "{said}");
    place.ok(&["append", "STORE", "chess/8", "d4"]);
    place.ok(&["space", "remove", "STORE", "games"]);
    assert_eq!(place.ok(&["space", "list", "STORE"]), "no spaces\n");
    assert_eq!(place.ok(&["append", "STORE", "games/8", "d4"]), "0\n");
    assert_eq!(text(&place.run(&["list", "STORE"]).stdout).lines().count(), 3);
}

#[test]
fn rules_are_set_shown_and_removed() {
    let place = Place::new();
    let rules = ["--age", "30d", "--rule", "audit/*=none", "--rule", "*/presence=entries:1,age:1h"];
    let made = place.ok(&[&["space", "create", "STORE", "t"][..], &rules].concat());
    let shown = "t: durable; a log keeps entries for 30d; audit/* keeps all entries; ";
    assert_eq!(made, format!("{shown}*/presence keeps 1 entry, for 1h\n"));
    place.ok(&["append", "STORE", "t/7/presence", "here", "away"]);
    assert_eq!(place.ok(&["read", "STORE", "t/7/presence"]).lines().count(), 1);
    let json = place.json(&["space", "list", "STORE"]).remove(0);
    let [audit, presence] = &json["rules"].as_array().unwrap()[..] else { panic!("{json}") };
    assert_eq!((&audit["pattern"], &audit["keeps_entries"]), (&"audit/*".into(), &Value::Null));
    assert_eq!((&presence["keeps_entries"], &presence["keeps_ms"]), (&1.into(), &3_600_000.into()));
    // Other settings leave the rules, and new rules replace them.
    assert!(place.ok(&["space", "set", "STORE", "t", "--max-logs", "9"]).contains("audit/*"));
    let set = place.ok(&["space", "set", "STORE", "t", "--rule", "x=bytes:1K"]);
    assert!(set.ends_with("for 30d; x keeps 1024 bytes\n"), "{set}");
    assert!(place.ok(&["space", "set", "STORE", "t", "--rule", "none"]).ends_with("for 30d\n"));
    let wrong = place.run(&["space", "set", "STORE", "t", "--rule", "x=7d"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("use limits such as entries:100"), "{}", text(&wrong.stderr));
    let said = place.fails(2, &["space", "set", "STORE", "t", "--rule", "=age:7d"]);
    assert!(said.contains("a pattern of 0 bytes"), "{said}");
}

#[test]
fn a_space_is_kept_in_memory_and_dumped() {
    let place = Place::new();
    let made = place.ok(&["space", "create", "STORE", "games", "--class", "memory", "--memory", "1M"]);
    assert_eq!(made, "games: memory of 1048576 bytes, 0 logs, 0 bytes\n");
    // Each command stops the store cleanly, which dumps what it did.
    place.ok(&["append", "STORE", "games/7", "e4", "e5"]);
    assert_eq!(text(&place.run(&["read", "STORE", "games/7"]).stdout).lines().count(), 2);
    assert_eq!(place.ok(&["space", "dump", "STORE", "games"]), "nothing has changed since the last dump\n");
    let set = ["space", "set", "STORE", "games", "--when-full", "drop-oldest", "--dump-every", "5s"];
    let all = "games: memory of 1048576 bytes, then drops the oldest logs, dumped every 5s, 1 log, 4 bytes\n";
    assert_eq!(place.ok(&set), all);
    let json = place.json(&["space", "list", "STORE"]).remove(0);
    assert_eq!((&json["memory_bytes"], &json["dump_every_ms"]), (&1048576.into(), &5000.into()));
    place.ok(&["space", "set", "STORE", "games", "--dump-every", "none", "--memory", "64K"]);
    let said = place.fails(2, &["space", "set", "STORE", "games", "--memory", "1K"]);
    assert!(said.contains("use 64 KiB to"), "{said}");
    place.ok(&["space", "set", "STORE", "games", "--class", "durable"]);
    assert_eq!(place.ok(&["space", "list", "STORE"]), "games: durable\n");
    assert!(
        place
            .fails(2, &["space", "dump", "STORE", "games"])
            .contains("dump only spaces that are kept in memory")
    );
    assert_eq!(place.ok(&["append", "STORE", "games/7", "d4"]), "2\n");
}

#[test]
fn spaces_that_are_not_there_or_make_no_sense_are_refused() {
    let place = Place::new();
    place.ok(&["append", "STORE", "log", "x"]);
    assert!(place.fails(3, &["space", "set", "STORE", "games"]).contains("no space games"));
    assert!(place.fails(3, &["space", "remove", "STORE", "games"]).contains("list the spaces that exist"));
    assert!(place.fails(2, &["space", "create", "STORE", "a/b"]).contains("not a valid name of a space"));
    let wrong = ["space", "create", "STORE", "a", "--within", "2h"];
    assert!(place.fails(2, &wrong).contains("from 1 ms to 1 hour"));
    place.ok(&["space", "create", "STORE", "a"]);
    assert!(
        place.fails(2, &["space", "create", "STORE", "a"]).contains("configure it, or choose another name")
    );
    assert_eq!(place.ok(&["space", "list", "STORE"]), "a: durable\n");
}

/// A setting of another class than the space's is no setting.
#[test]
fn settings_of_another_class_are_refused() {
    let place = Place::new();
    let refused = |args: &[&str], says: &[&str]| {
        let said = place.fails(2, &[&["space"], args].concat());
        assert!(says.iter().all(|part| said.contains(part)), "{args:?}: {said}");
    };
    let [create, set] = [["create", "STORE", "a"], ["set", "STORE", "a"]];
    let with = |call: [&'static str; 3], more: &[&'static str]| [&call[..], more].concat();
    for (class, option, value) in [
        ("durable", "--memory", "1G"),
        ("durable", "--dump-every", "1m"),
        ("durable", "--when-full", "refuse"),
        ("durable", "--within", "5s"),
        ("deferred", "--memory", "64M"),
        ("memory", "--within", "5s"),
    ] {
        refused(&with(create, &["--class", class, option, value]), &[option, class]);
    }
    refused(&with(create, &["--within", "5s", "--memory", "64M"]), &["--within", "--memory"]);
    assert!(!place.store.exists(), "a call that is refused creates no store");
    place.ok(&["space", "create", "STORE", "a"]);
    refused(&with(set, &["--class", "durable", "--dump-every", "none"]), &["--dump-every"]);
    refused(&with(set, &["--within", "5s", "--when-full", "refuse"]), &["--within"]);
    assert_eq!(place.ok(&["space", "list", "STORE"]), "a: durable\n");
    // An option alone changes the class.
    assert!(place.ok(&["space", "set", "STORE", "a", "--within", "5s"]).starts_with("a: deferred within 5s"));
    assert!(place.ok(&["space", "set", "STORE", "a", "--memory", "1M"]).starts_with("a: memory of 1048576"));
}
