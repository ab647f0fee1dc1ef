//! The task of a shipper: it plays the owner and the recorder of a log over a journal.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::{Ended, Input, Shared, Status, TICK};
use crate::cutter::{Cut, Cutter, count};
use crate::drive::{Failures, Watch, pause, send};
use crate::error::Error;
use crate::journal::Journal;
use crate::machine::owner::{Owner, OwnerState};
use crate::machine::recorder::Recorder;
use crate::machine::{Reply, Request};
use crate::object::Kind;
use crate::place::{Mark, StoreId};

/// The work of a shipper's thread.
pub(super) struct Shipping<J> {
    pub journal: Arc<J>,
    pub store: StoreId,
    pub owner: Owner<Bytes>,
    pub recorder: Recorder,
    pub cutter: Cutter,
    /// The record that waits for the one under way.
    pub records: Option<(Mark, u64)>,
    /// Number of calls that asked for a record, and have arrived here.
    pub records_taken: u64,
    /// Requests that failed since one succeeded; those to remove objects by themselves: a bucket
    /// that refuses them may take all else.
    pub failures: Failures,
    pub removals: Failures,
    pub replies: UnboundedSender<Input>,
    pub shared: Arc<Shared>,
    pub watch: Watch,
}

impl<J: Journal> Shipping<J> {
    pub async fn run(mut self, mut inputs: UnboundedReceiver<Input>) {
        loop {
            let end = self.step();
            if let Some(end) = end {
                return self.shared.end(end);
            }
            let now = self.watch.now();
            let due = self.cutter.due().filter(|_| self.owner.has_room());
            let wait = due.map_or(TICK, |due| due.saturating_sub(now).min(TICK));
            let Ok(input) = tokio::time::timeout(wait, inputs.recv()).await else { continue };
            let Some(input) = input else { return };
            if let Err(end) = self.take(input) {
                return self.shared.end(end);
            }
        }
    }

    /// Cuts, sends and releases what is due. Returns the end of the shipping, if it has ended.
    fn step(&mut self) -> Option<Ended> {
        let now = self.watch.now();
        // While the window is full, blocks gather for larger objects.
        if self.owner.has_room()
            && let Some(cut) = self.cutter.cut(now)
        {
            self.offer(cut);
        }
        if self.recorder.may_record()
            && let Some((mark, backup)) = self.records.take()
        {
            self.recorder.record(mark, backup);
        }
        let mut requests = self.owner.poll(now);
        // Before a handover is sent: nobody waits for the end of the lease behind it.
        self.note_lease();
        requests.extend(self.recorder.poll());
        let puts = requests.iter().filter(|request| matches!(request, Request::Create(_))).count();
        requests.into_iter().for_each(|request| self.send(request));
        let released = self.owner.take_released();
        let blocks = released.iter().filter(|object| object.kind == Kind::Blocks);
        let bytes: usize = blocks.clone().map(|object| object.payload.len()).sum();
        let count: u64 = blocks.clone().map(|object| count(&object.payload)).sum();
        let last = blocks.last();
        let recordable = last.map(|it| Mark { place: it.place, lsn: it.begin, chain: it.previous });
        self.note_lease();
        let kept = self.owner.kept();
        let (record, is_recording) =
            (self.recorder.newest(), !self.recorder.is_idle() || self.records.is_some());
        self.shared.update(|status| {
            let told = &mut status.told;
            told.waiting = told.waiting.saturating_sub(bytes);
            told.kept_blocks += count;
            (told.kept, told.record) = (kept, record);
            told.is_recording = is_recording || status.records > self.records_taken;
            told.puts += puts as u64;
            told.recordable = recordable.or(told.recordable);
        });
        if bytes > 0 && self.shared.mirror.get().is_some() {
            // Not on this thread: in a store without threads, callbacks run within the report, and
            // may wait for the next one.
            let shared = self.shared.clone();
            drop(tokio::task::spawn_blocking(move || shared.report()));
        }
        let handover = released.iter().find(|object| object.kind == Kind::Handover);
        match (self.owner.state(), self.recorder.fenced_by()) {
            (OwnerState::Fenced { by }, _) | (_, Some(by)) => Some(Ended::Fenced(by)),
            _ => handover.map(|it| Ended::HandedOver(String::from_utf8_lossy(&it.payload).into_owned())),
        }
    }

