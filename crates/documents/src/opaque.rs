//! Opaque bytes, which the caller folds: for CRDT updates.

use std::fmt;

use brooklet::Bytes;

use crate::model::Model;
use crate::refusal::{Refusal, RefusalKind};

type Check = dyn Fn(&[u8]) -> Result<(), String> + Send + Sync;
type Fold = dyn Fn(&[u8], &[Bytes]) -> Result<Vec<u8>, String> + Send + Sync;
type Merge = dyn Fn(&[Bytes]) -> Result<Vec<u8>, String> + Send + Sync;

/// A [`Model`] of opaque bytes: a change is any bytes, and the caller folds a number of changes
/// into a state. For updates of CRDTs, which are applied by their library.
///
/// A change is taken without the state, so a patch of a document that is not in memory loads
/// nothing. The model has no undo.
///
/// ```
/// use brooklet::Bytes;
/// use brooklet_documents::{Documents, Opaque, Options};
///
/// # fn main() -> Result<(), brooklet_documents::Error> {
/// # let store = brooklet::Store::in_memory(1)?;
/// // A state is the sum of all changes.
/// let sum = |state: &[u8], changes: &[Bytes]| {
///     let all = changes.iter().fold(state.iter().sum::<u8>(), |sum, change| sum + change[0]);
///     Ok(vec![all])
/// };
/// let documents = Documents::open(&store, Opaque::new("sum", 1, sum), Options::new("sums/"))?;
/// documents.create("a", "r1", &Opaque::state([1]))?;
/// documents.patch("a", 1, "r2", &Bytes::from_static(&[2]))?;
/// documents.patch("a", 2, "r3", &Bytes::from_static(&[3]))?;
/// let found = documents.get("a")?.unwrap();
/// assert_eq!(found.state.changes().len(), 2);
/// assert_eq!(documents.model().fold(&found.state).unwrap(), [6]);
/// # Ok(())
/// # }
/// ```
pub struct Opaque {
    name: String,
    version: u32,
    check: Box<Check>,
    fold: Box<Fold>,
    merge: Option<Box<Merge>>,
}

/// A state of [`Opaque`]: the bytes of the last fold, and the changes since then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpaqueState {
    base: Bytes,
    changes: Vec<Bytes>,
    size: usize,
}

impl OpaqueState {
    fn of(base: Bytes) -> Self {
        Self { size: base.len(), base, changes: Vec::new() }
    }

    /// Returns the bytes of the last fold.
    pub fn base(&self) -> &Bytes {
        &self.base
    }

    /// Returns the changes since the last fold, oldest first.
    pub fn changes(&self) -> &[Bytes] {
        &self.changes
    }
}

impl Opaque {
    /// Returns a model by name and version, with the function that folds changes into a state. The
    /// function gets the bytes of the state before, which are empty for an empty state, and the
    /// changes, oldest first. It reads the states of this version and of all before it.
    pub fn new(
        name: impl Into<String>,
        version: u32,
        fold: impl Fn(&[u8], &[Bytes]) -> Result<Vec<u8>, String> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), version, check: Box::new(|_| Ok(())), fold: Box::new(fold), merge: None }
    }

    /// Sets the function that refuses bytes that are no change. A change that is stored has to be
    /// one that the fold takes: otherwise the document gets no more snapshots.
    pub fn check(mut self, check: impl Fn(&[u8]) -> Result<(), String> + Send + Sync + 'static) -> Self {
        self.check = Box::new(check);
        self
    }

    /// Sets the function that merges changes into one, for
    /// [`changes`](crate::Documents::changes).
    pub fn merge(
        mut self,
        merge: impl Fn(&[Bytes]) -> Result<Vec<u8>, String> + Send + Sync + 'static,
    ) -> Self {
        self.merge = Some(Box::new(merge));
        self
    }

    /// Returns the state of folded bytes.
    pub fn state(base: impl Into<Vec<u8>>) -> OpaqueState {
        OpaqueState::of(base.into().into())
    }

    /// Folds a state into bytes.
    ///
    /// # Errors
    /// The error of the function that folds.
    pub fn fold(&self, state: &OpaqueState) -> Result<Vec<u8>, Refusal> {
        if state.changes.is_empty() {
            return Ok(state.base.to_vec());
        }
        (self.fold)(&state.base, &state.changes).map_err(|what| Refusal::new(RefusalKind::Other, what))
    }
}

impl Model for Opaque {
    type State = OpaqueState;
    type Change = Bytes;

    const UNSEEN: bool = true;

    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn snapshot(&self, state: &OpaqueState) -> Result<Vec<u8>, Refusal> {
        self.fold(state)
    }

    fn load(&self, _version: u32, bytes: &Bytes) -> Result<OpaqueState, Refusal> {
        // Copied, as the bytes share the memory of the entries around them.
        Ok(OpaqueState::of(Bytes::copy_from_slice(bytes)))
    }

    fn encode(&self, change: &Bytes) -> Result<Vec<u8>, Refusal> {
        (self.check)(change).map_err(|what| Refusal::new(RefusalKind::Malformed, what))?;
        Ok(change.to_vec())
    }

    fn decode(&self, bytes: &Bytes) -> Result<Bytes, Refusal> {
        Ok(Bytes::copy_from_slice(bytes))
    }

    fn apply(&self, state: &mut OpaqueState, change: &Bytes) -> Result<Option<Bytes>, Refusal> {
        state.size += change.len() + size_of::<Bytes>();
        state.changes.push(change.clone());
        Ok(None)
    }

    fn compose(&self, changes: &[Bytes]) -> Option<Bytes> {
        match (changes, &self.merge) {
            ([one], _) => Some(one.clone()),
            (_, Some(merge)) => merge(changes).ok().map(Bytes::from),
            (_, None) => None,
        }
    }

    fn size(&self, state: &OpaqueState) -> usize {
        state.size
    }
}

impl fmt::Debug for Opaque {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opaque({:?} version {})", self.name, self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A state in memory keeps its own bytes, and not those of the entries around it.
    #[test]
    fn a_loaded_state_keeps_no_memory_of_others() {
        let model = Opaque::new("lines", 1, |_, _| Ok(Vec::new()));
        let block = Bytes::from(vec![b'x'; 1 << 16]);
        let mut state = model.load(1, &block.slice(10..20)).unwrap();
        model.replay(&mut state, &mut [block.slice(30..40)].iter()).unwrap();
        assert!(block.is_unique());
        let sizes =
            [state.base, state.changes.remove(0)].map(|bytes| bytes.try_into_mut().unwrap().capacity());
        assert!(sizes.iter().all(|size| *size < 100), "{sizes:?}");
    }
}
