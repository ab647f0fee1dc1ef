//! The engine: runs the requests of clients, one after another.
//!
//! The engine has no thread, clock or socket of its own. Its driver sets the time, passes requests
//! in, takes replies out when they are ready, and reports durable commits. So the same requests in
//! the same order always have the same result.

mod batch;
mod before;
mod clients;
mod delivery;
mod events;
mod handover;
mod lease;
mod pause;
mod portions;
mod replica;
mod scans;
#[cfg(test)]
mod tests;
mod time;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;

use super::acl::{Denied, Log, Users};
use super::client::{Client, ClientId, Replies, Work};
use super::commands::{self, Call, Places, Spec, flags};
use super::fail::{Fail, told, too_large, unknown};
use super::keys::{Changed, Committed, Keyspace, Task};
use super::notices::Notice;
use super::proto::{Args, Invalid, size_of_args};
use super::pubsub::{MAX_STEPS, Outbox, Topics};
use super::scripts::{Clock, Scripts};
use super::settings::Settings;
use super::stats::Stats;
use super::tracking::Tracker;
use crate::hot_logs::HotLogs;
use crate::replica::Upstream;
pub use before::Before;
pub use clients::Buffers;
pub use pause::Pause;
pub use scans::Scans;
use waiting::Readers;

/// The state that all clients share.
pub struct Engine {
    /// The keys.
    pub keys: Keyspace,
    /// The users.
    pub users: Users,
    /// The last refusals for lack of rights.
    pub refusals: Log,
    /// Settings that can change while the server runs.
    pub settings: Settings,
    /// Counters.
    pub stats: Stats,
    /// Scripts.
    pub scripts: Scripts,
    /// Number that another run of the server does not have, in 40 hexadecimal digits.
    pub run_id: String,
    /// TCP port of the server; 0: none.
    pub port: u16,
    /// Nanoseconds since some moment, to measure how long commands run.
    pub clock: Box<dyn Fn() -> u64 + Send>,
    /// Scans of keys in progress.
    pub scans: Scans,
    /// Subscribers of channels and patterns.
    pub topics: Topics,
    /// Clients that keep copies of keys.
    pub tracker: Tracker,
    /// Messages that are not delivered yet.
    pub(super) outbox: Outbox,
    /// Who runs the tasks of long commits, and then calls [`end_task`](Self::end_task).
    pub helper: Option<Sender<Task>>,
    /// Clients with long commits.
    long: handover::LongCommits,
    hot_logs: Arc<HotLogs>,
    clients: HashMap<ClientId, Box<Client>>,
    next_client: ClientId,
    /// Memory of all clients, in bytes.
    held: usize,
    /// Clients that have not logged in, the oldest first.
    strangers: BTreeSet<ClientId>,
    /// Time of the last check of all clients, by the steady clock, in milliseconds.
    checked_at: u64,
    /// Clients that wait for an epoch to be acknowledged, in order.
    promised: VecDeque<(u64, ClientId)>,
    /// Clients that wait for a key to change, by the turns of their requests.
    waiting: HashMap<Bytes, BTreeMap<u64, ClientId>>,
    /// Those of them that wait as members of a group, which may be deleted.
    members: HashMap<Bytes, BTreeMap<u64, ClientId>>,
    /// Number of waits so far.
    turns: u64,
    /// Those whose key has changed, and who get their replies in portions.
    readers: Readers,
    /// Ends of the waits, by the steady clock.
    deadlines: BTreeSet<(u64, ClientId)>,
    /// Clients that wait for an epoch to be on stable media.
    waiting_durable: BTreeSet<ClientId>,
    /// The lease of the store, and the clients whose replies wait for it.
    leased: lease::Leased,
    watching: HashMap<Bytes, Vec<ClientId>>,
    /// Keys that changed since the waiting clients were last served, in the order of the changes.
    changed: VecDeque<Bytes>,
    /// The same keys.
    is_changed: BTreeSet<Bytes>,
    /// Milliseconds since the start of this engine, by a clock that only moves forward.
    pub steady: u64,
    /// Whether commits are in progress for which the driver does not wait yet.
    pub has_news: bool,
    /// Whether a client waits until a time that the driver does not know yet.
    pub has_deadline: bool,
    /// Reason why no more writes are accepted.
    pub stopped: Option<String>,
    /// The log that the store follows, if another server owns it.
    pub upstream: Option<Arc<dyn Upstream>>,
    pause: Option<Pause>,
    /// Whether the engine disconnects all clients.
    is_leaving: bool,
    rng: u64,
    /// Portions of long commands that ran at once since the last request began.
    at_once: usize,
    /// Steps that are left to the current request, to compare its messages with patterns.
    steps: usize,
}

