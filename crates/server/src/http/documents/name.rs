//! The names of documents.

use percent_encoding::percent_decode_str;

use super::PREFIX;
use super::problem::{Kind, Problem};

/// Returns the name of the document that a path names: any bytes, percent-encoded.
pub fn of_path(path: &str) -> Result<Vec<u8>, Problem> {
    let invalid = |why: String| Err(Problem::new(Kind::BadRequest, why));
    let Some(rest) = path.strip_prefix(PREFIX) else {
        return invalid(format!("{path} is not the path of a document: begin it with {PREFIX}"));
    };
    let name: Vec<u8> = percent_decode_str(rest).collect();
    if name.is_empty() {
        return invalid(format!("the name of the document is missing: add it behind {PREFIX}"));
    }
    // Browsers take such segments away, so no other client should make documents of these names.
    if name.split(|byte| *byte == b'/').any(|segment| matches!(segment, b"." | b"..")) {
        return invalid(format!("{rest} has a segment . or ..: leave it out"));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_document_or_says_why_not() {
        let of = |path| of_path(path).ok();
        assert_eq!(of("/v1/documents/a%20b/%ff").as_deref(), Some(&b"a b/\xff"[..]));
        assert_eq!(of("/v1/documents/%2e%2e.").as_deref(), Some(&b"..."[..]));
        for path in ["/v1/documents/", "/v1/stream/a", "/v1/documents/a/../b", "/v1/documents/%2e"] {
            assert_eq!(of(path), None, "{path}");
        }
    }
}
