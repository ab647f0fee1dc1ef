//! A document as a log of edits: a snapshot replaces the edits before it, so that opening the
//! document stays short.
//!
//! ```sh
//! cargo run -p brooklet --example document -- STORE     # document.brooklet if left out
//! ```

use std::path::Path;

use brooklet::{Error, Store};

/// Edits after which a snapshot is worth its bytes.
const EDITS: u64 = 8;

/// A text that is open for editing.
struct Document {
    store: Store,
    key: String,
    text: String,
    /// Entries of the log, the snapshot included.
    entries: u64,
}

impl Document {
    /// Reads the snapshot, if there is one, and applies the edits after it.
    fn open(store: &Store, key: &str) -> Result<Self, Error> {
        let (mut text, mut entries) = (String::new(), 0);
        if store.exists(key)? {
            for entry in store.read(key, ..)? {
                let payload = entry?.payload;
                let (kind, rest) = payload.split_first().expect("entries are not empty");
                let rest = std::str::from_utf8(rest).expect("entries are text");
                match kind {
                    b'=' => rest.clone_into(&mut text),
                    _ => text.push_str(rest),
                }
                entries += 1;
            }
        }
        Ok(Self { store: store.clone(), key: key.into(), text, entries })
    }

    /// Adds words at the end. The edit is durable when this returns.
    fn push(&mut self, words: &str) -> Result<(), Error> {
        self.store.append(&self.key, format!("+{words}"))?.wait()?;
        self.text.push_str(words);
        self.entries += 1;
        if self.entries > EDITS {
            // One commit: append the whole text, and trim all entries before it.
            self.store.snapshot(&self.key, format!("={}", self.text))?.wait()?;
            self.entries = 1;
        }
        Ok(())
    }
}

/// Edits a document, opens it anew, and returns the text and the entries that the log holds.
pub fn run(path: &Path) -> Result<(String, u64), Error> {
    let store = Store::open(path)?;
    let mut document = Document::open(&store, "doc/1")?;
    for n in 0..20 {
        document.push(&format!("word{n} "))?;
    }
    let again = Document::open(&store, "doc/1")?;
    assert_eq!(again.text, document.text);
    println!("{} bytes of text in {} entries", again.text.len(), again.entries);
    store.close()?;
    Ok((again.text, again.entries))
}

fn main() -> Result<(), Error> {
    run(Path::new(std::env::args().nth(1).as_deref().unwrap_or("document.brooklet"))).map(drop)
}
