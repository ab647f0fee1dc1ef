//! Long commits, which a helper hands to the store while other clients go on.
//!
//! The store takes a commit of 200,000 keys as one, and that takes a while. A helper of the driver
//! waits for it, and not the engine. It does so twice.
//!
//! First, the store prepares the commit: it makes room, which takes most of the time. Other clients
//! run any commands meanwhile. If they change a key of the commit, the command begins again.
//!
//! Then the store takes the commit. Nobody sees the change before the store has it. Meanwhile
//! clients may run commands that change nothing and take nothing from the store, such as `PING`, or
//! `GET` of a key in memory; all other commands wait until the end of the commit. So no other
//! commit comes in between, and a key of the commit is as it was.

use std::collections::VecDeque;
use std::mem::take;
use std::sync::mpsc::SendError;

use brooklet::{Commit, Error};

use super::Engine;
use crate::redis::client::{Client, ClientId, Work};
use crate::redis::commands::{self, Spec, flags};
use crate::redis::events::COMMANDS;
use crate::redis::fail::Portion;
use crate::redis::keys::{Draft, Handed, Task, TaskEnd};
use crate::redis::proto::Args;
use crate::redis::pubsub::MAX_STEPS;
use crate::redis::reply::Reply;

/// Most keys of a command that runs beside a long commit.
const KEYS: usize = 64;

/// The clients whose long commits the helper has.
#[derive(Default)]
pub(super) struct LongCommits {
    /// Client whose commit the store prepares.
    preparing: Option<ClientId>,
    /// Client whose commit the store is being handed.
    handing: Option<ClientId>,
}

impl LongCommits {
    /// Returns whether the store is being handed a commit.
    pub fn is_handing(&self) -> bool {
        self.handing.is_some()
    }
}

impl Engine {
    /// Makes the helper have the store prepare the commit of a draft, if the commit is a long one.
    /// Returns whether the command waits for that, or for the preparation of another commit.
    pub fn prepare(&mut self, client: &mut Client, draft: &mut Draft) -> bool {
        let may_wait = !client.is_killed && self.outbox.is_empty();
        let Some(helper) = self.helper.as_ref().filter(|_| may_wait && draft.is_long()) else {
            return false;
        };
        if self.long.preparing.is_none() {
            if let Err(SendError(task)) = helper.send(self.keys.preparation(draft)) {
                if let Task::Prepare(preparation) = task {
                    draft.put_back(preparation.commit);
                }
                return false;
            }
            self.long.preparing = Some(client.id);
        }
        client.prepares = true;
        true
    }

    /// Ends a task of the helper.
    pub fn end_task(&mut self, end: TaskEnd) {
        match end {
            TaskEnd::Prepared(prepared) => self.end_preparation(prepared),
            TaskEnd::Handed(handed) => self.end_handover(*handed),
        }
    }

    fn end_preparation(&mut self, prepared: Result<Commit, Error>) {
        let by = self.long.preparing.take();
        if let Some(client) = by.and_then(|id| self.clients.get_mut(&id)) {
            client.prepared = Some(prepared);
        }
        for client in self.clients.values_mut().filter(|client| client.prepares) {
            (client.prepares, client.is_behind) = (false, false);
            client.wake();
        }
    }

    /// Gives the commit of a command that ran in portions to a helper, if the commit is a long one
    /// and a helper takes it. Then the reply, which begins at `start`, is the rest of the command.
    pub(super) fn pass_commit(&mut self, client: &mut Client, start: usize, mut work: Box<Work>) {
        // Messages of the command leave with the commit, or not at all.
        let may_wait = !client.is_killed && self.outbox.is_empty();
        let Some(helper) = self.helper.as_ref().filter(|_| may_wait) else { return };
        let Some(mut handover) = self.keys.begin_handover() else { return };
        // Nothing asks for the words of the command any more.
        handover.take_words(work.request.split_off(1));
        if let Err(SendError(task)) = helper.send(Task::Commit(handover.into())) {
            if let TaskEnd::Handed(handed) = task.run() {
                let done = self.keys.end_handover(*handed);
                self.end_commit(client, start, done);
            }
            return;
        }
        self.long.handing = Some(client.id);
        let told = client.reply.split_off(start);
        work.rest = rest(told);
        client.work = Some(work);
    }

