//! Appends in flight: a bounded number of unacknowledged writes of one thread, and how long each
//! took.

use std::collections::VecDeque;
use std::time::Instant;

use brooklet::{Error, Ticket};
use indicatif::ProgressBar;

use crate::latency::{Latencies, latencies};

/// What one writer has in flight. Acknowledgements come in the order of the appends.
pub struct Flight<'a> {
    limit: usize,
    deferred: bool,
    waiting: VecDeque<(Instant, Ticket)>,
    latencies: Latencies,
    bar: &'a ProgressBar,
}

impl<'a> Flight<'a> {
    /// At most `limit` writes in flight. `deferred` ones are acknowledged at once.
    pub fn new(limit: usize, deferred: bool, bar: &'a ProgressBar) -> Self {
        Self { limit, deferred, waiting: VecDeque::new(), latencies: latencies(), bar }
    }

    /// Takes off with a write that began at `start`, once there is room for it.
    pub fn add(&mut self, start: Instant, ticket: Ticket) -> Result<(), Error> {
        self.waiting.push_back((start, ticket));
        if self.waiting.len() >= self.limit {
            self.land_oldest()?;
        }
        while self.waiting.front().is_some_and(|(_, ticket)| self.deferred || ticket.is_durable()) {
            self.land_oldest()?;
        }
        Ok(())
    }

    /// Waits for all that is left.
    pub fn finish(mut self) -> Result<Latencies, Error> {
        while !self.waiting.is_empty() {
            self.land_oldest()?;
        }
        Ok(self.latencies)
    }

    fn land_oldest(&mut self) -> Result<(), Error> {
        if let Some((start, ticket)) = self.waiting.pop_front() {
            ticket.wait()?;
            self.latencies.saturating_record(start.elapsed().as_nanos() as u64);
            self.bar.inc(1);
        }
        Ok(())
    }
}
