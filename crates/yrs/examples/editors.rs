//! Two editors of one document, and a restart between their edits.
//!
//! ```sh
//! cargo run -p brooklet-yrs --example editors -- STORE     # editors.brooklet if left out
//! ```

use std::path::Path;

use brooklet::{Options, Store};
use brooklet_yrs::{Documents, Error};
use yrs::{Doc, GetString, Text, Transact};

/// Opens the store, as a server does at its start.
fn start(path: &Path) -> Result<(Store, Documents), Error> {
    let store = Options::new().ring_size(4 << 20).max_payload(1 << 20).open(path)?;
    let documents = Documents::new(&store, "docs/").flush_every(100);
    Ok((store, documents))
}

/// Opens the document as an editor, and puts words at its front. The edit is durable when this
/// returns.
fn edit(documents: &Documents, words: &str) -> Result<(), Error> {
    let doc = Doc::new();
    documents.load_doc("notes", &mut doc.transact_mut())?;
    let text = doc.get_or_insert_text("text");
    let mut txn = doc.transact_mut();
    text.insert(&mut txn, 0, words);
    documents.push_update("notes", &txn.encode_update_v1())?;
    Ok(())
}

/// Edits a new document by two editors, and returns its text.
pub fn run(path: &Path) -> Result<String, Error> {
    let (store, documents) = start(path)?;
    documents.clear_doc("notes")?;
    edit(&documents, "world")?;
    store.close()?;
    drop((store, documents));

    let (store, documents) = start(path)?;
    edit(&documents, "hello, ")?;
    let doc = documents.flush_doc("notes")?.expect("two edits were pushed");
    let text = doc.get_or_insert_text("text").get_string(&doc.transact());
    println!("{text}");
    store.close()?;
    Ok(text)
}

fn main() -> Result<(), Error> {
    run(Path::new(std::env::args().nth(1).as_deref().unwrap_or("editors.brooklet"))).map(drop)
}
