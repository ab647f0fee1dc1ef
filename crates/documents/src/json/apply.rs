//! Applies changes to JSON states, computes their undo, and keeps the size up to date.

use json_patch::jsonptr::{Pointer, PointerBuf, Token};
use json_patch::{
    AddOperation, Patch, PatchErrorKind, PatchOperation, RemoveOperation, ReplaceOperation, TestOperation,
};
use serde_json::{Map, Value};

use crate::json::size::{Size, element, member, merged, merged_member, size};
use crate::json::{Json, JsonChange, JsonState};
use crate::refusal::{Refusal, RefusalKind, cut};

/// The values that the operations of a patch replace have together at most this number of times the
/// size that a state may have, besides the values that the patch itself brings. Without a limit,
/// each operation of a few bytes could copy the state.
const REPLACED: usize = 4;
/// Bytes of memory that a byte of text takes in most states, or more than that.
const MEMORY: usize = 8;
/// The operations of a patch move together at most this number of elements of arrays for each byte
/// that a state may have. Without a limit, each operation of a few bytes could move all elements.
const MOVED: usize = 128;
/// Bytes of the paths of an undo below which nobody asks whether a replacement is shorter.
const SHORT: usize = 4 << 10;
/// Most characters of a path that a refusal repeats.
const SHOWN: usize = 64;

impl Json {
    /// Applies a merge patch. The undo is a patch.
    pub(super) fn apply_merge(&self, state: &mut JsonState, patch: &Value) -> Result<JsonChange, Refusal> {
        self.check_depth(patch, 0)?;
        let mut plan = Plan::new(state.size.text + SHORT);
        match (&state.value, patch) {
            (Value::Object(target), Value::Object(patch)) => {
                plan.merge(target, patch, &mut PointerBuf::new())
            }
            (target, patch) => {
                plan.push(|| replace(PointerBuf::new(), target.clone()), 0);
                (plan.less, plan.more) = (size(target), merged(patch));
            }
        }
        let after = state.size + plan.more - plan.less;
        self.check_growth(state.size.text, after.text)?;
        let undo = plan.undo.unwrap_or_else(|| vec![whole_undo(&state.value, patch)]);
        json_patch::merge(&mut state.value, patch);
        state.size = after;
        Ok(JsonChange::Patch(Patch(undo)))
    }

    /// Applies a patch: all of it, or nothing. The undo is a patch.
    pub(super) fn apply_patch(&self, state: &mut JsonState, patch: &Patch) -> Result<JsonChange, Refusal> {
        let before = state.size;
        let most = |limit: usize, before: usize| limit.max(before).saturating_mul(REPLACED);
        // Values that the patch itself brings may be replaced again.
        let brought: Size = patch.iter().filter_map(brought).map(size).sum();
        let left = Size {
            text: most(self.max_size, before.text).saturating_add(brought.text),
            memory: most(self.max_size.saturating_mul(MEMORY), before.memory).saturating_add(brought.memory),
        };
        let moves = self.max_size.max(before.text).saturating_mul(MOVED);
        let mut undo = Undo { steps: Vec::with_capacity(patch.len()), left, moves };
        let applied = patch.iter().enumerate().try_for_each(|(at, operation)| {
            self.apply_operation(state, operation, &mut undo).map_err(|refusal| {
                let what =
                    format!("operation {at} at \"{}\": {refusal}", cut(operation.path().as_str(), SHOWN));
                Refusal::new(refusal.kind(), what)
            })
        });
        let mut undo = undo.steps;
        undo.reverse();
        if let Err(refusal) = applied.and_then(|()| self.check_growth(before.text, state.size.text)) {
            for operation in &undo {
                run(&mut state.value, operation)?;
            }
            state.size = before;
            return Err(refusal);
        }
        Ok(JsonChange::Patch(Patch(undo)))
    }

    /// Refuses a state that grows over the limit. A state that is over it may become smaller.
    fn check_growth(&self, before: usize, after: usize) -> Result<(), Refusal> {
        if after > before { self.check_size(after) } else { Ok(()) }
    }

