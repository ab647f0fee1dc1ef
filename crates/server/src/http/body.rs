//! Request bodies: read whole, with a limit for each and a limit for all together.

use std::time::Duration;

use axum::body::{Body, BodyDataStream, HttpBody};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use tokio_util::sync::CancellationToken;

use super::Config;
use super::budget::{Budget, bind};
use super::reply::Refusal;

/// Most bytes of a body that nobody needs that are taken in all the same.
const DISCARDED: usize = 64 << 20;
/// Bytes of memory for a body before its first bytes are there.
const FIRST: usize = 16 << 10;

/// The stop of the server, an extension of its requests.
#[derive(Clone)]
pub struct Stop(pub CancellationToken);

pub struct Bodies {
    most: usize,
    patience: Duration,
    budget: Budget,
}

impl Bodies {
    pub fn new(config: &Config) -> Self {
        let budget = Budget::new(config.body_budget.max(config.max_body));
        Self { most: config.max_body, patience: config.patience, budget }
    }

    /// The whole body, which holds its share of the memory. The share is for bytes that are there,
    /// and not for bytes that are announced: so peers that send slowly hold little.
    pub async fn collect(&self, head: &Parts, body: Body) -> Result<Bytes, Refusal> {
        let told = HttpBody::size_hint(&body).exact().map(|len| usize::try_from(len).unwrap_or(usize::MAX));
        match told {
            Some(0) => return Ok(Bytes::new()),
            Some(len) if len > self.most => {
                discard(head, body, self.patience).await;
                return Err(self.too_large());
            }
            _ => {}
        }
        let mut chunks = body.into_data_stream();
        match tokio::time::timeout(self.patience, self.take(&mut chunks, told)).await {
            Ok(Ok(taken)) => Ok(taken),
            Ok(Err(refusal)) => {
                take_in(head, chunks, self.patience).await;
                Err(refusal)
            }
            Err(_) => {
                let patience = self.patience;
                let why = format!("the body did not arrive within {patience:?}: send it faster, or in parts");
                Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, why))
            }
        }
    }

    async fn take(&self, chunks: &mut BodyDataStream, told: Option<usize>) -> Result<Bytes, Refusal> {
        let mut body = BytesMut::with_capacity(told.unwrap_or(0).min(FIRST));
        let mut share = self.budget.take(0).await?;
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| Refusal::invalid(format!("the body ended early: {error}")))?;
            if body.len() + chunk.len() > self.most {
                return Err(self.too_large());
            }
            self.budget.grow(&mut share, body.len() + chunk.len()).await?;
            body.extend_from_slice(&chunk);
        }
        Ok(bind(body.freeze(), share))
    }

    fn too_large(&self) -> Refusal {
        Refusal::too_large(format!("the body is over {} bytes: send it in parts", self.most))
    }
}

/// Takes in the body of a request whose reply does not depend on the body, as far as the client
/// sends it without being asked. The stop of the server does not wait for it.
pub async fn discard(head: &Parts, body: Body, patience: Duration) {
    if !waits_to_send(&head.headers) {
        take_in(head, body.into_data_stream(), patience).await;
    }
}

/// Takes in what is left of a body, up to a point: many clients read the reply only once they have
/// sent the body.
async fn take_in(head: &Parts, mut chunks: BodyDataStream, patience: Duration) {
    let some = async {
        let mut left = DISCARDED;
        while let Some(Ok(chunk)) = chunks.next().await
            && left > 0
        {
            left = left.saturating_sub(chunk.len());
        }
    };
    let stopped = async {
        match head.extensions.get::<Stop>() {
            Some(Stop(stop)) => stop.cancelled().await,
            None => std::future::pending().await,
        }
    };
    // However it ends, the reply is the same. Bytes that are there are taken in first: a connection
    // that is closed over them may break off before the client has read the reply.
    tokio::select! {
        biased;
        _ = tokio::time::timeout(patience, some) => {}
        () = stopped => {}
    }
}

/// Returns whether a client sends the body only after the server has asked for it. The first read
/// of the body asks.
fn waits_to_send(headers: &HeaderMap) -> bool {
    let expected = headers.get(header::EXPECT);
    expected.is_some_and(|expected| expected.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::http::Request;
    use futures_util::stream;

    use super::*;

    /// In an earlier state the reply to both was that the body did not arrive in time.
    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_end_is_refused_for_the_first_reason() {
        let config = Config { max_body: 5000, body_budget: 5000, ..Config::default() };
        let bodies = Bodies::new(&config);
        let refused = async |len: usize| {
            let begin = stream::iter([Ok::<_, Infallible>(Bytes::from(vec![b'x'; len]))]);
            let body = Body::from_stream(begin.chain(stream::pending()));
            let (head, ()) = Request::new(()).into_parts();
            bodies.collect(&head, body).await.map(drop).unwrap_err().status
        };
        assert_eq!(refused(5001).await, StatusCode::PAYLOAD_TOO_LARGE);
        let all = bodies.budget.take(bodies.budget.bytes()).await.unwrap();
        assert_eq!(refused(5000).await, StatusCode::SERVICE_UNAVAILABLE);
        drop(all);
        assert_eq!(refused(5000).await, StatusCode::REQUEST_TIMEOUT);
    }
}
