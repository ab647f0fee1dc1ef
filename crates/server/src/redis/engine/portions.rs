//! Long commands, which run in portions.
//!
//! Other clients have their turns between two portions. Each portion is a commit of its own. In a
//! transaction or a script there are no turns of others: the portions run at once, and their number
//! is bounded.

use super::Engine;
use crate::redis::client::{Client, Work};
use crate::redis::commands::{Call, Spec, after_load, flags};
use crate::redis::fail::Fail;

/// Most portions that one transaction, and one script, runs at once. A portion takes about a
/// millisecond, and no client should wait more than 100.
const IN_EXEC: usize = 90;
const IN_SCRIPT: usize = 50;

impl Engine {
    /// Continues the long command of a client until its end, or until `goes_on` returns false.
    pub(super) fn go_on(&mut self, client: &mut Client, goes_on: &impl Fn() -> bool) {
        while let Some(work) = client.work.take() {
            self.portion(client, work);
            // The rest waits for the store.
            if self.long.is_handing() || client.prepares || !goes_on() {
                break;
            }
        }
    }

    /// Runs a portion of a long command, and commits its changes.
    fn portion(&mut self, client: &mut Client, mut work: Box<Work>) {
        let (start, spec) = (client.written(), work.spec);
        let began = (self.clock)();
        let done = self.limited(client, spec, |engine, client| {
            let Work { request, rest, .. } = &mut *work;
            let mut call = Call { engine, client, args: request, may_wait: true, woken_by: None };
            let is_done = (rest.0)(&mut call)?;
            engine.note_events(spec, request);
            Ok(is_done)
        });
        self.note_time(spec, 0, began);
        match done {
            Ok(false) => client.work = Some(work),
            Ok(true) => self.pass_commit(client, start, work),
            Err(Fail::Long(rest)) => {
                work.rest = rest;
                client.work = Some(work);
            }
            Err(Fail::Wait(wait)) => self.wait(client, wait),
            Err(Fail::Reply(error)) => self.tell_refusal(client, spec, start, &error),
            Err(fail) => self.undo(client, start, &fail),
        }
        self.commit(client, start);
        client.before = None;
        if client.work.is_some() {
            client.note_epoch(self.keys.take_seen());
            self.outbox.stamp(self.keys.epoch());
        } else {
            client.work_bytes = 0;
            // The command may have needed its prepared commit no more.
            client.prepared = None;
            self.end_request(client, Some(spec), start);
            self.tell_late(client);
        }
    }

    /// Runs a command. If the command stops at a long hash that is not in memory, the hash is
    /// loaded in portions, and the command runs again.
    pub(super) fn or_load(
        &mut self,
        client: &mut Client,
        spec: &'static Spec,
        is_alone: bool,
        run: impl FnOnce(&mut Self, &mut Client) -> Result<(), Fail>,
    ) -> Result<(), Fail> {
        let start = client.written();
        let is_whole = client.is_in_exec || client.is_in_script || !is_alone;
        // A command that only opens the keys of its words has done nothing when it stops.
        let is_of_keys = spec.key_range().0 > 0 && !spec.has(flags::BLOCKING | flags::CONTROLS_TRANSACTION);
        self.keys.set_may_stop(is_of_keys && !is_whole);
        let done = self.limited(client, spec, run);
        self.keys.set_may_stop(false);
        match self.keys.take_loading() {
            Some(loading) if done.is_err() => {
                client.cut(start);
                Err(after_load(spec, loading))
            }
            _ => done,
        }
    }

    /// Runs a command, or a portion of it, with the limit of its reply.
    pub(super) fn limited<T>(
        &mut self,
        client: &mut Client,
        spec: &Spec,
        run: impl FnOnce(&mut Self, &mut Client) -> Result<T, Fail>,
    ) -> Result<T, Fail> {
        self.note_data(client, spec);
        // Nobody takes the replies of a transaction whose client must leave.
        client.reply.begin(if client.is_killed { 0 } else { self.settings.hard_output });
        self.begin_events();
        let done = run(self, client);
        client.reply.end();
        self.stats.expired += std::mem::take(&mut self.keys.expired);
        self.note_lookups(spec);
        done.and_then(|done| client.has_room().map(|_| done))
    }

    /// Appends the pushes that came while a long command of the client ran.
    fn tell_late(&mut self, client: &mut Client) {
        let (bytes, epoch) = std::mem::take(&mut client.late);
        if bytes.is_empty() {
            return;
        }
        client.reply.bytes.extend_from_slice(&bytes);
        let epoch = if epoch > self.keys.acknowledged() { epoch } else { 0 };
        if client.mark(epoch) {
            self.promised.push_back((epoch, client.id));
        }
    }

    /// Begins to count the portions that run at once.
    pub fn begin_at_once(&mut self) {
        self.at_once = 0;
    }

    /// Counts a portion of a command that other clients have no turn in.
    pub fn count_at_once(&mut self, command: &str, is_in_script: bool) -> Result<(), Fail> {
        self.at_once += 1;
        if self.at_once <= if is_in_script { IN_SCRIPT } else { IN_EXEC } {
            return Ok(());
        }
        Err(Fail::Undone(
            format!("ERR '{command}' takes too long for a transaction or a script: run it alone").into(),
        ))
    }

    /// Checks the bytes that a transaction has written so far.
    pub fn check_size(&self) -> Result<(), Fail> {
        let most = self.settings.max_request;
        if self.keys.pending_bytes() <= most as u64 {
            return Ok(());
        }
        Err(Fail::Undone(
            format!(
                "ERR the transaction writes more than {most} bytes (client-query-buffer-limit): \
                 write less at once"
            )
            .into(),
        ))
    }
}
