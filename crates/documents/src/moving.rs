//! Moves: a document goes below another prefix of the store, as into a space of another class.

use brooklet::{Commit, Entry};

use crate::documents::Documents;
use crate::error::{Error, Result, text};
use crate::format::Keys;
use crate::load::read;
use crate::model::Model;

impl<M: Model> Documents<M> {
    /// Moves a document below another prefix of the same store, with its versions, its history and
    /// its request ids, and waits until the move is durable. The prefix may be in another
    /// [space](brooklet::Space): the document then has the class and the quota of that space. The
    /// space must have no retention, which would drop entries that a document needs. A
    /// [watch](Self::watch) of the document returns that it was deleted.
    ///
    /// The move is one commit, so its entries must fit into one; a
    /// [snapshot](Self::snapshot) that keeps less history makes them fewer. Only between a space
    /// that is kept in memory and another place, the move takes two commits: first the copy, then
    /// the deletion. After a crash between the two, the document is in both places. The same move
    /// again then ends the first one.
    ///
    /// The document keeps its versions. If a document of this name was deleted below the other
    /// prefix before, some of its versions may come again.
    ///
    /// ```
    /// use brooklet_documents::{Documents, Json, JsonChange, Options};
    /// use serde_json::json;
    ///
    /// # fn main() -> Result<(), brooklet_documents::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// let open = Documents::open(&store, Json::new(), Options::new("open/"))?;
    /// let closed = Documents::open(&store, Json::new(), Options::new("closed/"))?;
    /// open.create("case 7", "r1", &json!({"state": "open"}).into())?;
    /// open.patch("case 7", 1, "r2", &JsonChange::merge(json!({"state": "closed"})))?;
    /// open.move_to("case 7", "closed/")?;
    /// assert!(open.get("case 7")?.is_none());
    /// assert_eq!(closed.at("case 7", 1)?.state["state"], "open");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Exists`] if another document has the name below the prefix;
    /// [`Error::Invalid`] if the prefix is that of these documents, or makes the key too long;
    /// [`Error::Store`] if the commit is too large, or the store fails.
    pub fn move_to(&self, name: impl AsRef<[u8]>, prefix: impl AsRef<[u8]>) -> Result<()> {
        let (name, prefix) = (name.as_ref(), prefix.as_ref());
        if *prefix == *self.core.keys.prefix() {
            return Err(Error::Invalid("the document is below this prefix already: name another".into()));
        }
        let to = Keys::new(prefix).document(name)?;
        let store = &self.core.store;
        self.acknowledged(name, |slot, key| {
            slot.open = None;
            slot.settle()?;
            // The look makes deferred entries durable, and reads show durable ones only.
            store.get_bounds(key)?.ok_or_else(|| Error::not_found(name))?;
            let entries = store.read_available(key, ..)?;
            let range = entries.range();
            let entries = entries.collect::<std::result::Result<Vec<Entry>, _>>()?;
            let copied = self.copied(name, &entries, &to)?;

            let is_missing = |entry: &&Entry| copied.is_none_or(|next| entry.seq >= next);
            let missing: Vec<&Entry> = entries.iter().filter(is_missing).collect();
            let copy = |commit: &mut Commit| {
                match copied {
                    None => commit.expect_absent(&to).begin_at(&to, range.start),
                    Some(next) => commit.expect_next(&to, next),
                };
                for entry in &missing {
                    commit.append(&to, &entry.payload);
                }
            };
            let remove = |commit: &mut Commit| {
                commit.expect_next(key, range.end).delete(key);
                commit.begin_at(self.core.keys.floor(name), range.end);
            };
            let made = |steps: &[&dyn Fn(&mut Commit)]| {
                let mut commit = Commit::new();
                steps.iter().for_each(|step| step(&mut commit));
                store.commit(&commit)
            };
            slot.last = Some(match made(&[&copy, &remove]) {
                Err(brooklet::Error::MixedSpaces { .. }) => {
                    if !missing.is_empty() {
                        made(&[&copy])?.wait()?;
                    }
                    made(&[&remove])?
                }
                done => done?,
            });
            Ok(())
        })
    }

    /// Returns the number behind the entries of a document that an earlier move has copied; `None`
    /// if there is no document at the other place.
    fn copied(&self, name: &[u8], entries: &[Entry], to: &[u8]) -> Result<Option<u64>> {
        let store = &self.core.store;
        let Some(bounds) = store.get_bounds(to)? else { return Ok(None) };
        let same = |entry: &Entry| {
            let there = store.read_available(to, entry.seq..entry.seq + 1)?.next().transpose()?;
            Ok::<_, Error>(there.is_some_and(|there| there.payload == entry.payload))
        };
        // The copy ends within these entries, or they end within the copy, which went on.
        let last = entries.iter().rev().find(|entry| entry.seq < bounds.next);
        if last.map_or(Ok(false), same)? {
            return Ok(Some(bounds.next));
        }
        let other = read(name, store.read_available(to, ..)?, self.core.options.remember)?;
        Err(Error::Exists { document: text(name), head: other.map_or(0, |other| other.head.version) })
    }
}
