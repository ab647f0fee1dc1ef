//! Applies changes to JSON states, computes their undo, and keeps the size up to date.

use json_patch::jsonptr::{Pointer, PointerBuf, Token};
use json_patch::{
    AddOperation, Patch, PatchErrorKind, PatchOperation, RemoveOperation, ReplaceOperation, TestOperation,
};
use serde_json::{Map, Value};

use crate::json::size::{element, member, merged, size};
use crate::json::{Json, JsonChange, JsonState};
use crate::refusal::{Refusal, RefusalKind};

impl Json {
    /// Applies a merge patch. The undo is a patch.
    pub(super) fn apply_merge(&self, state: &mut JsonState, patch: &Value) -> Result<JsonChange, Refusal> {
        self.check_depth(patch, 0)?;
        let mut plan = Plan::default();
        match (&state.value, patch) {
            (Value::Object(target), Value::Object(patch)) => {
                plan.merge(target, patch, &mut PointerBuf::new())
            }
            (target, patch) => {
                plan.undo.push(replace(PointerBuf::new(), target.clone()));
                (plan.less, plan.more) = (size(target), merged(patch));
            }
        }
        let after = state.size + plan.more - plan.less;
        self.check_growth(state.size, after)?;
        json_patch::merge(&mut state.value, patch);
        state.size = after;
        Ok(JsonChange::Patch(Patch(plan.undo)))
    }

    /// Applies a patch: all of it, or nothing. The undo is a patch.
    pub(super) fn apply_patch(&self, state: &mut JsonState, patch: &Patch) -> Result<JsonChange, Refusal> {
        let before = state.size;
        let mut undo = Vec::with_capacity(patch.len());
        let applied = patch.iter().enumerate().try_for_each(|(at, operation)| {
            self.apply_operation(state, operation, &mut undo).map_err(|refusal| {
                let what = format!("operation {at} at \"{}\": {refusal}", operation.path());
                Refusal::new(refusal.kind(), what)
            })
        });
        undo.reverse();
        if let Err(refusal) = applied.and_then(|()| self.check_growth(before, state.size)) {
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
        undo: &mut Vec<PatchOperation>,
    ) -> Result<(), Refusal> {
        match operation {
            PatchOperation::Add(AddOperation { path, value }) => self.add(state, path, value.clone(), undo),
            PatchOperation::Remove(RemoveOperation { path }) => remove(state, path, undo),
            PatchOperation::Replace(ReplaceOperation { path, value }) => {
                self.check_depth(value, path.count())?;
                let old = at(&state.value, path)?.clone();
                run(&mut state.value, operation)?;
                state.size = state.size + size(value) - size(&old);
                undo.push(replace(path.clone(), old));
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
                let value = at(&state.value, &step.from)?.clone();
                remove(state, &step.from, undo)?;
                self.add(state, &step.path, value, undo)
            }
            PatchOperation::Copy(step) => {
                let value = at(&state.value, &step.from)?;
                // Copies of copies grow fast: the limit holds after each of them.
                self.check_size(state.size + size(value))?;
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
        undo: &mut Vec<PatchOperation>,
    ) -> Result<(), Refusal> {
        self.check_depth(&value, path.count())?;
        let (added, dropped, back) = match path.split_back() {
            None => (size(&value), size(&state.value), replace(PointerBuf::new(), state.value.clone())),
            Some((parent, last)) => match at(&state.value, parent)? {
                Value::Object(members) => {
                    let key = last.decoded();
                    let added = member(&key, &value);
                    match members.get(key.as_ref()) {
                        Some(old) => (added, member(&key, old), replace(path.clone(), old.clone())),
                        None => (added, 0, PatchOperation::Remove(RemoveOperation { path: path.clone() })),
                    }
                }
                Value::Array(elements) => {
                    // The path may name the end by a dash.
                    let index =
                        last.to_index().ok().and_then(|index| index.for_len_incl(elements.len()).ok());
                    let index = index.ok_or_else(nowhere)?;
                    let path = parent.with_trailing_token(Token::from(index));
                    (element(&value), 0, PatchOperation::Remove(RemoveOperation { path }))
                }
                _ => return Err(nowhere()),
            },
        };
        let add = PatchOperation::Add(AddOperation { path: path.clone(), value });
        run(&mut state.value, &add)?;
        state.size = state.size + added - dropped;
        undo.push(back);
        Ok(())
    }
}

fn remove(state: &mut JsonState, path: &PointerBuf, undo: &mut Vec<PatchOperation>) -> Result<(), Refusal> {
    let old = at(&state.value, path)?.clone();
    let Some((parent, last)) = path.split_back() else {
        let what = "the whole document cannot be removed: delete the document, or replace it by null";
        return Err(Refusal::new(RefusalKind::InvalidPointer, what));
    };
    let dropped = match at(&state.value, parent)? {
        Value::Object(_) => member(&last.decoded(), &old),
        _ => element(&old),
    };
    run(&mut state.value, &PatchOperation::Remove(RemoveOperation { path: path.clone() }))?;
    state.size -= dropped;
    undo.push(PatchOperation::Add(AddOperation { path: path.clone(), value: old }));
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

/// The undo of a merge patch, and the change of the size.
#[derive(Default)]
struct Plan {
    undo: Vec<PatchOperation>,
    less: usize,
    more: usize,
}

impl Plan {
    /// Plans to merge an object into an object at a path.
    fn merge(&mut self, target: &Map<String, Value>, patch: &Map<String, Value>, path: &mut PointerBuf) {
        for (key, value) in patch {
            path.push_back(Token::new(key.as_str()));
            match (target.get(key), value) {
                (Some(Value::Object(target)), Value::Object(patch)) => self.merge(target, patch, path),
                (Some(old), Value::Null) => {
                    self.less += member(key, old);
                    self.undo
                        .push(PatchOperation::Add(AddOperation { path: path.clone(), value: old.clone() }));
                }
                (Some(old), value) => {
                    self.less += size(old);
                    self.more += merged(value);
                    self.undo.push(replace(path.clone(), old.clone()));
                }
                (None, Value::Null) => {}
                (None, value) => {
                    self.more += key.len() + 4 + merged(value);
                    self.undo.push(PatchOperation::Remove(RemoveOperation { path: path.clone() }));
                }
            }
            path.pop_back();
        }
    }
}
