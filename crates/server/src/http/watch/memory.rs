//! Memory for the replies: each takes a share of what all replies of the server have, before it is
//! made, and holds what it needs of that until it is sent.

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Watch;
use super::query::Refusal;
use crate::http::budget::hold;
use crate::http::reply;

/// About the longest reply with what happens now, in bytes.
pub(super) const LOOK: usize = 2 << 20;
/// About the longest page of logs or entries, in bytes: JSON has six bytes for some of one.
pub(super) const LISTING: usize = 8 << 20;

/// Makes a reply within a share of this many bytes, which grows for a reply that is longer.
pub(super) async fn within_memory(
    State((watch, bytes)): State<(Watch, usize)>,
    request: Request,
    next: Next,
) -> Response {
    let made = make(&watch, bytes, request, next).await;
    made.unwrap_or_else(|refusal| Refusal::busy(refusal.why()).into_response())
}

async fn make(watch: &Watch, bytes: usize, request: Request, next: Next) -> Result<Response, reply::Refusal> {
    let replies = &watch.limits().replies;
    let mut share = replies.take(bytes).await?;
    let (head, body) = next.run(request).await.into_parts();
    // It is whole, and in memory.
    let body = to_bytes(body, usize::MAX).await.expect("nothing fails that is in memory");
    replies.grow(&mut share, body.len()).await?;
    Ok(Response::from_parts(head, Body::from(hold(body, Some(share)))))
}