    fn apply_operation(
        &self,
        state: &mut JsonState,
        operation: &PatchOperation,
        undo: &mut Undo,
    ) -> Result<(), Refusal> {
        match operation {
            PatchOperation::Add(AddOperation { path, value }) => self.add(state, path, value.clone(), undo),
            PatchOperation::Remove(RemoveOperation { path }) => remove(state, path, undo),
            PatchOperation::Replace(ReplaceOperation { path, value }) => {
                self.check_depth(value, path.count())?;
                let old = at(&state.value, path)?;
                let dropped = size(old);
                let back = undo.keep(old)?;
                run(&mut state.value, operation)?;
                state.size = state.size + size(value) - dropped;
                undo.steps.push(replace(path.clone(), back));
                Ok(())
            }
            // A move by `json_patch` loses the value if the new place is invalid. In two steps, the
            // undo of the first brings it back.
            PatchOperation::Move(step) => {
                if step.path == step.from {
                    return at(&state.value, &step.from).map(drop);
                }
                if step.path.starts_with(&step.from) {
                    let what = "a value cannot move into itself";
                    return Err(Refusal::new(RefusalKind::InvalidPointer, what));
                }
                remove(state, &step.from, undo)?;
                let Some(PatchOperation::Add(AddOperation { value, .. })) = undo.steps.last() else {
                    unreachable!("the undo of a removal is an addition")
                };
                let value = value.clone();
                self.add(state, &step.path, value, undo)
            }
            PatchOperation::Copy(step) => {
                let value = at(&state.value, &step.from)?;
                // Copies of copies grow fast: the limit holds after each of them.
                self.check_size(state.size.text + size(value).text)?;
                let value = value.clone();
                self.add(state, &step.path, value, undo)
            }
            PatchOperation::Test(TestOperation { path, .. }) => {
                at(&state.value, path)?;
                run(&mut state.value, operation)
            }
        }
    }

    fn add(
        &self,
        state: &mut JsonState,
        path: &PointerBuf,
        value: Value,
        undo: &mut Undo,
    ) -> Result<(), Refusal> {
        self.check_depth(&value, path.count())?;
        let (added, dropped, back) = match path.split_back() {
            None => {
                let back = replace(PointerBuf::new(), undo.keep(&state.value)?);
                (size(&value), size(&state.value), back)
            }
            Some((parent, last)) => match at(&state.value, parent)? {
                Value::Object(members) => {
                    let key = last.decoded();
                    let added = member(&key, &value);
                    match members.get(key.as_ref()) {
                        Some(old) => {
                            let back = replace(path.clone(), undo.keep(old)?);
                            (added, member(&key, old), back)
                        }
                        None => (
                            added,
                            Size::default(),
                            PatchOperation::Remove(RemoveOperation { path: path.clone() }),
                        ),
                    }
                }
                Value::Array(elements) => {
                    // The path may name the end by a dash.
                    let index =
                        last.to_index().ok().and_then(|index| index.for_len_incl(elements.len()).ok());
                    let index = index.ok_or_else(nowhere)?;
                    undo.count_moves(elements.len() - index)?;
                    let path = parent.with_trailing_token(Token::from(index));
                    (element(&value), Size::default(), PatchOperation::Remove(RemoveOperation { path }))
                }
                _ => return Err(nowhere()),
            },
        };
        let add = PatchOperation::Add(AddOperation { path: path.clone(), value });
        run(&mut state.value, &add)?;
        state.size = state.size + added - dropped;
        undo.steps.push(back);
        Ok(())
    }
}

fn remove(state: &mut JsonState, path: &PointerBuf, undo: &mut Undo) -> Result<(), Refusal> {
    let old = at(&state.value, path)?;
    let Some((parent, last)) = path.split_back() else {
        let what = "the whole document cannot be removed: delete the document, or replace it by null";
        return Err(Refusal::new(RefusalKind::InvalidPointer, what));
    };
    let dropped = match at(&state.value, parent)? {
        Value::Object(_) => member(&last.decoded(), old),
        Value::Array(elements) => {
            let index = last.to_index().ok().and_then(|index| index.for_len(elements.len()).ok());
            undo.count_moves(elements.len() - 1 - index.ok_or_else(nowhere)?)?;
            element(old)
        }
        _ => return Err(nowhere()),
    };
    let back = undo.keep(old)?;
    run(&mut state.value, &PatchOperation::Remove(RemoveOperation { path: path.clone() }))?;
    state.size = state.size - dropped;
    undo.steps.push(PatchOperation::Add(AddOperation { path: path.clone(), value: back }));
    Ok(())
}

/// Returns the value at a path.
fn at<'a>(value: &'a Value, path: &Pointer) -> Result<&'a Value, Refusal> {
    value.pointer(path.as_str()).ok_or_else(nowhere)
}

fn nowhere() -> Refusal {
    Refusal::new(RefusalKind::InvalidPointer, "the path leads to nothing: fetch the document, and look at it")
}

fn replace(path: PointerBuf, value: Value) -> PatchOperation {
    PatchOperation::Replace(ReplaceOperation { path, value })
}

