//! What clients ask for, done one request after another.
//!
//! The engine has no thread, clock or socket of its own: whoever drives it says what time it is, hands in requests, takes
//! replies out as they become ready, and tells it when commits are durable. So the same requests in the same order always do
//! the same.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hashbrown::HashMap;

use super::acl::Users;
use super::client::{Client, ClientId, Replies};
use super::commands::{self, Call, Spec, flags};
use super::fail::{Fail, InVain, Wait, told};
use super::keys::{Committed, Keys, Keyspace, Value};
use super::proto::Args;
use super::settings::Settings;
use super::stats::Stats;
use crate::busy::Busy;

/// Everything that clients share.
pub struct Engine {
    /// The keys.
    pub keys: Keyspace,
    /// The users.
    pub users: Users,
    /// What can be set while it runs.
    pub settings: Settings,
    /// What is counted.
    pub stats: Stats,
    /// Walks through keys that are under way.
    pub scans: Scans,
    busy: Arc<Busy>,
    clients: HashMap<ClientId, Box<Client>>,
    next_client: ClientId,
    /// Who waits for an epoch to be acknowledged, in order.
    promised: VecDeque<(u64, ClientId)>,
    /// Who waits for a key to change, in the order in which they came.
    waiting: HashMap<Bytes, VecDeque<ClientId>>,
    /// Until when they wait.
    deadlines: BTreeSet<(u64, ClientId)>,
    /// Who waits for an epoch to be on stable media.
    for_media: Vec<ClientId>,
    watching: HashMap<Bytes, Vec<ClientId>>,
    /// Keys that changed since those who wait were looked after.
    changed: VecDeque<Bytes>,
    /// Whether commits are under way that nobody has been told to wait for.
    pub has_news: bool,
    /// Whether somebody waits until a time that whoever drives this does not know of yet.
    pub has_deadline: bool,
    /// Why nothing is written any more.
    pub stopped: Option<String>,
    /// Whether it says goodbye to everybody.
    is_leaving: bool,
    chance: u64,
}

/// Walks through keys that are under way, of which the oldest is forgotten where there are too many.
#[derive(Default)]
pub struct Scans {
    last: u64,
    under_way: BTreeMap<u64, Keys>,
}

/// Of so many commits one is taken note of, for all of them, where the busiest logs are told.
const SAMPLE: u64 = 16;

/// The most requests that are done as one commit, and the most bytes of them.
const TOGETHER: usize = 64;
const TOGETHER_BYTES: usize = 256 << 10;

const MOST_SCANS: usize = 1000;

impl Scans {
    /// Takes a walk up again.
    pub fn take(&mut self, cursor: u64) -> Option<Keys> {
        self.under_way.remove(&cursor)
    }

    /// Leaves a walk until it is taken up again; its cursor.
    pub fn leave(&mut self, keys: Keys) -> u64 {
        self.last += 1;
        self.under_way.insert(self.last, keys);
        if self.under_way.len() > MOST_SCANS {
            self.under_way.pop_first();
        }
        self.last
    }
}

impl Engine {
    /// One without clients.
    pub fn new(keys: Keyspace, users: Users, settings: Settings, busy: Arc<Busy>, chance: u64) -> Self {
        let stats = Stats::new(keys.now);
        Self {
            keys,
            users,
            settings,
            stats,
            scans: Scans::default(),
            busy,
            clients: HashMap::new(),
            next_client: 0,
            promised: VecDeque::new(),
            waiting: HashMap::new(),
            deadlines: BTreeSet::new(),
            for_media: Vec::new(),
            watching: HashMap::new(),
            changed: VecDeque::new(),
            has_news: false,
            has_deadline: false,
            stopped: None,
            is_leaving: false,
            chance: chance | 1,
        }
    }

