//! Applies changes that a document has taken before: without undo, limits and sizes.

use std::slice;

use json_patch::PatchOperation;
use serde_json::{Map, Value};

use crate::json::JsonChange;
use crate::json::apply::refusal;
use crate::refusal::Refusal;

/// Applies a change. After a failure, the value may have a part of the change.
pub(super) fn replay(value: &mut Value, change: JsonChange) -> Result<(), Refusal> {
    match change {
        JsonChange::Merge(patch) => merge(value, patch),
        JsonChange::Patch(patch) => {
            for operation in patch.iter() {
                // `json_patch` cannot move the whole value to its own place.
                if matches!(operation, PatchOperation::Move(step) if step.from == step.path) {
                    continue;
                }
                // The caller has no use for a rollback.
                let applied = json_patch::patch_unsafe(value, slice::from_ref(operation));
                applied.map_err(|error| refusal(&error.kind))?;
            }
        }
    }
    Ok(())
}

/// Merges a merge patch, whose values move into the target.
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(members) = target else { unreachable!("it is an object by now") };
    for (key, value) in patch {
        match (members.get_mut(&key), value) {
            (Some(_), Value::Null) => drop(members.remove(&key)),
            (None, Value::Null) => {}
            (Some(member), value) => merge(member, value),
            (None, value) => {
                let mut member = Value::Null;
                merge(&mut member, value);
                members.insert(key, member);
            }
        }
    }
}
