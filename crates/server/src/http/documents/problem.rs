//! Refusals of requests on documents, as problem details (RFC 9457).

use axum::body::Body;
use axum::extract::Path;
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use brooklet_documents::{Error, Refusal, RefusalKind};
use serde_json::{Map, Value, json};

use crate::http::reply::{self, cut, protect, set};

/// Where the explanations of the kinds are.
pub const PREFIX: &str = "/v1/problems/";

/// The kind of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    BadRequest,
    NotFound,
    NoSuchVersion,
    HistoryGone,
    Exists,
    Conflict,
    ConditionMissing,
    RequestReused,
    Malformed,
    TooDeep,
    TooLarge,
    InvalidPointer,
    TestFailed,
    NumberNotKept,
    Refused,
    MediaType,
    Method,
    OtherModel,
    Full,
    Busy,
    Slow,
    Failed,
}

/// The name of each kind, its status, its title, and the reaction to it.
const KINDS: [(Kind, &str, u16, &str, &str); 22] = [
    (Kind::BadRequest, "bad-request", 400, "The request is wrong", "Change the request."),
    (
        Kind::NotFound,
        "not-found",
        404,
        "The document does not exist",
        "Create it by PUT with If-None-Match: *.",
    ),
    (
        Kind::NoSuchVersion,
        "no-such-version",
        404,
        "The document has not reached this version",
        "Ask for a version up to `head`.",
    ),
    (
        Kind::HistoryGone,
        "history-gone",
        410,
        "The history begins after this version",
        "Get the whole document, or a version from `oldest` on.",
    ),
    (
        Kind::Exists,
        "exists",
        412,
        "The document exists already",
        "Change it at the version `head`, or use another name.",
    ),
    (
        Kind::Conflict,
        "conflict",
        412,
        "The document is at another version",
        "Get the changes since your version, and send the request again with the version `head` and the same Idempotency-Key.",
    ),
    (
        Kind::ConditionMissing,
        "condition-missing",
        428,
        "The request has no condition",
        "Send If-Match with the version that the request is for; to create a document, If-None-Match: *.",
    ),
    (
        Kind::RequestReused,
        "request-reused",
        422,
        "The Idempotency-Key was used for another request",
        "Use a new key for each request. The first request with this key made `version`.",
    ),
    (Kind::Malformed, "malformed", 400, "The body is not what its media type says", "Correct the body."),
    (Kind::TooDeep, "too-deep", 422, "A value would be too deep", "Use fewer levels of arrays and objects."),
    (Kind::TooLarge, "too-large", 413, "The document or the body would be too large", "Split it."),
    (
        Kind::InvalidPointer,
        "invalid-pointer",
        422,
        "A path of the patch leads to nothing",
        "Get the document at the version of If-Match, and correct the path.",
    ),
    (
        Kind::TestFailed,
        "test-failed",
        409,
        "A test of the patch failed",
        "Get the document, and decide anew.",
    ),
    (
        Kind::NumberNotKept,
        "number-not-kept",
        422,
        "A number would change if it was stored",
        "Send the number as a string.",
    ),
    (Kind::Refused, "refused", 422, "The change is refused", "Change the change."),
    (
        Kind::MediaType,
        "media-type",
        415,
        "The media type is not supported",
        "Use one of the types of the header Accept-Patch, or application/json for PUT.",
    ),
    (
        Kind::Method,
        "method",
        405,
        "The method is not supported",
        "Use one of the methods of the header Allow.",
    ),
    (
        Kind::OtherModel,
        "other-model",
        409,
        "Another program wrote the document",
        "Open it with that program.",
    ),
    (Kind::Full, "full", 507, "There is no room", "Free some room, and send the request again."),
    (
        Kind::Busy,
        "busy",
        503,
        "The server is busy, or its store stopped",
        "Send the request again later, with the same Idempotency-Key.",
    ),
    (Kind::Slow, "slow", 408, "The body came too slowly", "Send it faster."),
    (Kind::Failed, "failed", 500, "The server failed", "See the log of the server."),
];

/// A request that was refused, or failed.
#[derive(Debug)]
pub struct Problem {
    kind: Kind,
    detail: String,
    /// Members of the problem besides those of the RFC.
    more: Map<String, Value>,
    headers: Vec<(HeaderName, String)>,
}

