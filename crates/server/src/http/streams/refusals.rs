//! The refusals that streams have besides those of all of HTTP.

use axum::http::StatusCode;

use super::headers as names;
use super::offset::Offset;
use crate::http::reply::Refusal;

impl Refusal {
    pub fn unknown(name: &impl std::fmt::Display) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("there is no stream {name}: create it with PUT"))
    }

    pub fn gone(name: &impl std::fmt::Display) -> Self {
        let why =
            format!("stream {name} was deleted; the server keeps it only until its last fork is deleted");
        Self::new(StatusCode::GONE, why)
    }

    /// The stream takes nothing any more; it ends here.
    pub fn closed(name: &impl std::fmt::Display, end: Offset) -> Self {
        Self::conflict(format!("stream {name} is closed: nothing can be appended"))
            .with(names::CLOSED, "true")
            .with(names::NEXT_OFFSET, end)
    }
}