/// One of this many commits is noted for the busiest logs, and counts for all of them.
const SAMPLE: u64 = 16;

impl Engine {
    /// Creates an engine without clients, at the start of the steady clock.
    pub fn new(keys: Keyspace, users: Users, settings: Settings, hot_logs: Arc<HotLogs>, rng: u64) -> Self {
        let looks = AtomicU64::new(0);
        Self {
            keys,
            users,
            refusals: Log::default(),
            settings,
            stats: Stats::new(0),
            // Without a driver there is no time: each look at the clock takes 100 microseconds.
            scripts: Scripts::new(Box::new(move || {
                Duration::from_micros(100 * looks.fetch_add(1, Ordering::Relaxed))
            })),
            run_id: String::new(),
            port: 0,
            clock: Box::new(|| 0),
            scans: Scans::default(),
            topics: Topics::default(),
            tracker: Tracker::default(),
            outbox: Outbox::default(),
            helper: None,
            long: handover::LongCommits::default(),
            hot_logs,
            clients: HashMap::new(),
            next_client: 0,
            held: 0,
            strangers: BTreeSet::new(),
            checked_at: 0,
            promised: VecDeque::new(),
            waiting: HashMap::new(),
            turns: 0,
            members: HashMap::new(),
            readers: Readers::default(),
            deadlines: BTreeSet::new(),
            waiting_durable: BTreeSet::new(),
            leased: lease::Leased::default(),
            watching: HashMap::new(),
            changed: VecDeque::new(),
            is_changed: BTreeSet::new(),
            steady: 0,
            has_news: false,
            has_deadline: false,
            stopped: None,
            upstream: None,
            pause: None,
            is_leaving: false,
            rng: rng | 1,
            at_once: 0,
            steps: MAX_STEPS,
        }
    }

    /// Sets the clock that limits the time of scripts.
    pub fn set_script_clock(&mut self, clock: Clock) {
        self.scripts = Scripts::new(clock);
    }

    /// Returns a number that is hard to predict from the last number.
    pub fn next_random(&mut self) -> u64 {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        self.rng
    }

    /// Runs the requests of a client, and notes the epoch that the replies wait for. Stops between
    /// two requests once `goes_on` returns false.
    pub fn run(&mut self, id: ClientId, requests: &mut VecDeque<Args>, goes_on: impl Fn() -> bool) {
        if self.outbox.has_backlog() && self.posts_go_first(id) {
            return;
        }
        let Some(mut client) = self.clients.remove(&id) else { return };
        client.last_seen = self.steady;
        (client.is_held_back, client.has_posted, client.is_behind) = (false, false, false);
        let mut is_first = true;
        while (std::mem::take(&mut is_first) || goes_on())
            && client.wait.is_none()
            && (!client.is_leaving || client.handed.is_some())
            && !client.is_killed
            && self.may_reply(&client)
        {
            self.steps = MAX_STEPS;
            if self.is_behind(&mut client, requests) {
                break;
            }
            if client.work.is_some() {
                if self.holds_back_rest(&mut client) {
                    break;
                }
                self.go_on(&mut client, &goes_on);
            } else if self.pause.is_some() && self.holds_back(&mut client, requests) {
                break;
            } else if self.pause.is_some()
                || self.long.is_handing()
                || !self.batch(&mut client, requests, &goes_on)
            {
                let Some(request) = requests.pop_front() else { break };
                self.one(&mut client, &request);
            }
            if !self.changed.is_empty() || !self.outbox.is_empty() {
                let has_messages = self.outbox.has_messages();
                self.clients.insert(id, client);
                self.serve_waiting();
                self.deliver();
                // The client may have had too much memory for a message.
                let Some(same) = self.clients.remove(&id) else { return };
                client = same;
                if has_messages && self.outbox.has_backlog() {
                    (client.has_posted, self.has_deadline) = (true, true);
                    break;
                }
            }
        }
        self.charge(&mut client);
        self.clients.insert(id, client);
        self.keys.trim_cache();
    }