impl Problem {
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: cut(detail.into()), more: Map::new(), headers: Vec::new() }
    }

    pub fn busy(detail: impl Into<String>) -> Self {
        Self::new(Kind::Busy, detail).with(header::RETRY_AFTER, "1")
    }

    pub fn with(mut self, name: HeaderName, value: impl std::fmt::Display) -> Self {
        self.headers.push((name, value.to_string()));
        self
    }

    fn member(mut self, name: &str, value: u64) -> Self {
        self.more.insert(name.into(), value.into());
        self
    }

    /// Returns the kind of the problem.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the version of the document, if the problem names that.
    pub fn version(&self) -> Option<u64> {
        self.more.get("head").and_then(Value::as_u64)
    }

    /// Names the version of the document, also as its tag.
    fn head(self, head: u64) -> Self {
        self.member("head", head).with(header::ETAG, format_args!("\"{head}\""))
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let kind = match refusal.kind() {
            RefusalKind::Malformed => Kind::Malformed,
            RefusalKind::TooDeep => Kind::TooDeep,
            RefusalKind::TooLarge => Kind::TooLarge,
            RefusalKind::InvalidPointer => Kind::InvalidPointer,
            RefusalKind::TestFailed => Kind::TestFailed,
            RefusalKind::NumberNotKept => Kind::NumberNotKept,
            _ => Kind::Refused,
        };
        Self::new(kind, refusal.to_string())
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let detail = error.to_string();
        let of = |kind| Self::new(kind, detail.clone());
        match error {
            Error::Store(error) => reply::Refusal::from(error).into(),
            Error::Invalid(_) => of(Kind::BadRequest),
            Error::NotFound { .. } => of(Kind::NotFound),
            Error::Exists { head, .. } => of(Kind::Exists).head(head),
            Error::Conflict { head, .. } => of(Kind::Conflict).head(head),
            Error::RequestReused { version, .. } => of(Kind::RequestReused).member("version", version),
            Error::Refused { refusal, .. } => Self { detail: cut(detail.clone()), ..Self::from(refusal) },
            Error::NoSuchVersion { head, .. } => of(Kind::NoSuchVersion).head(head),
            Error::HistoryGone { oldest, .. } => of(Kind::HistoryGone).member("oldest", oldest),
            Error::NoUndo { .. } => of(Kind::Refused),
            Error::OtherModel { .. } => of(Kind::OtherModel),
            _ => {
                tracing::error!(error = %detail, "a request on a document failed");
                of(Kind::Failed)
            }
        }
    }
}

impl From<reply::Refusal> for Problem {
    /// The refusals of the parts that all of HTTP shares, and of the store.
    fn from(refusal: reply::Refusal) -> Self {
        let kind = match refusal.status.as_u16() {
            400 => Kind::BadRequest,
            404 => Kind::NotFound,
            408 => Kind::Slow,
            410 => Kind::HistoryGone,
            413 => Kind::TooLarge,
            503 => return Self::busy(refusal.why()),
            507 => Kind::Full,
            _ => Kind::Failed,
        };
        Self::new(kind, refusal.why())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response<Body> {
        let (_, name, status, title, _) = entry(self.kind);
        let mut problem = self.more;
        problem.insert("type".into(), format!("{PREFIX}{name}").into());
        problem.insert("title".into(), title.into());
        problem.insert("status".into(), status.into());
        problem.insert("detail".into(), self.detail.into());
        let status = StatusCode::from_u16(status).expect("the table has statuses");
        let mut response = (status, Value::Object(problem).to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        self.headers.into_iter().for_each(|(name, value)| set(headers, name, value));
        response
    }
}

fn entry(kind: Kind) -> (Kind, &'static str, u16, &'static str, &'static str) {
    *KINDS.iter().find(|(of, ..)| *of == kind).expect("the table has all kinds")
}

/// Explains a kind: the type of a problem is an address.
pub async fn explain(Path(name): Path<String>) -> Response<Body> {
    let found = KINDS.iter().find(|(_, of, ..)| *of == name);
    let response = match found {
        Some((_, _, status, title, reaction)) => {
            axum::Json(json!({"title": title, "status": status, "reaction": reaction})).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    };
    protect(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_name_and_a_status_of_an_error() {
        for (at, (kind, name, status, ..)) in KINDS.iter().enumerate() {
            assert_eq!(*kind as usize, at, "{name}");
            assert!((400..600).contains(status), "{name}");
            assert!(KINDS[..at].iter().all(|(_, other, ..)| other != name), "{name}");
        }
        assert_eq!(KINDS.len(), Kind::Failed as usize + 1);
    }
}