    /// Returns whether the helper has a commit of this client.
    pub fn is_handing(&self, id: ClientId) -> bool {
        self.long.handing == Some(id)
    }

    /// Ends a long commit: all wait for it no longer.
    fn end_handover(&mut self, handed: Handed) {
        let by = self.long.handing.take();
        self.steps = MAX_STEPS;
        let done = self.keys.end_handover(handed);
        match (by.and_then(|id| self.clients.remove(&id)), done) {
            (Some(mut client), done) => {
                client.handed = Some(done.map(|committed| self.note_committed(&mut client, committed)));
                // It may be leaving, and then it is not among those that wait.
                client.wake();
                self.clients.insert(client.id, client);
            }
            (None, Ok(committed)) => {
                self.has_news = true;
                self.note_changed(None, committed.epoch);
            }
            (None, Err(error)) => self.note_failure(&error),
        }
        self.outbox.stamp(self.keys.epoch());
        self.serve_waiting();
        self.deliver();
        for client in self.clients.values_mut().filter(|client| client.is_behind) {
            client.is_behind = false;
            client.wake();
        }
    }

    /// Returns whether a client's next request, or the rest of its long command, waits for the end
    /// of a long commit, or of its preparation; and if so, notes it of the client.
    pub(super) fn is_behind(&mut self, client: &mut Client, requests: &VecDeque<Args>) -> bool {
        client.is_behind = client.prepares
            || self.long.is_handing()
                && match requests.front() {
                    // A reply whose commit has ended waits for no other commit.
                    _ if client.work.is_some() => client.handed.is_none(),
                    Some(request) => !self.is_apart(client, request),
                    None => false,
                };
        client.is_behind
    }

    /// Returns whether a request changes no key, and takes nothing from the store.
    fn is_apart(&mut self, client: &Client, request: &Args) -> bool {
        let Some(spec) = commands::resolve(request).filter(|spec| spec.takes(request.len())) else {
            return true;
        };
        // A pause promises that no write follows. A listener expects all events from here on. And a
        // space is found by its name in the store.
        let is_apart = match spec.name {
            "client|pause" => false,
            "subscribe" | "psubscribe" => !self.settings.events.has(COMMANDS),
            "select" => request[1].iter().all(u8::is_ascii_digit),
            _ => is_of_connection(spec),
        };
        let is_queued = client.queue.is_some() && !spec.has(flags::CONTROLS_TRANSACTION);
        if is_queued || self.allowed(client, spec, request).is_err() || is_apart {
            return true;
        }
        let keys = spec.keys(request);
        spec.is_plain()
            && spec.has(flags::READ)
            && (1..=KEYS).contains(&keys.len())
            && keys.iter().all(|name| self.keys.is_at_hand(&client.database, name))
    }
}

/// Returns whether a command is about its client alone, or about subscriptions.
fn is_of_connection(spec: &Spec) -> bool {
    let is_of =
        spec.is_of("connection") || spec.has(flags::PUSHES) || matches!(spec.name, "multi" | "discard");
    is_of && !spec.has_keys() && !spec.has(flags::WRITE | flags::READ | flags::BLOCKING)
}

/// Returns the rest of a command whose reply waits for the store.
fn rest(mut told: Reply) -> Portion {
    Portion(Box::new(move |call| {
        let Some(done) = call.client.handed.take() else { return Ok(false) };
        done?;
        if told.len() > call.client.reply.room() {
            // Messages that the client did not take have taken the room.
            call.client.is_killed = true;
        } else {
            call.client.reply.take_in(take(&mut told));
        }
        Ok(true)
    }))
}
