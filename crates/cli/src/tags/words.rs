//! The tags of a line.

use serde_json::Value;

use crate::lines::not_json;

/// Most bytes of a word or value that becomes a tag: nobody asks for longer ones.
const LONGEST: usize = 128;

/// Adds the words of a text: letters, digits and underscores. Bytes that are not UTF-8 separate
/// words.
pub fn of_text(text: &[u8], lower: bool, tags: &mut Vec<Vec<u8>>) {
    let parts = |c: char| !c.is_alphanumeric() && c != '_';
    let words = text.utf8_chunks().flat_map(|chunk| chunk.valid().split(parts));
    for word in words.filter(|word| (1..=LONGEST).contains(&word.len())) {
        tags.push(if lower { word.to_lowercase() } else { word.to_string() }.into_bytes());
    }
}

/// Which fields of JSON become tags, and which is the id.
pub struct Fields<'a> {
    pub only: &'a [String],
    pub id: Option<&'a str>,
    pub lower: bool,
}

impl Fields<'_> {
    /// Adds the fields of an object; returns the id.
    pub fn of_json(&self, line: &[u8], tags: &mut Vec<Vec<u8>>) -> Result<Option<Vec<u8>>, String> {
        let value: Value = serde_json::from_slice(line).map_err(|error| not_json(&error))?;
        let Value::Object(fields) = &value else { return Err("it is not an object".into()) };
        for (name, value) in fields {
            self.add(name, value, tags);
        }
        let Some(name) = self.id else { return Ok(None) };
        let value = fields.get(name);
        // Different numbers would have the same id, and their records would replace one another.
        if value.is_some_and(Value::is_f64) {
            return Err(format!(
                "field {name} for the id is not a whole number of 64 bits: write the number as a string"
            ));
        }
        let id = value.and_then(text).ok_or_else(|| format!("it has no field {name} for the id"))?;
        Ok(Some(id.into_bytes()))
    }

    fn add(&self, name: &str, value: &Value, tags: &mut Vec<Vec<u8>>) {
        // All tags of such a name are too long, and the names below it are longer.
        if name.len() >= LONGEST {
            return;
        }
        match value {
            Value::Object(fields) => {
                fields.iter().for_each(|(inner, value)| self.add(&format!("{name}.{inner}"), value, tags));
            }
            Value::Array(values) => values.iter().for_each(|value| self.add(name, value, tags)),
            value if self.only.is_empty() || self.only.iter().any(|only| only == name) => {
                let Some(value) = text(value) else { return };
                let tag = format!("{name}={}", if self.lower { value.to_lowercase() } else { value });
                if tag.len() <= LONGEST {
                    tags.push(tag.into_bytes());
                }
            }
            _ => {}
        }
    }
}

/// Returns the text of a value; `None` for a value that has no text.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(it) => Some(it.to_string()),
        Value::Null | Value::Object(_) | Value::Array(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(tags: Vec<Vec<u8>>) -> Vec<String> {
        tags.into_iter().map(|tag| String::from_utf8(tag).unwrap()).collect()
    }

    #[test]
    fn words_are_what_grep_takes_for_words() {
        let mut tags = Vec::new();
        of_text(
            "081109 INFO dfs.DataNode$Packet: blk_-38 of /10.250.1.2, „grün“".as_bytes(),
            false,
            &mut tags,
        );
        let expected = [
            "081109", "INFO", "dfs", "DataNode", "Packet", "blk_", "38", "of", "10", "250", "1", "2", "grün",
        ];
        assert_eq!(words(tags), expected);
        let mut tags = Vec::new();
        of_text(&[&b"A b "[..], &[b'c'; 129]].concat(), true, &mut tags);
        assert_eq!(words(tags), ["a", "b"]);
    }

    #[test]
    fn fields_with_values_are_tags() {
        let line =
            br#"{"level": "INFO", "n": 3, "ok": true, "no": null, "at": {"host": "a", "tags": ["x", "y"]}}"#;
        let mut tags = Vec::new();
        let all = Fields { only: &[], id: Some("n"), lower: false };
        assert_eq!(all.of_json(line, &mut tags), Ok(Some(b"3".to_vec())));
        tags.sort();
        assert_eq!(words(tags), ["at.host=a", "at.tags=x", "at.tags=y", "level=INFO", "n=3", "ok=true"]);
        let (only, mut tags) = (["level".to_string(), "at.tags".into()], Vec::new());
        let some = Fields { only: &only, id: None, lower: true };
        assert_eq!(some.of_json(line, &mut tags), Ok(None));
        tags.sort();
        assert_eq!(words(tags), ["at.tags=x", "at.tags=y", "level=info"]);
        assert!(all.of_json(b"[1]", &mut Vec::new()).unwrap_err().contains("not an object"));
        assert!(all.of_json(b"{}", &mut Vec::new()).unwrap_err().contains("no field n"));
        assert!(all.of_json(b"{", &mut Vec::new()).is_err());
    }

    /// In an earlier state both were the id 1.2345678901234568e24: the second record replaced
    /// the first.
    #[test]
    fn numbers_that_would_be_rounded_are_no_ids() {
        let all = Fields { only: &[], id: Some("n"), lower: false };
        let id = |number: &str| all.of_json(format!("{{\"n\":{number}}}").as_bytes(), &mut Vec::new());
        for exact in ["18446744073709551615", "-9223372036854775808"] {
            assert_eq!(id(exact), Ok(Some(exact.as_bytes().to_vec())));
        }
        for rounded in ["1234567890123456789012345", "1234567890123456789012346", "0.12345678901234567890"] {
            assert!(id(rounded).unwrap_err().contains("write the number as a string"), "{rounded}");
        }
        assert_eq!(id("\"1234567890123456789012345\""), Ok(Some(b"1234567890123456789012345".to_vec())));
    }

    /// To make the names of these fields would take hours: each has 4 MB.
    #[test]
    fn fields_below_long_names_are_no_tags() {
        let (depth, name) = (20, "n".repeat(200_000));
        let fields: Vec<String> = (0..300_000).map(|n| format!("\"{n}\":1")).collect();
        let line = [
            &format!("{{\"level\":\"INFO\",\"{name}\":"),
            &format!("{{\"{name}\":").repeat(depth - 1),
            &format!("{{{}}}", fields.join(",")),
            &"}".repeat(depth),
        ];
        let mut tags = Vec::new();
        let all = Fields { only: &[], id: None, lower: false };
        assert_eq!(all.of_json(line.map(String::as_str).concat().as_bytes(), &mut tags), Ok(None));
        assert_eq!(words(tags), ["level=INFO"]);
    }
}
