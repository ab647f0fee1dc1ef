//! The plain model of documents: all versions of each, and the answer to each request.

use std::collections::BTreeMap;

use brooklet_documents::{JsonChange, json_patch};
use serde_json::Value;

/// A document of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct PlainDoc {
    /// All versions since the creation.
    pub versions: BTreeMap<u64, Value>,
    /// The requests that happened: version and content.
    pub requests: BTreeMap<String, (u64, String)>,
    /// The versions that rewinds made, and where they went back to.
    pub back: BTreeMap<u64, u64>,
}

/// All documents, and the greatest version that each name ever had.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plain {
    pub docs: BTreeMap<&'static str, PlainDoc>,
}

/// The answer that the model expects.
#[derive(Clone, Debug, PartialEq)]
pub enum Expected {
    Made(u64),
    Repeated(u64),
    Conflict(u64),
    Reused,
    Forgotten,
    Refused,
    NotFound,
}

/// A patch of one document.
#[derive(Clone, Debug)]
pub struct Patch {
    pub name: &'static str,
    pub expected: u64,
    pub change: JsonChange,
}

impl PlainDoc {
    pub fn head(&self) -> u64 {
        *self.versions.last_key_value().unwrap().0
    }

    pub fn created(&self) -> u64 {
        *self.versions.first_key_value().unwrap().0
    }

    pub fn now(&self) -> &Value {
        self.versions.last_key_value().unwrap().1
    }

    /// Returns the request with an id, as long as it is remembered.
    pub fn known(&self, id: &str, remember: u64) -> Option<&(u64, String)> {
        self.requests.get(id).filter(|(version, _)| version + remember > self.head())
    }

    pub fn add(&mut self, id: &str, content: &str, value: Value) -> u64 {
        let version = self.head() + 1;
        self.versions.insert(version, value);
        self.requests.insert(id.into(), (version, content.into()));
        version
    }
}

/// Returns the value after a change; `None` if the change is refused.
pub fn changed(value: &Value, change: &JsonChange) -> Option<Value> {
    let mut after = value.clone();
    match change {
        JsonChange::Merge(patch) => json_patch::merge(&mut after, patch),
        JsonChange::Patch(patch) => json_patch::patch(&mut after, patch).ok()?,
    }
    Some(after)
}

/// Returns the content of patches, as the model compares it.
pub fn content(call: &str, patches: &[Patch]) -> String {
    let mut parts: Vec<_> =
        patches.iter().map(|patch| format!("{} {}", patch.name, patch.change.to_json())).collect();
    parts.sort();
    format!("{call} {parts:?}")
}

impl Plain {
    /// Makes patches of several documents, or of one, and returns what each is answered.
    pub fn patch(
        &mut self,
        call: &str,
        id: &str,
        patches: &[Patch],
        remember: u64,
    ) -> Result<Vec<Expected>, Expected> {
        let content = content(call, patches);
        let mut sorted: Vec<_> = patches.iter().collect();
        sorted.sort_by_key(|patch| patch.name);
        let mut known = Vec::new();
        for patch in &sorted {
            let doc = self.docs.get(patch.name).ok_or(Expected::NotFound)?;
            match doc.known(id, remember) {
                Some((version, found)) if *found == content => known.push(Expected::Repeated(*version)),
                Some(_) => return Err(Expected::Reused),
                None => {}
            }
        }
        if known.len() == sorted.len() {
            let version = |patch: &Patch| {
                known[sorted.iter().position(|other| other.name == patch.name).unwrap()].clone()
            };
            return Ok(patches.iter().map(version).collect());
        }
        if !known.is_empty() {
            return Err(Expected::Forgotten);
        }
        for patch in &sorted {
            let head = self.docs[patch.name].head();
            if head != patch.expected {
                return Err(Expected::Conflict(head));
            }
        }
        let mut after = Vec::new();
        for patch in &sorted {
            after.push(changed(self.docs[patch.name].now(), &patch.change).ok_or(Expected::Refused)?);
        }
        for (patch, value) in sorted.iter().zip(after) {
            self.docs.get_mut(patch.name).unwrap().add(id, &content, value);
        }
        Ok(patches.iter().map(|patch| Expected::Made(self.docs[patch.name].head())).collect())
    }
}