    fn note_lease(&self) {
        let lease = self.owner.lease().map_or(0, |end| end.as_nanos() as u64);
        self.shared.lease.store(lease, Ordering::Release);
    }

    fn take(&mut self, input: Input) -> Result<(), Ended> {
        let now = self.watch.now();
        match input {
            Input::Block { begin, end, block } => self.cutter.push(begin, end, &block, now),
            Input::Flush => self.flush(),
            Input::Record { mark, backup } => {
                // Two backups may end in another order than they began.
                if self.records.is_none_or(|(last, _)| last.place <= mark.place) {
                    self.records = Some((mark, backup));
                }
                self.records_taken += 1;
            }
            Input::HandOver(to) => {
                self.flush();
                self.owner.hand_over(to);
            }
            Input::Reply(request, reply) => {
                let failure = reply.as_ref().err().cloned();
                self.failures_of(&request).note(failure.as_deref());
                self.shared.update(|status| status.told.failure = failure);
                let reply = reply.unwrap_or(Reply::Unknown);
                match request {
                    Request::Record(_) | Request::ReadRecord(_) | Request::Remove(_) => {
                        self.recorder.answer(&request, reply);
                    }
                    _ => self.owner.answer(&request, reply, now),
                }
            }
            Input::GiveUp => return Err(Ended::Failed(Arc::new(Error::GivenUp))),
            Input::Fatal(error) => return Err(Ended::Failed(Arc::new(error))),
        }
        Ok(())
    }

    fn flush(&mut self) {
        while let Some(cut) = self.cutter.flush() {
            self.offer(cut);
        }
    }

    fn offer(&mut self, cut: Cut) {
        let bytes = cut.payload.len() as u64;
        if self.owner.offer(cut.begin, cut.end, cut.payload) {
            self.shared.update(|Status { told, .. }| {
                told.cuts += 1;
                told.bytes += bytes;
            });
        }
    }

    fn failures_of(&mut self, request: &Request<Bytes>) -> &mut Failures {
        if matches!(request, Request::Remove(_)) { &mut self.removals } else { &mut self.failures }
    }

    /// Sends a request in a task of its own; its reply comes as an input.
    fn send(&mut self, request: Request<Bytes>) {
        let (journal, store, replies) = (self.journal.clone(), self.store, self.replies.clone());
        let pause = pause(self.failures_of(&request).count());
        tokio::spawn(async move {
            let owed = Owed(Some(replies));
            let input = match send(&*journal, store, &request).await {
                Ok(reply) => {
                    if is_under_way(&reply) {
                        tokio::time::sleep(pause).await;
                    }
                    Input::Reply(request, Ok(reply))
                }
                Err(error) if error.is_temporary() => {
                    tokio::time::sleep(pause).await;
                    Input::Reply(request, Err(error.to_string()))
                }
                Err(error) => Input::Fatal(error),
            };
            owed.pay(input);
        });
    }
}

/// Returns whether an object is missing that could not be created because it exists: another
/// request for it is under way. The machines read objects after such a refusal alone, and then
/// create them again.
fn is_under_way(reply: &Reply<Bytes>) -> bool {
    matches!(reply, Reply::Object(None) | Reply::Record(None))
}

impl<J> Drop for Shipping<J> {
    /// Leaves nobody waiting, also if the task has panicked, or its runtime has ended.
    fn drop(&mut self) {
        self.shared.end(Ended::Failed(Arc::new(Error::TaskEnded)));
    }
}

/// A guard for the reply to a request: without it, the owner would wait for ever.
struct Owed(Option<UnboundedSender<Input>>);

impl Owed {
    fn pay(mut self, input: Input) {
        self.send(input);
    }

    fn send(&mut self, input: Input) {
        if let Some(replies) = self.0.take() {
            // Nobody hears it once the shipper is dropped.
            let _ = replies.send(input);
        }
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        self.send(Input::Fatal(Error::TaskEnded));
    }
}
