//! Two editors of one document at once. Each follows the document, and so sees the edits of the
//! other. Then the program opens the store again, as after a restart.
//!
//! ```sh
//! cargo run -p brooklet-yrs --example editors -- STORE     # editors.brooklet if left out
//! ```

use std::path::Path;
use std::thread;
use std::time::Duration;

use brooklet::{Options, Store};
use brooklet_yrs::{DocEvent, Documents, Error, Updates};
use yrs::updates::decoder::Decode;
use yrs::{Doc, GetString, Text, Transact, Update};

/// The time after which an editor gives the other up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Opens the store, as a server does at its start.
fn start(path: &Path) -> Result<(Store, Documents), Error> {
    let store = Options::new().ring_size(4 << 20).max_payload(1 << 20).open(path)?;
    let documents = Documents::new(&store, "docs/").flush_every(100);
    Ok((store, documents))
}

/// A program in which a person edits the document.
struct Editor<'a> {
    documents: &'a Documents,
    doc: Doc,
    updates: Updates,
}

impl<'a> Editor<'a> {
    /// Loads the document, and follows it from there.
    fn open(documents: &'a Documents) -> Result<Self, Error> {
        let doc = Doc::new();
        let from = documents.load_doc("notes", &mut doc.transact_mut())?.unwrap_or(0);
        Ok(Self { documents, doc, updates: documents.updates("notes", from)? })
    }

    fn text(&self) -> String {
        let text = self.doc.get_or_insert_text("text");
        text.get_string(&self.doc.transact())
    }

    /// Puts words at the front of the text. The edit is durable when this returns.
    fn insert(&self, words: &str) -> Result<(), Error> {
        let text = self.doc.get_or_insert_text("text");
        let mut txn = self.doc.transact_mut();
        text.insert(&mut txn, 0, words);
        self.documents.push_update("notes", &txn.encode_update_v1())?;
        Ok(())
    }

    /// Applies the edits of both editors until the text is this one.
    fn wait_for(&mut self, text: &str) -> Result<(), Error> {
        while self.text() != text {
            let event = self.updates.next_timeout(PATIENCE)?.expect("the other editor goes on");
            match event {
                // Its own edits change nothing.
                DocEvent::Update { update, .. } | DocEvent::State { state: update, .. } => {
                    let update = Update::decode_v1(&update).expect("a push checks each update");
                    self.doc
                        .transact_mut()
                        .apply_update(update)
                        .expect("yrs applies each update that it decodes");
                }
                // The document was cleared.
                DocEvent::Cleared => *self = Self::open(self.documents)?,
                // A state with all of these updates follows.
                _ => {}
            }
        }
        Ok(())
    }
}

/// Edits a new document by two editors, and returns its text.
pub fn run(path: &Path) -> Result<String, Error> {
    let (store, documents) = start(path)?;
    documents.clear_doc("notes")?;
    let mut editors = [Editor::open(&documents)?, Editor::open(&documents)?];
    let [first, second] = &mut editors;
    thread::scope(|scope| {
        let greeter = scope.spawn(|| {
            second.wait_for("world")?;
            second.insert("hello, ")
        });
        first.insert("world")?;
        first.wait_for("hello, world")?;
        greeter.join().expect("no panics")
    })?;
    drop(editors);
    store.close()?;
    drop((store, documents));

    let (store, documents) = start(path)?;
    let doc = documents.flush_doc("notes")?.expect("two edits were pushed");
    let text = doc.get_or_insert_text("text").get_string(&doc.transact());
    println!("{text}");
    store.close()?;
    Ok(text)
}

fn main() -> Result<(), Error> {
    run(Path::new(std::env::args().nth(1).as_deref().unwrap_or("editors.brooklet"))).map(drop)
}
