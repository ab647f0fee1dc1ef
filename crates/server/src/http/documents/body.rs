//! Bodies of documents and patches, with memory for the values that they are parsed to.

use axum::body::Body;
use axum::http::request::Parts;
use brooklet_documents::Json;
use bytes::Bytes;

use super::problem::{Kind, Problem};
use crate::http::budget::Share;
use crate::http::limits::Limits;

/// A body that may be parsed: it holds its shares of the memory for text and for values.
pub struct Taken {
    text: Bytes,
    _values: Share,
}

impl Taken {
    /// Reads a body, and waits for the memory of its values. Refuses a body whose values need more
    /// than there is for all.
    pub async fn collect(limits: &Limits, head: &Parts, body: Body) -> Result<Self, Problem> {
        let text = limits.bodies.collect(head, body).await?;
        let (weight, most) = (Json::weight(&text), limits.values.bytes());
        if weight > most {
            let why = format!(
                "the values of the body would take {weight} bytes of memory, over {most}: send fewer values"
            );
            return Err(Problem::new(Kind::TooLarge, why));
        }
        let values = limits.values.take(weight).await?;
        Ok(Self { text, _values: values })
    }

    /// Returns the text.
    pub fn text(&self) -> &[u8] {
        &self.text
    }
}
