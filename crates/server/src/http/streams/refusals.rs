//! The refusals that streams have besides those of all of HTTP.

use axum::http::StatusCode;

use super::headers as names;
use super::offset::Position;
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

    /// The offset is of another stream: of one that had the name before, or of a source or a fork
    /// of it, which has other messages there.
    pub fn other(name: &impl std::fmt::Display, position: Position) -> Self {
        let why = format!("{position} is an offset of another stream, and not of this stream {name}");
        Self::new(StatusCode::GONE, format!("{why}: read again from the beginning, -1"))
    }

    /// The stream takes nothing any more; it ends here.
    pub fn closed(name: &impl std::fmt::Display, end: Position) -> Self {
        Self::conflict(format!("stream {name} is closed: nothing can be appended"))
            .with(names::CLOSED, "true")
            .with(names::NEXT_OFFSET, end)
    }
}
