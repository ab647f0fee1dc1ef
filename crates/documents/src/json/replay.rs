//! Applies changes that a document has taken before: without undo, limits and sizes.

use std::slice;

use brooklet::Bytes;
use json_patch::PatchOperation;
use serde_json::{Map, Value};

use crate::json::apply::refusal;
use crate::json::plain::Patches;
use crate::json::{JsonChange, malformed, merge};
use crate::refusal::Refusal;

/// Applies changes. After a failure, the value may have a part of them.
pub(super) fn replay(value: &mut Value, changes: &mut dyn Iterator<Item = &Bytes>) -> Result<(), Refusal> {
    let in_place = merge::reads_numbers();
    let mut plain = Patches::default();
    for change in changes {
        let text = JsonChange::text_of_merge(change).filter(|_| in_place);
        if text.is_some_and(|text| plain.add(text).is_some()) {
            continue;
        }
        plain.merge(value);
        match text {
            Some(text) => merge::merge_text(value, text).map_err(|error| malformed(&error))?,
            None => apply(value, JsonChange::decode(change)?)?,
        }
    }
    plain.merge(value);
    Ok(())
}

/// Applies a change.
pub(super) fn apply(value: &mut Value, change: JsonChange) -> Result<(), Refusal> {
    match change {
        JsonChange::Merge(patch) => merge_value(value, patch),
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
fn merge_value(target: &mut Value, patch: Value) {
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
            (Some(member), value) => merge_value(member, value),
            (None, value) => {
                let mut member = Value::Null;
                merge_value(&mut member, value);
                members.insert(key, member);
            }
        }
    }
}
