//! The programs of `examples/`, which people copy: each runs, twice on the same store.

#![expect(dead_code, reason = "each has a `main`, which cargo runs")]

#[path = "../../examples/async_tokio.rs"]
mod async_tokio;
#[path = "../../examples/document.rs"]
mod document;
#[path = "../../examples/first_steps.rs"]
mod first_steps;
#[path = "../../examples/outbox.rs"]
mod outbox;
#[path = "../../examples/spaces.rs"]
mod spaces;
#[path = "../../examples/tail.rs"]
mod tail;

/// Runs a program on a new store, and once more on what it left.
fn twice<T>(run: impl Fn(&std::path::Path) -> T) -> [T; 2] {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    [run(&path), run(&path)]
}

#[test]
fn first_steps() {
    twice(|path| first_steps::run(path).unwrap());
}

#[test]
fn an_outbox_announces_each_withdrawal_once() {
    // 100 allows three withdrawals of 30; the second run adds 100 to the 10 that are left.
    assert_eq!(twice(|path| outbox::run(path).unwrap()), [3, 3]);
}

#[test]
fn a_reader_goes_on_where_it_stopped() {
    assert_eq!(twice(|path| tail::run(path).unwrap()), [10, 10]);
}

#[test]
fn a_document_stays_short() {
    let [(first, entries), (second, more)] = twice(|path| document::run(path).unwrap());
    assert!(second.starts_with(&first) && second.len() == 2 * first.len());
    assert!(entries <= 8 && more <= 8, "{entries} {more}");
}

#[test]
fn a_space_keeps_its_limits() {
    assert_eq!(twice(|path| spaces::run(path).unwrap()), [100, 100]);
}

#[test]
fn a_thousand_tasks_append() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    assert_eq!(twice(|path| runtime.block_on(async_tokio::run(path)).unwrap()), [1000, 1000]);
}
