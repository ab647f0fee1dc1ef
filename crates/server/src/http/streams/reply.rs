//! Replies: refusals, with the reason and the remedy, and the parts that all replies share.

use axum::body::Body;
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use brooklet::{Error, ErrorKind};

use super::headers as names;
use super::offset::Offset;

/// Why a request was not done, as its client is told.
#[derive(Debug)]
pub struct Refusal {
    pub status: StatusCode,
    /// The stream was not what it was thought to be; looked up anew, it may be done.
    pub is_stale: bool,
    why: String,
    headers: Vec<(HeaderName, String)>,
}

impl Refusal {
    pub fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self { status, is_stale: false, why: why.into(), headers: Vec::new() }
    }

    /// The request is wrong: change it.
    pub fn invalid(why: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, why)
    }

    pub fn conflict(why: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, why)
    }

    pub fn unsupported(why: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, why)
    }

    pub fn too_large(why: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, why)
    }

    /// The server has its hands full.
    pub fn busy(why: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, why).with(header::RETRY_AFTER, "1")
    }

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

    pub fn with(mut self, name: HeaderName, value: impl std::fmt::Display) -> Self {
        self.headers.push((name, value.to_string()));
        self
    }
}

/// Sets a header to what is known to be allowed in one; anything else is left out.
pub fn set(headers: &mut HeaderMap, name: HeaderName, value: impl std::fmt::Display) {
    if let Ok(value) = HeaderValue::try_from(value.to_string()) {
        headers.insert(name, value);
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let status = match (&error, error.kind()) {
            (Error::PayloadTooLarge { .. } | Error::CommitTooLarge { .. }, _) => {
                StatusCode::PAYLOAD_TOO_LARGE
            }
            // It was deleted a moment ago.
            (Error::UnknownLog { .. }, _) => StatusCode::NOT_FOUND,
            (Error::InvalidKey { .. }, _) => StatusCode::BAD_REQUEST,
            // Of what a client may ask for, only what retention took is out of range.
            (Error::OutOfRange { .. }, _) => StatusCode::GONE,
            (_, ErrorKind::Full) => StatusCode::INSUFFICIENT_STORAGE,
            (_, ErrorKind::Stopped | ErrorKind::Conflict | ErrorKind::Busy) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(%error, "a request failed");
        }
        let is_stale = matches!(error, Error::Conflict { .. } | Error::UnknownLog { .. });
        Self { is_stale, ..Self::new(status, error.to_string()) }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response<Body> {
        let mut response = (self.status, self.why + "\n").into_response();
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        self.headers.into_iter().for_each(|(name, value)| set(response.headers_mut(), name, value));
        response
    }
}

/// Headers that pages of another origin may read.
const EXPOSED: &str = "ETag, Location, Stream-Next-Offset, Stream-Cursor, Stream-Up-To-Date, Stream-Closed, Stream-TTL, \
                       Stream-Expires-At, Stream-SSE-Data-Encoding, Producer-Epoch, Producer-Seq, \
                       Producer-Expected-Seq, Producer-Received-Seq";
/// Headers that they may send.
const ACCEPTED: &str = "Authorization, Content-Type, If-None-Match, Stream-Seq, Stream-TTL, Stream-Expires-At, \
                        Stream-Closed, Stream-Forked-From, Stream-Fork-Offset, Stream-Fork-Sub-Offset, Producer-Id, \
                        Producer-Epoch, Producer-Seq";

/// What a browser asks before it sends a request of another origin.
pub fn options(methods: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(header::ALLOW, HeaderValue::from_static(methods));
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(methods));
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(ACCEPTED));
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"));
    response
}

/// What browsers are told with every reply: not to guess what it is, and whose pages may have it.
pub fn guard(mut response: Response<Body>, origin: Option<HeaderValue>) -> Response<Body> {
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(names::CROSS_ORIGIN_RESOURCE_POLICY, HeaderValue::from_static("cross-origin"));
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    }
    response
}
