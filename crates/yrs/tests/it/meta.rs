//! Metadata.

use crate::common::{Replica, memory};

#[test]
fn metadata_is_small_values_by_key() {
    let (store, documents) = memory();
    assert_eq!(documents.get_meta("doc", "owner").unwrap(), None);
    for n in 0..5_u8 {
        documents.insert_meta("doc", "owner", &[n]).unwrap();
    }
    documents.insert_meta("doc", "empty", b"").unwrap();
    documents.insert_meta("doc", b"\0\xff", b"bytes").unwrap();
    documents.insert_meta("do", "cowner", b"another document").unwrap();
    assert_eq!(documents.get_meta("doc", "owner").unwrap().as_deref(), Some(&[4][..]));
    let all: Vec<_> = documents.iter_meta("doc").unwrap().map(Result::unwrap).collect();
    let expected = [(&b"\0\xff"[..], &b"bytes"[..]), (b"empty", b""), (b"owner", &[4])];
    assert!(all.iter().map(|(key, value)| (&key[..], &value[..])).eq(expected));
    // A cell is one entry, however often it is set.
    let cells = store.scan("docs/m").unwrap().map(|log| log.unwrap().bounds.len());
    assert!(cells.into_iter().all(|len| len == 1));

    documents.remove_meta("doc", "owner").unwrap();
    documents.remove_meta("doc", "owner").unwrap();
    assert_eq!(documents.get_meta("doc", "owner").unwrap(), None);
    assert_eq!(documents.iter_meta("doc").unwrap().count(), 2);
    // Metadata makes no document.
    assert_eq!(documents.iter_docs().unwrap().count(), 0);
    documents.push_update("doc", &Replica::new(1).insert(0, "a")).unwrap();
    documents.flush_doc("doc").unwrap();
    assert_eq!(documents.iter_meta("doc").unwrap().count(), 2);
}
