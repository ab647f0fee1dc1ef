//! A text whose keystrokes are updates: equal to the text itself, at each version.

use brooklet_documents::{Documents, Error};

use crate::common::{World, options};
use crate::text::{Edit, Text, byte_of};

/// Returns edits of a text as people make them, with characters of one to four bytes.
fn edits(count: usize) -> (Vec<Vec<Edit>>, Vec<String>) {
    let (mut edits, mut texts, mut random) = (Vec::new(), vec![String::new()], 7_u64);
    for n in 0..count {
        let mut text = texts[n].clone();
        let mut transaction = Vec::new();
        for _ in 0..1 + n % 3 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let len = text.chars().count();
            let at = (random >> 33) as usize % (len + 1);
            let deleted = ((random >> 20) as usize % 3).min(len - at);
            let inserted = ["a", "é", "—", "𝄞", ""][(random >> 40) as usize % 5].repeat(1 + n % 2);
            let range = byte_of(&text, at).unwrap()..byte_of(&text, at + deleted).unwrap();
            text.replace_range(range, &inserted);
            transaction.push((at, deleted, inserted));
        }
        edits.push(transaction);
        texts.push(text);
    }
    (edits, texts)
}

#[test]
fn a_text_is_equal_at_each_version() {
    let (edits, texts) = edits(400);
    let mut world = World::new(options());
    let open = |world: &World| {
        Documents::open(&world.store, Text, options().snapshot_updates(50).history(100)).unwrap()
    };
    let mut documents = open(&world);
    documents.create("doc", "c", &String::new()).unwrap();
    for (edit, version) in edits.iter().zip(1..) {
        documents.patch("doc", version, format!("{version}"), edit).unwrap();
        documents.maintain();
        if version % 90 == 0 {
            world.kill();
            documents = open(&world);
        }
    }
    for version in 301..=401 {
        assert_eq!(*documents.at("doc", version).unwrap().state, texts[version as usize - 1], "{version}");
    }
    // What a client at version 350 lacks, as one change.
    let merged = documents.changes("doc", 350).unwrap().merged.unwrap();
    let mut text = texts[349].clone();
    brooklet_documents::Model::apply(&Text, &mut text, &merged).unwrap();
    assert_eq!(text, texts[400]);
    documents.rewind("doc", 401, "undo", 320).unwrap();
    assert_eq!(*documents.get("doc").unwrap().unwrap().state, texts[319]);
}

#[test]
fn an_edit_outside_of_the_text_changes_nothing() {
    let world = World::new(options());
    let documents = Documents::open(&world.store, Text, options()).unwrap();
    documents.create("doc", "c", &"one".to_owned()).unwrap();
    let change = vec![(3, 0, " more".to_owned()), (9, 0, "lost".to_owned())];
    assert!(matches!(documents.patch("doc", 1, "r", &change), Err(Error::Refused { .. })));
    assert_eq!(*documents.get("doc").unwrap().unwrap().state, "one");
}
