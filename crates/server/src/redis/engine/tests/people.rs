//! Clients of the [model](super::model): their transactions, what they watch and wait for, and what
//! each is told, by when.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::lists;
use super::model::{Model, State, number};
use crate::redis::client::ClientId;
use crate::redis::commands;
use crate::redis::reply::Reply;

/// A client.
#[derive(Debug)]
pub struct Person {
    pub queue: Option<Vec<Vec<Bytes>>>,
    watched: Vec<Bytes>,
    is_stale: bool,
    pub wait: Option<Waiting>,
    /// What it is told and has not got yet.
    pub said: Reply,
    /// Up to which byte of all it was ever told it tells of which commit.
    tells_of: VecDeque<(usize, usize)>,
    got: usize,
}

/// What a client waits for.
#[derive(Clone, Debug)]
pub struct Waiting {
    turn: u64,
    until: Option<u64>,
    request: Vec<Bytes>,
}

impl Waiting {
    /// The keys that it waits for.
    fn keys(&self) -> &[Bytes] {
        let end = if self.request[0] == "BLMOVE" { 2 } else { self.request.len() - 1 };
        &self.request[1..end]
    }
}

/// The clients, and every state that the keys were in.
pub struct People {
    pub model: Model,
    pub all: BTreeMap<ClientId, Person>,
    /// The keys after each commit.
    pub states: Vec<State>,
    /// The commit that changed a key last.
    last_touched: BTreeMap<Bytes, usize>,
    turns: u64,
    /// The last commit that somebody was told of.
    pub told: usize,
}

impl People {
    /// Nobody, and these keys.
    pub fn new(keys: State, now: u64) -> Self {
        let model = Model { keys: keys.clone(), now, ..Model::default() };
        Self {
            model,
            all: BTreeMap::new(),
            states: vec![keys],
            last_touched: BTreeMap::new(),
            turns: 0,
            told: 0,
        }
    }

    pub fn come(&mut self, id: ClientId) {
        let person = Person {
            queue: None,
            watched: Vec::new(),
            is_stale: false,
            wait: None,
            said: Reply::new(),
            tells_of: VecDeque::new(),
            got: 0,
        };
        self.all.insert(id, person);
    }

    fn person(&mut self, id: ClientId) -> &mut Person {
        self.all.get_mut(&id).unwrap()
    }

    /// Takes note that a client is told of a commit with what was said last.
    fn tells(&mut self, id: ClientId, commit: usize) {
        let person = self.person(id);
        let end = person.got + person.said.bytes.len();
        if person.tells_of.back().map_or(person.got, |(end, _)| *end) < end {
            person.tells_of.push_back((end, commit));
        }
    }

    /// A client got bytes.
    pub fn get(&mut self, id: ClientId, bytes: &[u8]) {
        let person = self.all.get_mut(&id).unwrap();
        assert_eq!(&person.said.bytes.split_to(bytes.len())[..], bytes, "client {id} got something else");
        person.got += bytes.len();
        while let Some((end, commit)) = person.tells_of.front().copied() {
            if end > person.got {
                break;
            }
            person.tells_of.pop_front();
            self.told = self.told.max(commit);
        }
    }

    /// Commits what was done; the commit, or 0 where there is none. What changed goes to those who
    /// watch it.
    fn commit(&mut self) -> (usize, Vec<Bytes>) {
        let touched = std::mem::take(&mut self.model.touched);
        let modified = std::mem::take(&mut self.model.modified);
        if touched.is_empty() {
            return (0, touched);
        }
        self.states.push(self.model.keys.clone());
        let commit = self.states.len() - 1;
        for key in &touched {
            self.last_touched.insert(key.clone(), commit);
            for person in self.all.values_mut() {
                person.is_stale |= modified.contains(key) && person.watched.contains(key);
            }
        }
        (commit, touched)
    }

    /// The last commit that a request tells of, of those before.
    fn seen(&self, request: &[Bytes]) -> usize {
        if request[0] == "DBSIZE" || request[0] == "FLUSHDB" {
            return self.states.len() - 1;
        }
        let keys = match &request[0][..] {
            b"XGROUP" => vec![&request[2]],
            name => commands::find(name).unwrap().keys(request),
        };
        // These go no further than to the first key that has something, or is of another kind.
        let looks = matches!(&request[0][..], b"BLPOP" | b"BRPOP" | b"LMOVE" | b"BLMOVE" | b"RENAME");
        let is_move = looks && !request[0].ends_with(b"POP");
        let mut seen = 0;
        for key in keys {
            seen = seen.max(self.last_touched.get(key).copied().unwrap_or(0));
            let is_there = self.model.keys.contains_key(key);
            if looks && is_there != is_move || (is_move && lists::list(&self.model, key).is_err()) {
                break;
            }
        }
        seen
    }

