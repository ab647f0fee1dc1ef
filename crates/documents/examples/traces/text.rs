//! A model of a text: a change replaces characters, and is undone by the characters that it took.

use brooklet_documents::{Bytes, Model, Refusal, RefusalKind};

/// A model of texts; see the head of the file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Text;

/// Position, number of characters to delete there, text to insert there. Positions and numbers are
/// in Unicode scalar values.
pub type Edit = (usize, usize, String);

/// Returns the byte at which a character begins, or the end of the text.
pub fn byte_of(text: &str, character: usize) -> Option<usize> {
    if text.is_ascii() {
        return (character <= text.len()).then_some(character);
    }
    let ends = std::iter::once(text.len());
    text.char_indices().map(|(at, _)| at).chain(ends).nth(character)
}

fn edit(text: &mut String, (at, deleted, inserted): &Edit) -> Result<Edit, Refusal> {
    let range = byte_of(text, *at).zip(byte_of(text, at.saturating_add(*deleted)));
    let Some((start, end)) = range else {
        let what = format!("characters {at} to {} are outside of the text", at.saturating_add(*deleted));
        return Err(Refusal::new(RefusalKind::InvalidPointer, what));
    };
    let taken = text[start..end].to_owned();
    text.replace_range(start..end, inserted);
    Ok((*at, inserted.chars().count(), taken))
}

impl Model for Text {
    type State = String;
    type Change = Vec<Edit>;

    fn name(&self) -> &str {
        "text"
    }

    fn version(&self) -> u32 {
        1
    }

    fn snapshot(&self, state: &String) -> Result<Vec<u8>, Refusal> {
        Ok(state.clone().into_bytes())
    }

    fn load(&self, _version: u32, bytes: &Bytes) -> Result<String, Refusal> {
        let malformed = |error: std::str::Utf8Error| Refusal::new(RefusalKind::Malformed, error.to_string());
        std::str::from_utf8(bytes).map(str::to_owned).map_err(malformed)
    }

    fn encode(&self, change: &Vec<Edit>) -> Result<Vec<u8>, Refusal> {
        Ok(serde_json::to_vec(change).expect("numbers and strings"))
    }

    fn decode(&self, bytes: &Bytes) -> Result<Vec<Edit>, Refusal> {
        serde_json::from_slice(bytes).map_err(|error| Refusal::new(RefusalKind::Malformed, error.to_string()))
    }

    fn apply(&self, state: &mut String, change: &Vec<Edit>) -> Result<Option<Vec<Edit>>, Refusal> {
        let mut undo = Vec::with_capacity(change.len());
        for (at, one) in change.iter().enumerate() {
            match edit(state, one) {
                Ok(back) => undo.push(back),
                Err(refusal) => {
                    // A refused change leaves the text as it was.
                    for back in undo[..at].iter().rev() {
                        edit(state, back)?;
                    }
                    return Err(refusal);
                }
            }
        }
        undo.reverse();
        Ok(Some(undo))
    }

    fn compose(&self, changes: &[Vec<Edit>]) -> Option<Vec<Edit>> {
        Some(changes.concat())
    }

    fn size(&self, state: &String) -> usize {
        state.capacity()
    }
}