    /// A number that is hard to foretell from the last.
    pub fn draw(&mut self) -> u64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.chance
    }

    /// Lets a client in; `None` where there are too many, or its first words say so.
    pub fn connect(&mut self, address: String, local: String) -> Result<ClientId, &'static str> {
        self.stats.connections += 1;
        if self.is_leaving {
            return Err("-ERR the server is stopping\r\n");
        }
        if self.clients.len() >= self.settings.max_clients {
            self.stats.rejected += 1;
            return Err("-ERR max number of clients reached\r\n");
        }
        self.next_client += 1;
        let id = self.next_client;
        let client = Client::new(id, address, local, self.users.stranger(), self.keys.now);
        self.clients.insert(id, Box::new(client));
        Ok(id)
    }

    /// A client that is there.
    pub fn client(&mut self, id: ClientId) -> Option<&mut Client> {
        self.clients.get_mut(&id).map(|client| &mut **client)
    }

    /// All clients but the one whose command is at hand.
    pub fn clients(&mut self) -> impl Iterator<Item = &mut Client> {
        self.clients.values_mut().map(|client| &mut **client)
    }

    /// How many clients there are.
    pub fn client_count(&self) -> usize {
        self.clients.len()
    }

    /// How many of them wait for a key.
    pub fn waiting_count(&self) -> usize {
        self.clients.values().filter(|client| client.wait.is_some()).count()
    }

    /// A client has gone.
    pub fn disconnect(&mut self, id: ClientId) {
        if let Some(mut client) = self.clients.remove(&id) {
            self.unwatch(&mut client);
            self.forget_wait(&mut client);
        }
    }

    /// Does what a client asks for, and takes note of which epoch the replies wait for.
    pub fn run(&mut self, id: ClientId, requests: &mut VecDeque<Args>) {
        let Some(mut client) = self.clients.remove(&id) else { return };
        client.last_seen = self.keys.now;
        // Where replies gather that it does not take, it gets no more of them until it has.
        let has_room = |client: &Client, most| client.written() <= most;
        while client.wait.is_none()
            && !client.is_leaving
            && !client.is_killed
            && has_room(&client, self.settings.soft_output)
        {
            if self.several(&mut client, requests) {
                continue;
            }
            let Some(request) = requests.pop_front() else { break };
            self.one(&mut client, &request);
            if !self.changed.is_empty() {
                self.clients.insert(id, client);
                self.serve_waiting();
                client = self.clients.remove(&id).expect("it was just put there");
            }
        }
        self.clients.insert(id, client);
        self.keys.trim_cache();
    }

    /// How many requests, from the first on, may be done as one commit: nobody can tell that from a commit for each, since no
    /// client watches a key, or waits for one.
    fn together(&self, client: &Client, requests: &VecDeque<Args>) -> usize {
        let is_seen = client.queue.is_some() || client.replies != Replies::On;
        if is_seen || requests.len() < 2 || !self.waiting.is_empty() || !self.watching.is_empty() {
            return 0;
        }
        let mut bytes = 0;
        let fits = |request: &&Args| {
            bytes += request.iter().map(Bytes::len).sum::<usize>();
            let spec = request.first().and_then(|name| commands::find(name));
            let is_plain = |spec: &Spec| spec.is_plain() && spec.takes(request.len());
            bytes <= TOGETHER_BYTES
                && spec.is_some_and(|spec| is_plain(spec) && self.allowed(client, spec, request).is_ok())
        };
        requests.iter().take(TOGETHER).take_while(fits).count()
    }

    /// Does several requests as one commit, which costs less than one for each; whether it did. Where the commit is refused,
    /// nothing was done, and they are done one by one.
    fn several(&mut self, client: &mut Client, requests: &mut VecDeque<Args>) -> bool {
        let count = self.together(client, requests);
        if count < 2 {
            return false;
        }
        let start = client.written();
        for request in requests.iter().take(count) {
            let spec = commands::find(&request[0]).expect("it was found before");
            client.last_command = spec.name;
            let before = client.written();
            match self.call(client, spec, request, false) {
                Ok(()) => {}
                Err(Fail::Reply(error)) => {
                    client.cut(before);
                    self.stats.of(spec).failed += 1;
                    self.stats.note_error(&error);
                    client.reply.error(&error);
                }
                Err(_) => {
                    self.keys.roll_back();
                    return self.one_by_one(client, requests, count, start);
                }
            }
        }
        match self.keys.commit() {
            Ok(committed) => self.note_committed(client, committed),
            Err(_) => return self.one_by_one(client, requests, count, start),
        }
        self.stats.commands += count as u64;
        requests.drain(..count);
        self.settle_reply(client, start);
        true
    }

    fn one_by_one(
        &mut self,
        client: &mut Client,
        requests: &mut VecDeque<Args>,
        count: usize,
        start: usize,
    ) -> bool {
        client.cut(start);
        self.keys.take_seen();
        for request in requests.drain(..count).collect::<Vec<_>>() {
            self.one(client, &request);
        }
        true
    }

    /// Has the replies since `start` wait for what they tell of.
    fn settle_reply(&mut self, client: &mut Client, start: usize) {
        let epoch = self.keys.take_seen().max(client.take_epoch());
        if client.written() > start && client.mark(epoch) {
            self.promised.push_back((epoch, client.id));
        }
    }

    /// Tells a client of bytes that make no sense, after which it is let go of.
    pub fn refuse(&mut self, id: ClientId, why: &str) {
        if let Some(client) = self.client(id) {
            client.reply.error(&format!("ERR Protocol error: {why}"));
            client.mark(0);
            client.is_leaving = true;
        }
    }

    /// Does one request.
    fn one(&mut self, client: &mut Client, request: &[Bytes]) {
        let Some(name) = request.first() else { return };
        self.stats.commands += 1;
        let before = client.written();
        if client.replies == Replies::SkipNext {
            client.replies = Replies::Skip;
        }
        match commands::find(name) {
            None => {
                let error = unknown(name, &request[1..]);
                self.refuse_command(client, &error);
            }
            Some(spec) => self.known(client, spec, request),
        }
        if client.replies != Replies::On && client.wait.is_none() {
            client.cut(before);
            if client.replies == Replies::Skip {
                client.replies = Replies::On;
            }
        }
        self.settle_reply(client, before);
    }

    /// Refuses a command, and with it the transaction that it was to be part of.
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
        if let Err(error) = self.allowed(client, spec, request) {
            self.stats.of(spec).rejected += 1;
            return self.refuse_command(client, &error);
        }
        let is_control = spec.has(flags::CONTROLS_TRANSACTION);
        if let Some(queue) = client.queue.as_mut().filter(|_| !is_control) {
            if spec.has(flags::NOT_IN_TRANSACTION) {
                return self.refuse_command(client, "ERR Command not allowed inside a transaction");
            }
            queue.bytes += request.iter().map(|arg| arg.len() + 48).sum::<usize>();
            if queue.bytes > self.settings.max_request {
                let error = "ERR the transaction is too large: EXEC it, and go on with another";
                return self.refuse_command(client, error);
            }
            // What came with it in the same packet is not to stay until EXEC comes.
            queue.requests.push(request.iter().map(|arg| Bytes::copy_from_slice(arg)).collect());
            return client.reply.simple("QUEUED");
        }
        self.call_and_commit(client, spec, request);
    }

    /// Whether a client may do this; why not.
    fn allowed(&self, client: &Client, spec: &Spec, request: &[Bytes]) -> Result<(), String> {
        let Some(user) = &client.user else {
            let is_open = spec.has(flags::WITHOUT_AUTH);
            return if is_open { Ok(()) } else { Err("NOAUTH Authentication required.".into()) };
        };
        if user.may_all() || spec.has(flags::WITHOUT_AUTH) {
            return Ok(());
        }
        if !user.may(spec) {
            let (name, command) = (&user.name, spec.name);
            return Err(format!("NOPERM User {name} has no permissions to run the '{command}' command"));
        }
        let writes = spec.has(flags::WRITE);
        match spec.keys(request).iter().any(|key| !user.may_key(key, writes)) {
            true => Err("NOPERM No permissions to access a key".into()),
            false => Ok(()),
        }
    }

    /// Does a command, and commits what it did.
    fn call_and_commit(&mut self, client: &mut Client, spec: &'static Spec, request: &[Bytes]) {
        let start = client.written();
        let called = self.call(client, spec, request, client.replies == Replies::On);
        match called {
            Ok(()) => {}
            Err(Fail::Wait(wait)) => {
                self.stats.of(spec).waited += 1;
                self.wait(client, wait);
            }
            Err(Fail::Reply(error)) => {
                client.cut(start);
                self.stats.of(spec).failed += 1;
                self.stats.note_error(&error);
                client.reply.error(&error);
            }
            Err(Fail::Store(error)) => {
                self.keys.roll_back();
                client.cut(start);
                self.stats.of(spec).failed += 1;
                self.note_failure(&error);
                client.reply.error(&told(&error));
            }
        }
        self.commit(client, start);
    }

    /// Does a command, without committing.
    pub fn call(
        &mut self,
        client: &mut Client,
        spec: &'static Spec,
        request: &[Bytes],
        may_wait: bool,
    ) -> Result<(), Fail> {
        self.stats.of(spec).done += 1;
        (spec.handler)(&mut Call { engine: self, client, args: request, may_wait, woken_by: None })
    }

    /// Commits what was done, or tells from `start` on why that is not possible.
    fn commit(&mut self, client: &mut Client, start: usize) {
        match self.keys.commit() {
            Ok(committed) => self.note_committed(client, committed),
            Err(error) => {
                client.cut(start);
                self.note_failure(&error);
                client.reply.error(&told(&error));
            }
        }
    }

    /// Takes note of what a client has committed.
    fn note_committed(&mut self, client: &mut Client, committed: Committed) {
        if committed.keys.is_empty() {
            return;
        }
        self.has_news = true;
        if self.keys.epoch().is_multiple_of(SAMPLE) {
            self.busy.note(&committed.keys[0], SAMPLE, committed.bytes * SAMPLE);
        }
        client.wrote = self.keys.epoch();
        client.note_epoch(committed.epoch);
        for key in committed.keys {
            client.is_stale |= client.watched.contains(&key);
            self.note_changed(key);
        }
    }

    fn note_failure(&mut self, error: &brooklet::Error) {
        self.stats.note_error(&told(error));
        if error.kind() == brooklet::ErrorKind::Stopped {
            self.stopped.get_or_insert_with(|| error.to_string());
        }
    }

    /// Those who watch a key learn that it changed, those who wait for it are looked after next.
    fn note_changed(&mut self, key: Bytes) {
        if !self.watching.is_empty()
            && let Some(watchers) = self.watching.get(&key)
        {
            for id in watchers {
                if let Some(client) = self.clients.get_mut(id) {
                    client.is_stale = true;
                }
            }
        }
        if !self.waiting.is_empty() && self.waiting.contains_key(&key) && !self.changed.contains(&key) {
            self.changed.push_back(key);
        }
    }

    /// Has a client learn whether a key changes.
    pub fn watch(&mut self, client: &mut Client, key: Bytes) {
        if !client.watched.contains(&key) {
            self.watching.entry(key.clone()).or_default().push(client.id);
            client.watched.push(key);
        }
    }

    /// Lets a client watch nothing any more.
    pub fn unwatch(&mut self, client: &mut Client) {
        client.is_stale = false;
        for key in std::mem::take(&mut client.watched) {
            if let Some(watchers) = self.watching.get_mut(&key) {
                watchers.retain(|id| *id != client.id);
                if watchers.is_empty() {
                    self.watching.remove(&key);
                }
            }
        }
    }

    /// Has a client wait.
    fn wait(&mut self, client: &mut Client, wait: Wait) {
        for key in &wait.keys {
            let queue = self.waiting.entry(key.clone()).or_default();
            if !queue.contains(&client.id) {
                queue.push_back(client.id);
            }
        }
        if let Some(until) = wait.until {
            self.deadlines.insert((until, client.id));
            self.has_deadline = true;
        }
        if let InVain::Media { is_all: true, .. } = wait.in_vain {
            self.for_media.push(client.id);
        }
        client.wait = Some(wait);
    }

    fn forget_wait(&mut self, client: &mut Client) -> Option<Wait> {
        let wait = client.wait.take()?;
        for key in &wait.keys {
            if let Some(queue) = self.waiting.get_mut(key) {
                queue.retain(|id| *id != client.id);
                if queue.is_empty() {
                    self.waiting.remove(key);
                }
            }
        }
        if let Some(until) = wait.until {
            self.deadlines.remove(&(until, client.id));
        }
        self.for_media.retain(|id| *id != client.id);
        Some(wait)
    }

    /// Lets those who wait for keys that changed ask again, in the order in which they came.
    fn serve_waiting(&mut self) {
        while let Some(key) = self.changed.pop_front() {
            let queue: Vec<ClientId> =
                self.waiting.get(&key).map_or_else(Vec::new, |all| all.iter().copied().collect());
            for id in queue {
                self.ask_again(id, &key);
            }
        }
    }

    fn ask_again(&mut self, id: ClientId, key: &Bytes) {
        let Some(mut client) = self.clients.remove(&id) else { return };
        if let Some(wait) = client.wait.take() {
            let spec = commands::find(&wait.request[0]).expect("it was asked before");
            let start = client.written();
            let again = match self.fits(spec, key) {
                Ok(true) => {
                    let (args, woken_by) = (&wait.request[..], Some(key.clone()));
                    let client = &mut *client;
                    (spec.handler)(&mut Call { engine: self, client, args, may_wait: true, woken_by })
                }
                Ok(false) if wait.of_group => {
                    Err(Fail::Reply("UNBLOCKED the stream key no longer exists".into()))
                }
                Ok(false) => Err(Fail::Wait(wait.clone())),
                Err(error) => Err(Fail::Store(error)),
            };
            if let Err(Fail::Wait(_)) = again {
                // It keeps its place in the queues. That it asked may have been a change: of a key whose time had come, of a
                // consumer that came.
                client.cut(start);
                self.keys.take_seen();
                client.wait = Some(wait);
                self.commit_aside();
            } else {
                client.wait = Some(wait);
                self.forget_wait(&mut client);
                if let Err(Fail::Reply(error)) = &again {
                    client.cut(start);
                    self.stats.of(spec).failed += 1;
                    self.stats.note_error(error);
                    client.reply.error(error);
                } else if let Err(Fail::Store(error)) = &again {
                    self.keys.roll_back();
                    client.cut(start);
                    client.reply.error(&told(error));
                }
                self.commit(&mut client, start);
                let epoch = self.keys.take_seen().max(client.take_epoch());
                self.finish(&mut client, start, epoch);
            }
        }
        self.clients.insert(id, client);
    }

    /// Has a reply that was written out of turn leave, once an epoch is acknowledged.
    fn finish(&mut self, client: &mut Client, start: usize, epoch: u64) {
        if client.written() > start && client.mark(epoch) {
            self.promised.push_back((epoch, client.id));
        }
        client.wake();
    }

    /// Whether a key is of the kind that a command waits for.
    fn fits(&mut self, spec: &Spec, key: &Bytes) -> Result<bool, brooklet::Error> {
        let id = self.keys.open_plain(key)?;
        Ok(match self.keys.value(id) {
            Value::List(_) => spec.is_of("list"),
            Value::Stream(_) => spec.is_of("stream"),
            _ => false,
        })
    }

    /// Ends a client's waiting: with an error, or as if its time were up. Whether it waited for a key.
    pub fn unblock(&mut self, id: ClientId, error: Option<&str>) -> bool {
        let Some(mut client) = self.clients.remove(&id) else { return false };
        let is_waiting = client.wait.is_some();
        if is_waiting {
            let start = client.written();
            match (self.forget_wait(&mut client), error) {
                (_, Some(error)) => client.reply.error(error),
                (Some(wait), None) => self.tell_in_vain(&mut client, wait.in_vain),
                (None, None) => {}
            }
            self.finish(&mut client, start, 0);
        }
        self.clients.insert(id, client);
        is_waiting
    }

    fn tell_in_vain(&mut self, client: &mut Client, in_vain: InVain) {
        match in_vain {
            InVain::NullArray => client.reply.null_array(),
            InVain::Null => client.reply.null(),
            InVain::Replicas => client.reply.int(0),
            InVain::Media { wrote, .. } => {
                client.reply.array(2);
                client.reply.flag(wrote <= self.keys.durable());
                client.reply.int(0);
            }
        }
    }

    /// Takes note of commits that have become durable, and wakes those whose replies may leave.
    pub fn note_durable(&mut self) {
        self.keys.note_durable();
        let acknowledged = self.keys.acknowledged();
        while let Some((epoch, id)) = self.promised.front().copied() {
            if epoch > acknowledged {
                break;
            }
            self.promised.pop_front();
            if let Some(client) = self.client(id) {
                client.wake();
            }
        }
        let durable = self.keys.durable();
        let is_met = |client: &Client| match &client.wait {
            Some(Wait { in_vain: InVain::Media { wrote, .. }, .. }) => *wrote <= durable,
            _ => false,
        };
        let met: Vec<ClientId> = self
            .for_media
            .iter()
            .copied()
            .filter(|id| self.clients.get(id).is_some_and(|c| is_met(c)))
            .collect();
        for id in met {
            self.unblock(id, None);
        }
    }

    /// The store has stopped: what is not acknowledged never will be, and whether it was done is not known. Clients that wait for
    /// such replies are let go of, since only a lost connection says so.
    pub fn note_stopped(&mut self, why: &str) {
        self.stopped.get_or_insert_with(|| why.to_owned());
        let acknowledged = self.keys.acknowledged();
        for (epoch, id) in std::mem::take(&mut self.promised) {
            if epoch > acknowledged
                && let Some(client) = self.client(id)
            {
                client.is_killed = true;
                client.wake();
            }
        }
        self.keys.note_stopped();
    }

    /// Takes the replies of a client that may leave.
    pub fn take_ready(&mut self, id: ClientId) -> BytesMut {
        let acknowledged = self.keys.acknowledged();
        self.client(id).map_or_else(BytesMut::new, |client| client.take_ready(acknowledged))
    }

    /// What is due at this time: keys expire, and waiting ends.
    pub fn tick(&mut self, now: u64) {
        self.keys.now = now;
        while let Some((until, id)) = self.deadlines.first().copied() {
            if until > now {
                break;
            }
            self.deadlines.pop_first();
            self.unblock(id, None);
        }
        self.expire_keys();
        self.note_durable();
        self.let_go_of_idle(now);
    }

    fn expire_keys(&mut self) {
        if self.stopped.is_some() {
            return;
        }
        if let Err(error) = self.keys.expire_due(100) {
            self.keys.roll_back();
            tracing::warn!(%error, "keys whose time has come stay for now");
            return self.note_failure(&error);
        }
        self.stats.expired += self.commit_aside();
        self.serve_waiting();
    }

    /// Commits what no reply tells of; how many keys that changed.
    fn commit_aside(&mut self) -> u64 {
        match self.keys.commit() {
            Ok(committed) => {
                let count = committed.keys.len() as u64;
                self.has_news |= count > 0;
                committed.keys.into_iter().for_each(|key| self.note_changed(key));
                count
            }
            Err(error) => {
                tracing::warn!(%error, "what goes by itself stays for now");
                self.note_failure(&error);
                0
            }
        }
    }

    fn let_go_of_idle(&mut self, now: u64) {
        let settings = &self.settings;
        for client in self.clients.values_mut() {
            let idle = settings.timeout > 0 && now.saturating_sub(client.last_seen) > settings.timeout * 1000;
            let waits = client.wait.is_some() || !client.is_done();
            let buffered = client.reply.bytes.len() + client.outgoing;
            let is_slow = match (buffered > settings.soft_output, client.slow_since) {
                (false, _) => {
                    client.slow_since = None;
                    false
                }
                (true, None) => {
                    client.slow_since = Some(now);
                    false
                }
                (true, Some(since)) => now.saturating_sub(since) > settings.soft_output_seconds * 1000,
            };
            if (idle && !waits && !client.no_evict) || is_slow || buffered > settings.hard_output {
                tracing::info!(client = client.id, address = client.address, idle, "a client is let go of");
                client.is_killed = true;
                client.wake();
            }
        }
    }

    /// When something is due next, in milliseconds since the Unix epoch.
    pub fn next_due(&self) -> Option<u64> {
        let waiting = self.deadlines.first().map(|(at, _)| *at);
        [waiting, self.keys.next_deadline()].into_iter().flatten().min()
    }

    /// Ends all connections once their replies have left.
    pub fn say_goodbye(&mut self) {
        self.is_leaving = true;
        let ids: Vec<ClientId> = self.clients.keys().copied().collect();
        for id in ids {
            self.unblock(id, Some("UNBLOCKED the server is stopping"));
            if let Some(client) = self.client(id) {
                client.is_leaving = true;
                client.wake();
            }
        }
    }

    /// Users changed: clients that are of one that has changed are of the new one, or of none.
    pub fn note_users(&mut self, name: &str) {
        let user = self.users.get(name).filter(|user| user.is_on).cloned();
        for client in self.clients.values_mut() {
            if client.user.as_ref().is_some_and(|user| user.name == name) {
                client.user = user.clone();
                client.is_killed |= user.is_none();
                client.wake();
            }
        }
    }
}

/// How an unknown command is told.
fn unknown(name: &[u8], args: &[Bytes]) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(128)]).into_owned();
    let mut shown = String::new();
    for arg in args {
        if shown.len() >= 128 {
            break;
        }
        shown += &format!("'{}' ", text(arg));
    }
    format!("ERR unknown command '{}', with args beginning with: {shown}", text(name))
}

#[cfg(test)]
mod tests;
