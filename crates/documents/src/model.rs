//! Models: the states of documents, and the changes of states.

use brooklet::Bytes;

use crate::refusal::Refusal;

/// The kind of all documents of a [`Documents`](crate::Documents): states, changes, and the bytes
/// of both. [`Json`](crate::Json) and [`Opaque`](crate::Opaque) come with the crate.
///
/// A model decides by its arguments alone: the same change of the same state always has the same
/// result. If a model panics, the call fails, and only for that document.
///
/// ```
/// use brooklet::Bytes;
/// use brooklet_documents::{Documents, Model, Options, Refusal, RefusalKind};
///
/// /// A counter, which does not go below zero.
/// struct Counter;
///
/// fn number(bytes: &[u8]) -> Result<i64, Refusal> {
///     let bytes = bytes.try_into().map_err(|_| Refusal::new(RefusalKind::Malformed, "pass 8 bytes"))?;
///     Ok(i64::from_le_bytes(bytes))
/// }
///
/// impl Model for Counter {
///     type State = i64;
///     type Change = i64;
///
///     fn name(&self) -> &str {
///         "counter"
///     }
///     fn version(&self) -> u32 {
///         1
///     }
///     fn snapshot(&self, state: &i64) -> Result<Vec<u8>, Refusal> {
///         Ok(state.to_le_bytes().into())
///     }
///     fn load(&self, _version: u32, bytes: &Bytes) -> Result<i64, Refusal> {
///         number(bytes)
///     }
///     fn encode(&self, change: &i64) -> Result<Vec<u8>, Refusal> {
///         Ok(change.to_le_bytes().into())
///     }
///     fn decode(&self, bytes: &Bytes) -> Result<i64, Refusal> {
///         number(bytes)
///     }
///     fn apply(&self, state: &mut i64, change: &i64) -> Result<Option<i64>, Refusal> {
///         let below = || Refusal::new(RefusalKind::Other, "the counter would fall below zero");
///         *state = state.checked_add(*change).filter(|sum| *sum >= 0).ok_or_else(below)?;
///         Ok(Some(-change))
///     }
///     fn compose(&self, changes: &[i64]) -> Option<i64> {
///         Some(changes.iter().sum())
///     }
///     fn size(&self, _state: &i64) -> usize {
///         8
///     }
/// }
///
/// # fn main() -> Result<(), brooklet_documents::Error> {
/// let store = brooklet::Store::in_memory(1)?;
/// let counters = Documents::open(&store, Counter, Options::new("counters/"))?;
/// counters.create("visits", "r1", &5)?;
/// counters.patch("visits", 1, "r2", &2)?;
/// assert_eq!(*counters.get("visits")?.unwrap().state, 7);
/// counters.rewind("visits", 2, "r3", 1)?;
/// assert_eq!(*counters.get("visits")?.unwrap().state, 5);
/// # Ok(())
/// # }
/// ```
pub trait Model: Send + Sync + 'static {
    /// The state of a document.
    type State: Clone + Send + Sync + 'static;
    /// A change of a state.
    type Change: Clone + Send + Sync + 'static;

    /// Whether the model takes changes without the state, and never returns an undo. A patch of a
    /// document that is not in memory then reads the entries since the last snapshot, and loads no
    /// state. [`encode`](Self::encode) has to refuse all that [`apply`](Self::apply) would.
    const UNSEEN: bool = false;

    /// Returns the name of the model, which each snapshot carries: at most 255 bytes.
    fn name(&self) -> &str;

    /// Returns the version of the model, which each snapshot carries. [`load`](Self::load) has to
    /// read the snapshots of this version and of all before it.
    fn version(&self) -> u32;

    /// Returns the bytes of a state. A state that is over a limit of the model is refused.
    ///
    /// # Errors
    /// The reason.
    fn snapshot(&self, state: &Self::State) -> Result<Vec<u8>, Refusal>;

    /// Returns the state of a snapshot that this version of the model wrote, or an earlier one.
    ///
    /// # Errors
    /// The defect of the bytes.
    fn load(&self, version: u32, bytes: &Bytes) -> Result<Self::State, Refusal>;

    /// Returns the bytes of a change. A change that no state could take is refused.
    ///
    /// # Errors
    /// The reason.
    fn encode(&self, change: &Self::Change) -> Result<Vec<u8>, Refusal>;

    /// Returns the change that [`encode`](Self::encode) wrote. The bytes may share the memory of
    /// many others: copy what the change keeps of them.
    ///
    /// # Errors
    /// The defect of the bytes.
    fn decode(&self, bytes: &Bytes) -> Result<Self::Change, Refusal>;

    /// Applies a change, and returns the change that undoes it, or `None` if the model has no undo.
    /// A model has undo for all changes or for none: from the last update, a snapshot learns
    /// whether the history before it needs an older snapshot to go on from. A change that is
    /// refused leaves the state as it was.
    ///
    /// # Errors
    /// The reason.
    fn apply(&self, state: &mut Self::State, change: &Self::Change) -> Result<Option<Self::Change>, Refusal>;

    /// Applies changes that [`encode`](Self::encode) wrote, and that [`apply`](Self::apply) took in
    /// this order. For a load, which has no use for the undo of each change: a model that computes
    /// undo can be faster here. After a failure, the caller drops the state.
    ///
    /// # Errors
    /// The defect of the change that the iterator returned last.
    fn replay(
        &self,
        state: &mut Self::State,
        changes: &mut dyn Iterator<Item = &Bytes>,
    ) -> Result<(), Refusal> {
        for change in changes {
            self.apply(state, &self.decode(change)?)?;
        }
        Ok(())
    }

    /// Returns one change with the effect of several in this order, on every state that takes
    /// these. `None` if the model has none: then [`changes`](crate::Documents::changes) returns the
    /// updates only, and [`rewind`](crate::Documents::rewind) goes back by one version only.
    ///
    /// A rewind to a version whose state the document has already passes no change: the answer is a
    /// change without an effect.
    fn compose(&self, changes: &[Self::Change]) -> Option<Self::Change> {
        match changes {
            [one] => Some(one.clone()),
            _ => None,
        }
    }

    /// Returns a change that sets any document to this state, if the model has one. A
    /// [`rewind`](crate::Documents::rewind) writes it where it is shorter than the undo of all
    /// updates since then.
    fn replace(&self, _state: &Self::State) -> Option<Self::Change> {
        None
    }

    /// Returns the bytes of memory that a state takes, about. The call is made after each change,
    /// so it should not walk the state.
    fn size(&self, state: &Self::State) -> usize;
}
