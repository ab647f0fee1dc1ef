//! Input that is refused, and entries that are damaged.

use brooklet::MAX_KEY;
use brooklet_yrs::Error;
use proptest::prelude::*;
use yrs::updates::decoder::Decode;
use yrs::{Doc, Transact, Update};

use crate::common::{Replica, memory};

#[test]
fn bytes_that_are_no_update_are_refused_and_change_nothing() {
    let (store, documents) = memory();
    let good = Replica::new(1).insert(0, "hello");
    let cases = [
        Vec::new(),
        vec![0],
        b"junk".to_vec(),
        good[..good.len() - 1].to_vec(),
        [&good[..], &[0]].concat(),
        // As many clients as memory may hold.
        vec![0xff, 0xff, 0xff, 0xff, 0x07, 0, 0],
        // A client id of 64 bits, at which yrs panics.
        vec![1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 1, 0],
    ];
    for case in cases {
        let error = documents.push_update("doc", &case).unwrap_err();
        assert!(matches!(error, Error::InvalidUpdate { .. }), "{error}");
        assert!(documents.submit_update("doc", &case).is_err());
    }
    assert_eq!(store.scan("").unwrap().count(), 0);
    documents.push_update("doc", &good).unwrap();
    assert_eq!(Replica::load(&documents, "doc").string(), "hello");
}

#[test]
fn names_that_are_too_long_are_refused() {
    let (_store, documents) = memory();
    let update = Replica::new(1).insert(0, "a");
    let most = MAX_KEY - "docs/d".len();
    documents.push_update(vec![b'n'; most], &update).unwrap();
    documents.clear_doc(vec![b'n'; most]).unwrap();
    let long = vec![b'n'; most + 1];
    let errors = [
        documents.push_update(&long, &update).unwrap_err(),
        documents.load_doc(&long, &mut Doc::new().transact_mut()).unwrap_err(),
        documents.flush_doc(&long).unwrap_err(),
        documents.clear_doc(&long).unwrap_err(),
        documents.updates(&long, 0).unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, Error::NameTooLong { len, limit } if (len, limit) == (most + 1, most)));
    }
    let error = documents.insert_meta("name", vec![b'k'; most], b"v").unwrap_err();
    assert!(matches!(error, Error::MetaKeyTooLong { len, limit } if (len, limit) == (most + 4, most - 2)));
    documents.insert_meta("name", vec![b'k'; most - 6], b"v").unwrap();
}

#[test]
fn a_damaged_entry_is_named_and_nothing_is_applied() {
    let (store, documents) = memory();
    for (n, junk) in [&b"\x02junk"[..], b"\x09\0\0", b"", b"\x01"].into_iter().enumerate() {
        let (name, client) = (format!("doc {n}"), Replica::new(1));
        documents.push_update(&name, &client.insert(0, "good")).unwrap();
        store.append(format!("docs/d{name}"), junk).unwrap().wait().unwrap();
        documents.push_update(&name, &client.insert(0, "better")).unwrap();
        let replica = Replica::new(2);
        let errors = [
            documents.load_doc(&name, &mut replica.doc.transact_mut()).unwrap_err(),
            documents.flush_doc(&name).unwrap_err(),
            documents.get_state_vector(&name).unwrap_err(),
        ];
        for error in errors {
            let Error::Damaged { document, seq, .. } = error else { panic!("{error}") };
            assert_eq!((document, seq), (format!("\"{name}\""), 1));
        }
        assert_eq!(replica.string(), "");
        assert_eq!(store.bounds(format!("docs/d{name}")).unwrap().len(), 3);
    }
}

/// A stack that ends aborts the process.
#[test]
fn values_that_are_nested_deep_are_refused() {
    let nested = |levels: usize| {
        let begin = [1, 1, 1, 0, 8, 1, 1, b'a', 1];
        [&begin[..], &[117, 1].repeat(levels), &[126, 0]].concat()
    };
    let run = move || {
        let (store, documents) = memory();
        documents.push_update("doc", &nested(100)).unwrap();
        assert!(documents.load_doc("doc", &mut Doc::new().transact_mut()).unwrap().is_some());
        // Maps that name more parts than the bytes have.
        let map = [&[1, 1, 1, 0, 8, 1, 1, b'a', 1][..], &[118, 0xff, 0xff, 0x7f, 0].repeat(100), &[126, 0]];
        for bytes in [nested(10_000), map.concat(), vec![1, 1, 1, 0, 8, 1, 1, b'a', 0xff, 0xff, 0x7f, 126, 0]]
        {
            let error = documents.push_update("doc", &bytes).unwrap_err();
            assert!(matches!(error, Error::InvalidUpdate { .. }), "{error}");
        }
        // As an earlier version took it.
        store.append("docs/dold", [&[2], &nested(10_000)[..]].concat()).unwrap().wait().unwrap();
        let error = documents.load_doc("old", &mut Doc::new().transact_mut()).unwrap_err();
        assert!(matches!(error, Error::Damaged { seq: 0, .. }), "{error}");
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap();
}

proptest! {
    /// Bytes that are pushed are an update that yrs decodes, or they are refused.
    #[test]
    fn any_bytes_are_refused_or_an_update(bytes: Vec<u8>) {
        let (store, documents) = memory();
        match documents.push_update("doc", &bytes) {
            Ok(_) => prop_assert!(Update::decode_v1(&bytes).is_ok()),
            Err(error) => {
                let is_refusal = matches!(error, Error::InvalidUpdate { .. });
                prop_assert!(is_refusal);
                prop_assert_eq!(store.scan("").unwrap().count(), 0);
            }
        }
    }

    /// So it is with an update of which some bytes are others.
    #[test]
    fn a_changed_update_is_refused_or_an_update(changes in prop::collection::vec((0..64_usize, any::<u8>()), 1..4)) {
        let client = Replica::new(1);
        let (first, second) = (client.insert(0, "hello"), client.remove(1, 2));
        let (_store, documents) = memory();
        documents.push_update("doc", &first).unwrap();
        for update in [first, second] {
            let mut bytes = update;
            for (at, byte) in &changes {
                let at = at % bytes.len();
                bytes[at] = *byte;
            }
            if documents.push_update("doc", &bytes).is_ok() {
                prop_assert!(Update::decode_v1(&bytes).is_ok());
            }
        }
    }
}