/// Runs one operation, which changes nothing if it fails.
fn run(value: &mut Value, operation: &PatchOperation) -> Result<(), Refusal> {
    json_patch::patch(value, std::slice::from_ref(operation)).map_err(|error| refusal(&error.kind))
}

/// Returns the refusal for an error of `json_patch`.
pub(super) fn refusal(kind: &PatchErrorKind) -> Refusal {
    match kind {
        PatchErrorKind::TestFailed => {
            Refusal::new(RefusalKind::TestFailed, "the value is another one than the test expects")
        }
        _ => nowhere(),
    }
}

/// The undo of a patch while the patch is applied, last step last.
struct Undo {
    steps: Vec<PatchOperation>,
    /// Size of the values that the undo may still take up.
    left: Size,
    /// Number of elements of arrays that the operations may still move.
    moves: usize,
}

/// Returns the value that an operation brings.
fn brought(operation: &PatchOperation) -> Option<&Value> {
    match operation {
        PatchOperation::Add(AddOperation { value, .. })
        | PatchOperation::Replace(ReplaceOperation { value, .. }) => Some(value),
        _ => None,
    }
}

impl Undo {
    /// Counts the elements behind the place of an array where one is added or removed.
    fn count_moves(&mut self, elements: usize) -> Result<(), Refusal> {
        self.moves = self.moves.checked_sub(elements).ok_or_else(|| {
            let what = "the operations move too many elements of arrays: send them in several patches";
            Refusal::new(RefusalKind::TooLarge, what)
        })?;
        Ok(())
    }

    /// Returns a copy of a value that an operation replaces or removes.
    fn keep(&mut self, old: &Value) -> Result<Value, Refusal> {
        let Size { text, memory } = size(old);
        match self.left.text.checked_sub(text).zip(self.left.memory.checked_sub(memory)) {
            Some((text, memory)) => self.left = Size { text, memory },
            None => {
                let what = "the operations replace too many large values: send them in several patches";
                return Err(Refusal::new(RefusalKind::TooLarge, what));
            }
        }
        Ok(old.clone())
    }
}

/// The undo of a merge patch, and the change of the size.
struct Plan {
    /// The steps; `None` once their paths have more bytes than the state, so that the undo that
    /// replaces an object is shorter. The path of each member names all objects around it.
    undo: Option<Vec<PatchOperation>>,
    /// Bytes that the paths of further steps may have.
    left: usize,
    less: Size,
    more: Size,
}

impl Plan {
    fn new(left: usize) -> Self {
        Self { undo: Some(Vec::new()), left, less: Size::default(), more: Size::default() }
    }

    /// Adds a step whose path has `len` bytes.
    fn push(&mut self, step: impl FnOnce() -> PatchOperation, len: usize) {
        let Some(undo) = &mut self.undo else { return };
        match self.left.checked_sub(len) {
            Some(left) => {
                self.left = left;
                undo.push(step());
            }
            None => self.undo = None,
        }
    }

    /// Plans to merge an object into an object at a path.
    fn merge(&mut self, target: &Map<String, Value>, patch: &Map<String, Value>, path: &mut PointerBuf) {
        for (key, value) in patch {
            path.push_back(Token::new(key.as_str()));
            let len = path.len();
            match (target.get(key), value) {
                (Some(Value::Object(target)), Value::Object(patch)) => self.merge(target, patch, path),
                (Some(old), Value::Null) => {
                    self.less = self.less + member(key, old);
                    let add = || AddOperation { path: path.clone(), value: old.clone() };
                    self.push(|| PatchOperation::Add(add()), len);
                }
                (Some(old), value) => {
                    self.less = self.less + size(old);
                    self.more = self.more + merged(value);
                    self.push(|| replace(path.clone(), old.clone()), len);
                }
                (None, Value::Null) => {}
                (None, value) => {
                    self.more = self.more + merged_member(key, value);
                    self.push(|| PatchOperation::Remove(RemoveOperation { path: path.clone() }), len);
                }
            }
            path.pop_back();
        }
    }
}

/// Returns the undo of a merge patch that replaces the smallest object with all that the patch
/// changes.
fn whole_undo(mut target: &Value, mut patch: &Value) -> PatchOperation {
    let mut path = PointerBuf::new();
    while let (Value::Object(members), Value::Object(changed)) = (target, patch) {
        let mut changed =
            changed.iter().filter(|(key, value)| !value.is_null() || members.contains_key(*key));
        let (Some((key, value)), None) = (changed.next(), changed.next()) else { break };
        let Some(member @ Value::Object(_)) = members.get(key).filter(|_| value.is_object()) else { break };
        path.push_back(Token::new(key.as_str()));
        (target, patch) = (member, value);
    }
    replace(path, target.clone())
}