    /// Makes the replies since `start` wait for the epoch that they depend on.
    fn settle_reply(&mut self, client: &mut Client, start: usize) {
        let epoch = self.keys.take_seen().max(client.take_epoch());
        client.depends_on = client.depends_on.max(epoch);
        if client.written() > start && client.mark(epoch) {
            self.promised.push_back((epoch, client.id));
        }
    }

    /// Reports an error in the client's bytes, and then disconnects the client.
    pub fn refuse(&mut self, id: ClientId, why: &Invalid) {
        let Some(client) = self.client(id) else { return };
        client.is_leaving = true;
        match why {
            Invalid::Syntax(why) => {
                client.reply.error(&format!("ERR Protocol error: {why}"));
                client.mark(0);
            }
            Invalid::Foreign => {
                let address = client.address.clone();
                self.keys.notices.push(Notice::Foreign { address });
            }
        }
    }

    /// Runs one request.
    fn one(&mut self, client: &mut Client, request: &[Bytes]) {
        let Some(name) = request.first() else { return };
        self.stats.commands += 1;
        let before = client.written();
        if client.replies == Replies::SkipNext {
            client.replies = Replies::Skip;
        }
        let spec = commands::resolve(request);
        match spec {
            None => {
                let error = unknown(name, &request[1..]);
                self.refuse_command(client, &error);
            }
            Some(spec) => self.known(client, spec, request),
        }
        if client.work.is_some() {
            // The reply follows later, and waits for the same epochs.
            return client.note_epoch(self.keys.take_seen());
        }
        self.end_request(client, spec, before);
    }

    /// Ends a request, whose output begins at `before`.
    fn end_request(&mut self, client: &mut Client, spec: Option<&Spec>, before: usize) {
        if client.replies != Replies::On && client.wait.is_none() {
            // Changes of subscriptions are reported by pushes, which are no replies.
            let is_push = spec.is_some_and(|spec| spec.has(flags::PUSHES));
            if !is_push || client.reply.bytes.get(before) == Some(&b'-') {
                client.cut(before);
            }
            if client.replies == Replies::Skip {
                client.replies = Replies::On;
            }
        }
        self.settle_reply(client, before);
        if client.is_tracking {
            self.end_caching(client);
        }
        self.tracker.take_flush().into_iter().for_each(|post| self.outbox.push(post));
        if !self.outbox.is_empty() {
            self.outbox.stamp(client.depends_on);
        }
    }

    /// Refuses a command, and the transaction that the command belongs to.
    fn refuse_command(&mut self, client: &mut Client, error: &str) {
        if let Some(queue) = &mut client.queue {
            queue.is_broken = true;
        }
        self.stats.note_error(error);
        client.reply.error(error);
    }

