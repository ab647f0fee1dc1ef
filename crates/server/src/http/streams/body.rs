//! Request bodies: read whole, with a limit for each and a limit for all together.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, HttpBody};
use axum::http::StatusCode;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::reply::Refusal;
use crate::http::Config;

/// What the memory for bodies is counted in.
const KIB: usize = 1024;
/// Most bytes of a body that is refused that are taken in all the same.
const DISCARDED: usize = 64 << 20;

pub struct Bodies {
    most: usize,
    patience: Duration,
    memory: Arc<Semaphore>,
}

impl Bodies {
    pub fn new(config: &Config) -> Self {
        let memory = config.body_budget.max(config.max_body).div_ceil(KIB).min(Semaphore::MAX_PERMITS);
        Self { most: config.max_body, patience: config.patience, memory: Arc::new(Semaphore::new(memory)) }
    }

    /// The whole body, with its share of the memory: of one that does not tell its size, the share
    /// of the largest.
    pub async fn collect(&self, body: Body) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Refusal> {
        let told = HttpBody::size_hint(&body).exact().map(|len| usize::try_from(len).unwrap_or(usize::MAX));
        match told {
            Some(0) => return Ok((Bytes::new(), None)),
            Some(len) if len > self.most => {
                self.discard(body.into_data_stream()).await;
                return Err(self.too_large());
            }
            _ => {}
        }
        let len = told.unwrap_or(self.most);
        let share = u32::try_from(len.div_ceil(KIB)).unwrap_or(u32::MAX);
        let share = self.memory.clone().acquire_many_owned(share).await.expect("it is never closed");
        match tokio::time::timeout(self.patience, self.take(body.into_data_stream(), told.unwrap_or(0))).await
        {
            Ok(body) => Ok((body?, Some(share))),
            Err(_) => {
                let patience = self.patience;
                let why = format!("the body did not arrive within {patience:?}: send it faster, or in parts");
                Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, why))
            }
        }
    }

    async fn take(&self, mut chunks: BodyDataStream, len: usize) -> Result<Bytes, Refusal> {
        let mut body = BytesMut::with_capacity(len);
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| Refusal::invalid(format!("the body ended early: {error}")))?;
            if body.len() + chunk.len() > self.most {
                self.discard(chunks).await;
                return Err(self.too_large());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    }

    /// Takes in what is left of a body, up to a point: many clients hear why it is refused only
    /// once they have sent it.
    async fn discard(&self, mut chunks: BodyDataStream) {
        let some = async {
            let mut left = DISCARDED;
            while let Some(Ok(chunk)) = chunks.next().await
                && left > 0
            {
                left = left.saturating_sub(chunk.len());
            }
        };
        // However it ends, the reply is the same.
        let _ = tokio::time::timeout(self.patience, some).await;
    }

    fn too_large(&self) -> Refusal {
        Refusal::too_large(format!("the body is over {} bytes: send it in parts", self.most))
    }
}