    /// Does what a client asks for.
    pub fn ask(&mut self, id: ClientId, request: &[Bytes]) {
        let mut out = std::mem::take(&mut self.person(id).said);
        let mut seen = 0;
        let is_control = matches!(&request[0][..], b"MULTI" | b"EXEC" | b"DISCARD" | b"WATCH");
        if is_control {
            seen = self.control(id, request, &mut out);
        } else if let Some(queue) = &mut self.person(id).queue {
            queue.push(request.to_vec());
            out.simple("QUEUED");
        } else {
            seen = self.seen(request);
            self.one(id, request, true, &mut out);
        }
        self.person(id).said = out;
        let (commit, changed) = self.commit();
        self.tells(id, seen.max(commit));
        self.wake(changed);
    }

    /// What a client asked for was refused, and with it the transaction that it may have been.
    pub fn refuse(&mut self, id: ClientId, said: &[u8]) {
        let person = self.person(id);
        (person.queue, person.is_stale) = (None, false);
        person.watched.clear();
        person.said.bytes.extend_from_slice(said);
        self.tells(id, 0);
    }

    fn control(&mut self, id: ClientId, request: &[Bytes], out: &mut Reply) -> usize {
        let person = self.person(id);
        match &request[0][..] {
            b"WATCH" => {
                for key in &request[1..] {
                    if !person.watched.contains(key) {
                        person.watched.push(key.clone());
                    }
                }
                out.ok();
                return 0;
            }
            b"MULTI" => {
                person.queue = Some(Vec::new());
                out.ok();
                return 0;
            }
            _ => {}
        }
        let queue = person.queue.take().unwrap();
        let is_stale = std::mem::take(&mut person.is_stale);
        person.watched.clear();
        if request[0] == "DISCARD" {
            out.ok();
            return 0;
        }
        if is_stale {
            out.null_array();
            return 0;
        }
        out.array(queue.len());
        let mut seen = 0;
        for request in &queue {
            seen = seen.max(self.seen(request));
            self.one(id, request, false, out);
        }
        seen
    }

    fn one(&mut self, id: ClientId, request: &[Bytes], may_wait: bool, out: &mut Reply) {
        let start = out.bytes.len();
        let done = if request[0].starts_with(b"B") {
            lists::call_or_wait(&mut self.model, request, None, out)
        } else {
            self.model.call(request, out).map(|()| true)
        };
        match done {
            Ok(true) => {}
            Ok(false) if may_wait => {
                self.turns += 1;
                let seconds = number(request.last().unwrap()) as u64;
                let until = (seconds > 0).then(|| self.model.now + 1000 * seconds);
                let wait = Waiting { turn: self.turns, until, request: request.to_vec() };
                self.person(id).wait = Some(wait);
            }
            Ok(false) => reply_at_once(request, out),
            Err(error) => {
                out.bytes.truncate(start);
                out.error(&error);
            }
        }
    }

    /// Lets those who wait for keys that changed ask again, in the order in which they came.
    fn wake(&mut self, changed: Vec<Bytes>) {
        let mut changed = VecDeque::from(changed);
        while let Some(key) = changed.pop_front() {
            let waiting = self.all.iter().filter_map(|(id, person)| Some((person.wait.as_ref()?, *id)));
            let mut waiting: Vec<(u64, ClientId)> = waiting
                .filter(|(wait, _)| wait.keys().contains(&key))
                .map(|(wait, id)| (wait.turn, id))
                .collect();
            waiting.sort();
            for (_, id) in waiting {
                if lists::list(&self.model, &key).is_err() {
                    continue;
                }
                let wait = self.person(id).wait.clone().unwrap();
                let mut out = std::mem::take(&mut self.person(id).said);
                let done = lists::call_or_wait(&mut self.model, &wait.request, Some(&key), &mut out);
                if let Err(error) = &done {
                    out.error(error);
                }
                self.person(id).said = out;
                if done == Ok(false) {
                    continue;
                }
                self.person(id).wait = None;
                let seen = self.seen(&wait.request);
                let (commit, more) = self.commit();
                self.tells(id, seen.max(commit));
                changed.extend(more.into_iter().filter(|key| !changed.contains(key)).collect::<Vec<_>>());
            }
        }
    }

    /// Time goes by: waiting ends, keys expire.
    pub fn tick(&mut self, now: u64) {
        self.model.now = now;
        for person in self.all.values_mut() {
            if person.wait.as_ref().and_then(|wait| wait.until).is_some_and(|until| until <= now) {
                person.wait = None;
                person.said.null_array();
                person.tells_of.push_back((person.got + person.said.bytes.len(), 0));
            }
        }
        self.model.expire();
        let (_, changed) = self.commit();
        self.wake(changed);
    }
}

/// What a client gets in a transaction, where it does not wait.
fn reply_at_once(request: &[Bytes], out: &mut Reply) {
    if request[0] == "BLMOVE" { out.null() } else { out.null_array() }
}
