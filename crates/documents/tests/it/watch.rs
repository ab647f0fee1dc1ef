//! Watches: no gap, no duplicate, and names for what cannot be returned.

use std::thread;
use std::time::Duration;

use brooklet::Store;
use brooklet_documents::{Documents, ErrorKind, Event, Json, JsonChange, JsonState, Options, Watch};
use serde_json::json;

use crate::common::{World, options, set, state};

type JsonEvent = Event<JsonState, JsonChange>;

fn all(watch: &mut Watch<Json>) -> Vec<String> {
    let mut events = Vec::new();
    while let Some(event) = watch.try_next().unwrap() {
        events.push(short(&event));
    }
    events
}

fn short(event: &JsonEvent) -> String {
    match event {
        Event::Update(update) => {
            if update.back_to.is_none() {
                assert_eq!(update.change, set(update.version));
            }
            format!("{}", update.version)
        }
        Event::Created { version, state, .. } => format!("created {version} {}", state.value()),
        Event::Missed { from, to } => format!("missed {from}..={to}"),
        Event::Deleted => "deleted".into(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_watch_returns_each_update_once_when_it_is_durable() {
    let world = World::new(options());
    let mut early = world.documents.watch("doc", 0).unwrap();
    assert!(all(&mut early).is_empty());
    world.count_to("doc", 3);
    assert_eq!(all(&mut early), ["created 1 {\"n\":1}", "2", "3"]);
    let mut late = world.documents.watch("doc", 2).unwrap();
    let mut now = world.documents.watch("doc", 3).unwrap();
    assert_eq!(all(&mut late), ["3"]);
    assert!(all(&mut now).is_empty());
    let submitted = world.documents.submit("doc", 3, "x", &set(4)).unwrap();
    assert!(all(&mut now).is_empty(), "it is not durable yet");
    submitted.wait().unwrap();
    assert_eq!(all(&mut early), ["4"]);
    assert_eq!(all(&mut now), ["4"]);
    // A snapshot is no event, also where it drops what was seen.
    world.documents.snapshot("doc", 0).unwrap();
    assert!(all(&mut early).is_empty());
    world.count_to("doc", 5);
    assert_eq!((all(&mut early), all(&mut now)), (vec!["5".into()], vec!["5".into()]));
    assert_eq!(all(&mut late), ["missed 4..=4", "5"]);
    assert_eq!(late.version(), Some(5));
    assert_eq!(world.documents.watch("doc", 6).unwrap_err().kind(), ErrorKind::OutOfHistory);
}

#[test]
fn a_slow_watch_learns_what_it_missed() {
    let world = World::new(options());
    world.count_to("doc", 3);
    let mut slow = world.documents.watch("doc", 3).unwrap();
    let mut partly = world.documents.watch("doc", 1).unwrap();
    world.count_to("doc", 9);
    world.documents.snapshot("doc", 2).unwrap();
    world.count_to("doc", 11);
    assert_eq!(all(&mut slow), ["missed 4..=7", "8", "9", "10", "11"]);
    assert_eq!(all(&mut partly), ["missed 2..=7", "8", "9", "10", "11"]);
    world.documents.snapshot("doc", 0).unwrap();
    let mut behind = world.documents.watch("doc", 5).unwrap();
    assert_eq!(all(&mut behind), ["missed 6..=11"]);
    let mut from_nothing = world.documents.watch("doc", 0).unwrap();
    assert_eq!(all(&mut from_nothing), ["missed 1..=11"]);
    world.count_to("doc", 12);
    for watch in [&mut slow, &mut behind, &mut from_nothing] {
        assert_eq!(all(watch), ["12"]);
    }
}

#[test]
fn a_document_deleted_and_made_again_is_named() {
    let mut world = World::new(options());
    world.count_to("doc", 3);
    let mut watch = world.documents.watch("doc", 3).unwrap();
    let mut sees_the_gap = world.documents.watch("doc", 3).unwrap();
    world.documents.delete("doc", 3).unwrap();
    assert_eq!(all(&mut sees_the_gap), ["deleted"]);
    let again = world.documents.create("doc", "n", &state(json!({"n": 0}))).unwrap().version;
    world.documents.patch("doc", again, "m", &set(again + 1)).unwrap();
    let created = [format!("created {again} {{\"n\":0}}"), format!("{}", again + 1)];
    assert_eq!(all(&mut watch), [&["deleted".to_owned()], &created[..]].concat());
    assert_eq!(all(&mut sees_the_gap), created);
    // A version of the deleted document, after a restart.
    world.kill();
    let mut late = world.documents.watch("doc", 2).unwrap();
    assert_eq!(all(&mut late), [&["deleted".to_owned()], &created[..]].concat());
    world.documents.delete("doc", again + 1).unwrap();
    let mut none = world.documents.watch("doc", 2).unwrap();
    assert_eq!(all(&mut none), ["deleted"]);
    assert_eq!(none.version(), None);
}

#[test]
fn a_watch_waits_on_another_thread() {
    let store = Store::in_memory(1).unwrap();
    let documents = Documents::open(&store, Json::new(), Options::new("docs/").snapshot_updates(7)).unwrap();
    documents.create("doc", "c", &state(json!({"n": 1}))).unwrap();
    let watch = documents.watch("doc", 1).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for version in 1..100 {
                documents.patch("doc", version, format!("{version}"), &set(version + 1)).unwrap();
            }
        });
        // The history holds 100 versions: nothing is missed.
        let seen: Vec<_> = watch.take(99).map(|event| short(&event.unwrap())).collect();
        assert_eq!(seen, (2..=100).map(|version| version.to_string()).collect::<Vec<_>>());
    });
    let mut idle = documents.watch("doc", 100).unwrap();
    assert_eq!(idle.next_timeout(Duration::from_millis(1)).unwrap(), None);
    drop(documents);
    store.close().unwrap();
    assert!(idle.next().unwrap().is_err());
}
