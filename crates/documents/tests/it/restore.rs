//! Restores of single documents from views and backups.

use brooklet::Progress;
use brooklet_archive::{Archive, Bucket, Which};
use brooklet_documents::{Error, ErrorKind, Event};
use serde_json::json;

use crate::common::{World, options, set, state};

#[test]
fn a_deleted_document_comes_back_under_a_new_version() {
    let mut world = World::new(options());
    world.count_to("doc", 5);
    let view = world.store.view().unwrap();
    world.documents.patch("doc", 5, "bad", &set(0)).unwrap();
    world.documents.delete("doc", 6).unwrap();
    assert!(matches!(world.documents.restore("doc", 6, "r", &view, None), Err(Error::NotFound { .. })));
    let made = world.documents.restore("doc", 0, "r", &view, None).unwrap();
    assert!(made.version > 6 && !made.repeated, "{made:?}");
    assert_eq!(world.value("doc"), json!({"n": 5}));
    world.kill();
    assert_eq!(world.value("doc"), json!({"n": 5}));
    // A patch of the deleted document is a conflict.
    assert!(matches!(world.documents.patch("doc", 6, "x", &set(1)), Err(Error::Conflict { .. })));
    world.documents.patch("doc", made.version, "y", &set(1)).unwrap();
}

#[test]
fn a_document_goes_back_beyond_its_history() {
    let world = World::new(options().snapshot_updates(4).history(2));
    world.count_to("doc", 5);
    let view = world.store.view().unwrap();
    world.count_to("doc", 30);
    world.documents.maintain();
    assert!(matches!(world.documents.at("doc", 3), Err(Error::HistoryGone { .. })));
    match world.documents.restore("doc", 29, "r", &view, Some(3)) {
        Err(Error::Conflict { expected: 29, head: 30, .. }) => {}
        result => panic!("{result:?}"),
    }
    assert_eq!(world.value("doc"), json!({"n": 30}));
    let mut watch = world.documents.watch("doc", 30).unwrap();
    let made = world.documents.restore("doc", 30, "r", &view, Some(3)).unwrap();
    assert!(made.version > 30);
    assert_eq!(world.value("doc"), json!({"n": 3}));
    assert_eq!(watch.next().unwrap().unwrap(), Event::Deleted);
    match watch.next().unwrap().unwrap() {
        Event::Created { version, state, .. } => {
            assert_eq!((version, &state["n"]), (made.version, &json!(3)));
        }
        event => panic!("{event:?}"),
    }
}

#[test]
fn a_restore_happens_once() {
    let mut world = World::new(options());
    world.count_to("doc", 3);
    let view = world.store.view().unwrap();
    let made = world.documents.restore("doc", 3, "r", &view, Some(2)).unwrap();
    world.documents.patch("doc", made.version, "on", &set(9)).unwrap();
    for _ in 0..2 {
        let again = world.documents.restore("doc", 3, "r", &view, Some(2)).unwrap();
        assert_eq!((again.version, again.repeated), (made.version, true));
        match world.documents.restore("doc", 3, "r", &view, Some(1)) {
            Err(Error::RequestReused { version, .. }) => assert_eq!(version, made.version),
            result => panic!("{result:?}"),
        }
        assert_eq!(world.value("doc"), json!({"n": 9}));
        world.kill();
    }
}

#[test]
fn a_view_has_documents_as_they_were() {
    let world = World::new(options().snapshot_updates(4).history(2));
    world.count_to("doc", 10);
    world.documents.maintain();
    world.count_to("doc", 12);
    let view = world.store.view().unwrap();
    world.documents.delete("doc", 12).unwrap();
    let in_view = |version| world.documents.in_view(&view, "doc", version);
    for version in [8, 9, 10, 11, 12] {
        let found = in_view(Some(version)).unwrap().unwrap();
        assert_eq!((found.version, &found.state["n"]), (version, &json!(version)));
    }
    assert_eq!(in_view(None).unwrap().unwrap().version, 12);
    assert!(matches!(in_view(Some(3)), Err(Error::HistoryGone { .. })));
    assert!(matches!(in_view(Some(13)), Err(Error::NoSuchVersion { .. })));
    assert_eq!(world.documents.in_view(&view, "nothing", None).unwrap(), None);
    let missing = world.documents.restore("nothing", 0, "r", &view, None);
    assert!(matches!(missing, Err(Error::NotFound { .. })));
}

#[test]
fn one_document_comes_back_from_an_archive() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Bucket::open(dir.path().join("bucket").to_str().unwrap()).unwrap();
    let mut archive = Archive::new(bucket.clone(), dir.path().join("note"), "this host").unwrap();
    let world = World::new(options());
    world.count_to("doc", 4);
    world.count_to("other", 4);
    archive.backup(&world.store, Progress::ignore).unwrap();
    world.count_to("doc", 7);
    world.count_to("other", 7);

    let view = bucket.backup(Which::Latest).unwrap().view(1 << 20).unwrap();
    world.documents.restore("doc", 7, "r", &view, Some(3)).unwrap();
    assert_eq!(world.value("doc"), json!({"n": 3}));
    assert_eq!(world.value("other"), json!({"n": 7}));
}

/// The error of a damaged document names this remedy.
#[test]
fn a_damaged_document_comes_back() {
    let mut world = World::new(options());
    world.count_to("doc", 5);
    let view = world.store.view().unwrap();
    world.store.append("docs/ddoc", b"damage").unwrap().wait().unwrap();
    world.reopen();
    let documents = &world.documents;
    assert_eq!(documents.get("doc").unwrap_err().kind(), ErrorKind::Damaged);
    let made = documents.restore("doc", 5, "r", &view, Some(4)).unwrap();
    // No version of the damaged document comes again.
    assert_eq!((made.version, made.repeated), (7, false));
    assert_eq!(world.value("doc"), json!({"n": 4}));
    assert!(world.documents.restore("doc", 5, "r", &view, Some(4)).unwrap().repeated);
    world.kill();
    assert_eq!(world.value("doc"), json!({"n": 4}));
}

#[test]
fn a_damaged_document_can_be_deleted() {
    let mut world = World::new(options());
    world.count_to("doc", 5);
    world.store.append("docs/ddoc", b"damage").unwrap().wait().unwrap();
    world.reopen();
    assert_eq!(world.documents.delete("doc", 5).unwrap_err().kind(), ErrorKind::Damaged);
    world.documents.discard("doc").unwrap();
    assert_eq!(world.documents.get("doc").unwrap(), None);
    assert_eq!(world.documents.discard("doc").unwrap_err().kind(), ErrorKind::NotFound);
    // Versions go on behind those of the damaged document.
    assert_eq!(world.documents.create("doc", "again", &state(json!({"n": 1}))).unwrap().version, 7);
    let submitted = world.documents.submit("doc", 7, "on", &set(2)).unwrap();
    world.documents.discard("doc").unwrap();
    drop(submitted);
    world.kill();
    assert_eq!(world.documents.get("doc").unwrap(), None);
}