    fn known(&mut self, client: &mut Client, spec: &'static Spec, request: &[Bytes]) {
        client.last_command = spec.name;
        if !spec.takes(request.len()) {
            let error = format!("ERR wrong number of arguments for '{}' command", spec.name);
            self.stats.of(spec).rejected += 1;
            return self.refuse_command(client, &error);
        }
        if client.queue.is_some() && spec.has(flags::NOT_IN_TRANSACTION) {
            return self.refuse_command(client, "ERR Command not allowed inside a transaction");
        }
        if let Err(error) = self.allowed(client, spec, request) {
            self.stats.of(spec).rejected += 1;
            self.note_lack(client, spec, request);
            return self.refuse_command(client, &error);
        }
        if client.is_subscriber_only() && !spec.has(flags::FOR_SUBSCRIBERS) {
            let error = format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
                spec.name
            );
            self.stats.of(spec).rejected += 1;
            return self.refuse_command(client, &error);
        }
        let is_control = spec.has(flags::CONTROLS_TRANSACTION);
        if let Some(queue) = client.queue.as_mut().filter(|_| !is_control) {
            queue.bytes += size_of_args(request) + 32 * request.len();
            if queue.bytes > self.settings.max_request {
                let error = "ERR the transaction is too large: EXEC it, then continue in another";
                return self.refuse_command(client, error);
            }
            // Copied, so that the rest of the packet does not stay in memory until EXEC.
            queue.requests.push(request.iter().map(|arg| Bytes::copy_from_slice(arg)).collect());
            return client.reply.simple("QUEUED");
        }
        self.call_and_commit(client, spec, request);
    }

    /// Returns an error if the client may not run this command.
    pub fn allowed(&self, client: &Client, spec: &Spec, request: &[Bytes]) -> Result<(), String> {
        let Some(user) = &client.user else {
            let is_open = spec.has(flags::WITHOUT_AUTH);
            return if is_open { Ok(()) } else { Err("NOAUTH Authentication required.".into()) };
        };
        user.check(spec, request).map_err(|denied| match denied {
            Denied::Command => {
                format!("NOPERM this user has no permissions to run the '{}' command", spec.name)
            }
            Denied::Key { .. } => {
                "NOPERM this user has no permissions to access one of the keys used as arguments".into()
            }
            Denied::Channel { .. } => {
                "NOPERM this user has no permissions to access one of the channels used as arguments".into()
            }
        })?;
        self.may_change(spec).map_err(str::to_owned)
    }

    /// Runs a command, and commits its changes.
    fn call_and_commit(&mut self, client: &mut Client, spec: &'static Spec, request: &[Bytes]) {
        let start = client.written();
        self.begin_at_once();
        let called = self.call_timed(client, spec, request, true);
        match called {
            Ok(()) => {}
            Err(Fail::Wait(wait)) => {
                self.wait(client, wait);
            }
            Err(Fail::Long(rest)) => {
                client.work = Some(Box::new(Work { spec, request: request.to_vec(), rest }));
            }
            Err(Fail::Reply(error)) => self.tell_refusal(client, spec, start, &error),
            Err(fail @ (Fail::Store(_) | Fail::Undone(_) | Fail::TooLarge)) => {
                self.stats.of(spec).failed += 1;
                self.undo(client, start, &fail);
            }
        }
        if client.work.is_none() {
            client.work_bytes = 0;
        }
        self.commit(client, start);
        client.before = None;
    }

    /// Undoes a command, and replaces the output since `start` by its error.
    fn undo(&mut self, client: &mut Client, start: usize, fail: &Fail) {
        self.keys.roll_back();
        (client.work, client.work_bytes) = (None, 0);
        // A transaction that was undone is over.
        if client.queue.take().is_some() {
            self.unwatch(client);
        }
        self.restore_before(client);
        self.outbox.undo();
        self.tracker.undo_flush();
        client.cut(start);
        client.reply.begin(usize::MAX);
        match fail {
            Fail::Store(error) => {
                self.note_failure(error);
                client.reply.error(&told(error));
            }
            Fail::Undone(error) => {
                self.stats.note_error(error);
                client.reply.error(error);
            }
            _ => {
                let error = too_large(self.settings.hard_output);
                self.stats.note_error(&error);
                client.reply.error(&error);
            }
        }
    }

    /// Replaces the output since `start` by the error of a command that was not run.
    fn tell_refusal(&mut self, client: &mut Client, spec: &Spec, start: usize, error: &str) {
        client.cut(start);
        client.reply.begin(usize::MAX);
        self.stats.of(spec).failed += 1;
        self.stats.note_error(error);
        client.reply.error(error);
    }

    /// Runs a command, without a commit, and counts its time.
    pub fn call_timed(
        &mut self,
        client: &mut Client,
        spec: &'static Spec,
        request: &[Bytes],
        may_wait: bool,
    ) -> Result<(), Fail> {
        let began = (self.clock)();
        let called = self.call(client, spec, request, may_wait);
        self.note_time(spec, 1, began);
        called
    }

    /// Counts the time of some calls of a command since a time of the clock; returns the time now.
    pub(super) fn note_time(&mut self, spec: &Spec, calls: u64, began: u64) -> u64 {
        let now = (self.clock)();
        let (threshold, wall) = (self.settings.latency_threshold, self.keys.now / 1000);
        self.stats.note_time(spec, calls, now.saturating_sub(began), threshold, wall);
        now
    }

    /// Runs a command, without a commit.
    pub fn call(
        &mut self,
        client: &mut Client,
        spec: &'static Spec,
        request: &[Bytes],
        may_wait: bool,
    ) -> Result<(), Fail> {
        let answered = self.answer(client, spec, request, may_wait, None);
        // After the command, which may be the one that resets the counters.
        self.stats.of(spec).done += 1;
        if client.is_tracking {
            self.note_read(client, spec, request);
        }
        answered
    }

    /// Runs a command, whose reply may not be over the limit of pending replies.
    pub(super) fn answer(
        &mut self,
        client: &mut Client,
        spec: &'static Spec,
        args: &[Bytes],
        may_wait: bool,
        woken_by: Option<Places>,
    ) -> Result<(), Fail> {
        let is_alone = woken_by.is_none();
        self.or_load(client, spec, is_alone, |engine, client| {
            (spec.handler)(&mut Call { engine, client, args, may_wait, woken_by })?;
            engine.note_events(spec, args);
            Ok(())
        })
    }

    /// Counts the look-ups of keys of a command: those of commands that read, as in Redis.
    pub fn note_lookups(&mut self, spec: &Spec) {
        let lookups = std::mem::take(&mut self.keys.lookups);
        if spec.has(flags::READ) {
            self.stats.lookups.hits += lookups.hits;
            self.stats.lookups.misses += lookups.misses;
        }
    }

    /// Commits the changes; on failure, replaces the output since `start` by the error.
    fn commit(&mut self, client: &mut Client, start: usize) {
        let done = self.keys.commit();
        self.end_commit(client, start, done);
    }

    /// Records a commit; if it failed, replaces the output since `start` by the error.
    fn end_commit(&mut self, client: &mut Client, start: usize, done: Result<Committed, brooklet::Error>) {
        match done {
            Ok(committed) => self.note_committed(client, committed),
            Err(error) => self.undo(client, start, &Fail::Store(error)),
        }
    }

    /// Records the commit of a client.
    fn note_committed(&mut self, client: &mut Client, committed: Committed) {
        if committed.keys == 0 {
            return;
        }
        self.has_news = true;
        self.has_deadline |= self.keys.is_busy();
        if self.keys.epoch().is_multiple_of(SAMPLE)
            && let Some(first) = self.keys.changed().next()
        {
            self.hot_logs.note(first.key, SAMPLE, committed.bytes * SAMPLE);
        }
        client.wrote = self.keys.epoch();
        client.note_epoch(committed.epoch);
        if !client.watched.is_empty() {
            let mut changed = self.keys.changed();
            client.is_stale |= changed.any(|one| one.is_modified && client.watched.contains_key(one.key));
        }
        self.note_changed(Some(client.id), committed.epoch);
    }

    fn note_failure(&mut self, error: &brooklet::Error) {
        self.stats.note_error(&told(error));
        if error.kind() == brooklet::ErrorKind::Stopped {
            self.stopped.get_or_insert_with(|| error.to_string());
        }
    }

    /// Marks the clients that watch a key of the last commit, queues the changed keys that clients
    /// wait for, and notifies the clients that track them.
    fn note_changed(&mut self, by: Option<ClientId>, epoch: u64) {
        if !self.tracker.is_idle() {
            self.invalidate(by, epoch);
        }
        if self.watching.is_empty() && self.waiting.is_empty() {
            return;
        }
        for Changed { key, is_modified, .. } in self.keys.changed() {
            let watching = self.watching.get(key).filter(|_| is_modified);
            for id in watching.into_iter().flatten() {
                if let Some(client) = self.clients.get_mut(id) {
                    client.is_stale = true;
                }
            }
            if let Some((key, _)) = self.waiting.get_key_value(key)
                && self.is_changed.insert(key.clone())
            {
                self.changed.push_back(key.clone());
            }
        }
    }
}
