//! The limits that all paths of HTTP share.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Config;
use super::body::Bodies;
use super::budget::Budget;
use super::reply::Refusal;

/// Memory for bodies and replies, and places for clients that wait.
pub struct Limits {
    pub bodies: Bodies,
    pub replies: Budget,
    /// For values that bodies are parsed to.
    pub values: Budget,
    waiting: Arc<Semaphore>,
    max_waiting: usize,
}

impl Limits {
    pub fn new(config: &Config) -> Arc<Self> {
        Arc::new(Self {
            bodies: Bodies::new(config),
            replies: Budget::new(config.reply_budget.max(config.chunk)),
            values: Budget::new(config.body_budget),
            waiting: Arc::new(Semaphore::new(config.max_waiting)),
            max_waiting: config.max_waiting,
        })
    }

    /// A place among those who wait.
    pub fn place(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        self.waiting.clone().try_acquire_owned().map_err(|_| {
            let most = self.max_waiting;
            Refusal::busy(format!("{most} readers wait already: retry later, or read without waiting"))
        })
    }
}
