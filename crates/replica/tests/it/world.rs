//! A small world for the exhaustive check: a bucket, hosts that play the machines of this crate,
//! and a network that loses, delays and repeats.
//!
//! A request has its effect and its reply in one step. That covers late replies: a host that hears
//! late is a host whose next request is late. A request may be
//! - heard: it has its effect, and the host hears of it;
//! - unheard: it has its effect, and the host hears nothing;
//! - late: the host hears nothing, and the effect comes at any later time, or never;
//! - doubled: it is heard, and has its effect once more at any later time;
//! - refused as busy: "exists" is replied, although nothing exists.

use std::collections::BTreeMap;
use std::time::Duration;

use brooklet_replica::{
    Claim, Drawn, Epoch, Found, Kind, Mark, Object, Opened, Owner, OwnerLimits, OwnerState, Payload, Place,
    Record, Recorder, Reply, Request, StoreId, Takeover, TakeoverEnd, TakeoverLimits, Writer,
};

pub const STORE: StoreId = StoreId(7);
const NOW: Duration = Duration::ZERO;

/// A block of a few bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block(pub u8);

impl Payload for Block {
    fn empty() -> Self {
        Self(0)
    }

    fn len(&self) -> u64 {
        1
    }

    fn sum(&self) -> u64 {
        self.0.into()
    }
}

/// Bounds of a history.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Blocks of the first owner, and of each later one.
    pub blocks: [u8; 2],
    /// Hosts that take over.
    pub claimants: u8,
    /// Requests that do not go well.
    pub faults: u8,
    /// Records, each followed by a trim.
    pub records: u8,
    /// Objects that an owner sends without a reply.
    pub window: usize,
    pub takeover: TakeoverLimits,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    pub claims: BTreeMap<Epoch, Claim>,
    pub records: BTreeMap<u64, Record>,
    pub log: BTreeMap<Place, Object<Block>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "states of the model are compared, and copied as a whole")]
enum Role {
    Taking(Takeover<Block>),
    Serving(Owner<Block>, Recorder),
    /// It has stopped, and knows why.
    Gone,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Host {
    role: Role,
    pending: Vec<Request<Block>>,
    /// What its takeover has found so far.
    found: Vec<u8>,
}

/// What an owner began with, and what it acknowledged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reign {
    pub base: Vec<u8>,
    pub acked: Vec<u8>,
}

impl Reign {
    /// All that must be in the log for ever.
    pub fn promised(&self) -> Vec<u8> {
        [&self.base[..], &self.acked[..]].concat()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub bucket: Bucket,
    hosts: Vec<Host>,
    /// Requests whose effect is still to come.
    late: Vec<Request<Block>>,
    /// What each backup has.
    backups: Vec<Vec<u8>>,
    pub reigns: BTreeMap<Epoch, Reign>,
    pub broken: bool,
    pub trimmed: bool,
    faults: u8,
    records: u8,
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    Heard,
    Unheard,
    Late,
    Doubled,
    Busy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A host's request meets its fate.
    Request { host: usize, at: usize, fate: Fate },
    /// A late request has its effect.
    Late(usize),
    /// A host has made a backup of what it has released, and records it.
    Record(usize),
}

impl World {
    /// The first owner serves; the others are about to take over.
    pub fn new(bounds: &Bounds) -> Self {
        let writer = Writer { store: STORE, epoch: Epoch::FIRST, drawn: Drawn(0) };
        let claim = Claim { writer, owner: String::new(), address: String::new() };
        let bucket =
            Bucket { claims: [(Epoch::FIRST, claim)].into(), records: BTreeMap::new(), log: BTreeMap::new() };
        let taking = |drawn: u8| {
            let takeover = Takeover::new(STORE, Drawn(drawn.into()), "", "", bounds.takeover);
            Host { role: Role::Taking(takeover), pending: Vec::new(), found: Vec::new() }
        };
        let first = Host { role: Role::Gone, pending: Vec::new(), found: Vec::new() };
        let mut world = Self {
            bucket,
            hosts: [first].into_iter().chain((1..=bounds.claimants).map(taking)).collect(),
            late: Vec::new(),
            backups: Vec::new(),
            reigns: BTreeMap::new(),
            broken: false,
            trimmed: false,
            faults: bounds.faults,
            records: bounds.records,
        };
        let opened = Opened {
            writer,
            end: Mark::BEGIN,
            last_writer: None,
            record: None,
            trimmed: Mark::BEGIN.place,
            ends: BTreeMap::new(),
        };
        world.serve(0, &opened, bounds);
        (0..world.hosts.len()).for_each(|host| world.settle(host, bounds));
        world
    }

    /// All that can happen next.
    pub fn actions(&self, actions: &mut Vec<Action>) {
        if let Some(certain) = self.certain() {
            actions.push(certain);
            return;
        }
        for (host, it) in self.hosts.iter().enumerate() {
            for (at, request) in it.pending.iter().enumerate() {
                // Hosts that take over are alike: the one that claims first is called the first.
                let first = host < 2 || self.hosts[host - 1].pending.iter().all(|request| !is_claim(request));
                if is_claim(request) && !first {
                    continue;
                }
                let mut add = |fate| actions.push(Action::Request { host, at, fate });
                add(Fate::Heard);
                if self.faults > 0 {
                    fates(request).iter().copied().for_each(add);
                }
            }
            if let Role::Serving(owner, recorder) = &it.role
                && self.records > 0
                && recorder.may_record()
                && !self.reigns[&owner.kept().place.epoch].promised().is_empty()
            {
                actions.push(Action::Record(host));
            }
        }
        actions.extend((0..self.late.len()).map(Action::Late));
    }

    /// A request of a takeover whose reply no other event can change any more, and that changes
    /// nothing for others: whether it comes now or later leads to the same states, so it comes now.
    fn certain(&self) -> Option<Action> {
        let all = || self.hosts.iter().flat_map(|host| &host.pending).chain(&self.late);
        let records =
            self.records > 0 || all().any(|it| matches!(it, Request::Record(_) | Request::ReadRecord(_)));
        let removals = records || all().any(|it| matches!(it, Request::Remove(_)));
        let is_certain = |request: &Request<Block>| match request {
            Request::Read(place) => !removals && self.bucket.log.contains_key(place),
            Request::Create(object) => !removals && self.bucket.log.contains_key(&object.place),
            Request::NewestRecord(_) => !records,
            Request::ReadClaim(epoch) => self.bucket.claims.contains_key(epoch),
            _ => false,
        };
        let host = self.hosts.iter().position(|host| {
            matches!(host.role, Role::Taking(_))
                && host.pending.iter().all(is_certain)
                && !host.pending.is_empty()
        });
        host.map(|host| Action::Request { host, at: 0, fate: Fate::Heard })
    }

    pub fn act(&mut self, action: Action, bounds: &Bounds) {
        match action {
            Action::Request { host, at, fate } => {
                let request = self.hosts[host].pending.remove(at);
                self.faults -= u8::from(fate != Fate::Heard);
                let reply = match fate {
                    Fate::Heard => self.bucket.effect(&request),
                    Fate::Unheard => {
                        self.bucket.effect(&request);
                        Reply::Unknown
                    }
                    Fate::Late => {
                        self.late.push(request.clone());
                        Reply::Unknown
                    }
                    Fate::Doubled => {
                        self.late.push(request.clone());
                        self.bucket.effect(&request)
                    }
                    Fate::Busy => Reply::Exists,
                };
                self.trimmed |= matches!(request, Request::Remove(_));
                match &mut self.hosts[host].role {
                    Role::Taking(takeover) => takeover.answer(reply),
                    Role::Serving(owner, recorder) => match request {
                        Request::Record(_) | Request::ReadRecord(_) | Request::Remove(_) => {
                            recorder.answer(&request, reply);
                        }
                        _ => owner.answer(&request, reply, NOW),
                    },
                    Role::Gone => {}
                }
                self.settle(host, bounds);
            }
            Action::Late(at) => {
                let request = self.late.remove(at);
                self.bucket.effect(&request);
            }
            Action::Record(host) => self.record(host, bounds),
        }
        self.late.sort_by_key(order);
    }

    fn record(&mut self, host: usize, bounds: &Bounds) {
        let Role::Serving(owner, recorder) = &mut self.hosts[host].role else { return };
        let mark = owner.kept();
        self.backups.push(self.reigns[&mark.place.epoch].promised());
        recorder.record(mark, self.backups.len() as u64 - 1);
        self.records -= 1;
        self.settle(host, bounds);
    }

    /// Lets a host do all that needs no reply.
    fn settle(&mut self, host: usize, bounds: &Bounds) {
        if let Role::Taking(takeover) = &mut self.hosts[host].role {
            let (found, end) = (takeover.take_found(), takeover.end().cloned());
            for found in found {
                match found {
                    Found::Begin(record) => {
                        let backup =
                            record.map_or(Vec::new(), |record| self.backups[record.backup as usize].clone());
                        self.hosts[host].found = backup;
                    }
                    Found::Object(object) => self.hosts[host].found.push(object.payload.0),
                }
            }
            match end {
                Some(TakeoverEnd::Opened(opened)) => self.serve(host, &opened, bounds),
                Some(end) => {
                    self.broken |= matches!(end, TakeoverEnd::Broken(_));
                    self.leave(host);
                }
                None => {}
            }
        }
        let it = &mut self.hosts[host];
        match &mut it.role {
            Role::Taking(takeover) => it.pending.extend(takeover.poll()),
            Role::Serving(owner, recorder) => {
                it.pending.extend(owner.poll(NOW));
                it.pending.extend(recorder.poll());
                let released = owner.take_released();
                let fenced = matches!(owner.state(), OwnerState::Fenced { .. });
                let gone = fenced || recorder.fenced_by().is_some();
                for object in released {
                    assert_eq!(object.kind, Kind::Blocks);
                    self.reigns.entry(object.by).or_default().acked.push(object.payload.0);
                }
                if gone {
                    self.leave(host);
                }
            }
            Role::Gone => {}
        }
        self.hosts[host].pending.sort_by_key(order);
    }

    fn leave(&mut self, host: usize) {
        let gone = &mut self.hosts[host];
        (gone.role, gone.pending, gone.found) = (Role::Gone, Vec::new(), Vec::new());
    }

    fn serve(&mut self, host: usize, opened: &Opened, bounds: &Bounds) {
        let limits = OwnerLimits { window: bounds.window, beat: None, ..OwnerLimits::default() };
        let mut owner = Owner::new(opened.writer, opened.end, limits, NOW);
        for block in 1..=bounds.blocks[usize::from(host > 0)] {
            let begin = opened.end.lsn + u64::from(block) - 1;
            owner.offer(begin, begin + 1, Block(10 * host as u8 + block));
        }
        let base = std::mem::take(&mut self.hosts[host].found);
        self.reigns.insert(opened.writer.epoch, Reign { base, acked: Vec::new() });
        self.hosts[host].role = Role::Serving(owner, Recorder::new(opened));
    }

    /// What a host would find that reads now, and lets nothing come between.
    pub fn visible(&self) -> Vec<u8> {
        let newest = self.bucket.records.values().next_back();
        let mut found = newest.map_or(Vec::new(), |record| self.backups[record.backup as usize].clone());
        let mut place = newest.map_or(Mark::BEGIN.place, |record| record.mark.place);
        while let Some(object) = self.bucket.log.get(&place) {
            if object.is_fence() {
                place = Place::first_of(place.epoch.next());
            } else {
                found.push(object.payload.0);
                place = place.next();
            }
        }
        found
    }

    /// What the protocol promises, of all owners so far.
    pub fn holds(&self) -> Result<(), String> {
        let visible = self.visible();
        for (epoch, reign) in &self.reigns {
            let promised = reign.promised();
            if !visible.starts_with(&promised) {
                return Err(format!("epoch {epoch} acknowledged {promised:?}, and {visible:?} is left"));
            }
            let later = self.reigns.range(epoch.next()..);
            if let Some((later, other)) = later.clone().find(|(_, other)| !other.base.starts_with(&promised))
            {
                let base = &other.base;
                return Err(format!("epoch {epoch} acknowledged {promised:?}, epoch {later} found {base:?}"));
            }
        }
        if self.broken { Err("a takeover met an object that does not follow".into()) } else { Ok(()) }
    }
}

impl Bucket {
    pub fn effect(&mut self, request: &Request<Block>) -> Reply<Block> {
        fn create<K: Ord, V, P>(objects: &mut BTreeMap<K, V>, key: K, value: V) -> Reply<P> {
            if objects.contains_key(&key) {
                return Reply::Exists;
            }
            objects.insert(key, value);
            Reply::Done
        }
        match request.clone() {
            Request::NewestClaim => Reply::Claim(self.claims.values().next_back().cloned()),
            Request::Claim(claim) => create(&mut self.claims, claim.writer.epoch, claim),
            Request::ReadClaim(epoch) => Reply::Claim(self.claims.get(&epoch).cloned()),
            Request::NewestRecord(_) => Reply::Record(self.records.values().next_back().cloned()),
            Request::Record(record) => create(&mut self.records, record.number, record),
            Request::ReadRecord(number) => Reply::Record(self.records.get(&number).cloned()),
            Request::Create(object) => create(&mut self.log, object.place, object),
            Request::Read(place) => Reply::Object(self.log.get(&place).cloned()),
            Request::Remove(place) => {
                self.log.remove(&place);
                Reply::Done
            }
        }
    }
}

fn is_claim(request: &Request<Block>) -> bool {
    matches!(request, Request::Claim(_))
}

/// What else may happen to a request, where it matters: a lost read is a late one.
fn fates(request: &Request<Block>) -> &'static [Fate] {
    match request {
        Request::Create(object) if object.is_fence() => &[Fate::Unheard, Fate::Late, Fate::Doubled],
        Request::Create(_) => &[Fate::Unheard, Fate::Late, Fate::Doubled, Fate::Busy],
        Request::Claim(_) => &[Fate::Unheard, Fate::Late],
        Request::Record(_) => &[Fate::Unheard, Fate::Late],
        Request::Remove(_) => &[Fate::Late, Fate::Doubled],
        _ => &[],
    }
}

/// The order of requests in a list, so that equal sets are equal lists.
fn order(request: &Request<Block>) -> (u8, u64, u64, u64) {
    match request {
        Request::NewestClaim => (0, 0, 0, 0),
        Request::Claim(claim) => (1, claim.writer.epoch.0, claim.writer.drawn.0 as u64, 0),
        Request::ReadClaim(epoch) => (2, epoch.0, 0, 0),
        Request::NewestRecord(_) => (3, 0, 0, 0),
        Request::Record(record) => (4, record.number, record.drawn.0 as u64, record.backup),
        Request::ReadRecord(number) => (5, *number, 0, 0),
        Request::Create(object) => {
            (6, object.place.epoch.0, object.place.number, object.by.0 * 100 + u64::from(object.payload.0))
        }
        Request::Read(place) => (7, place.epoch.0, place.number, 0),
        Request::Remove(place) => (8, place.epoch.0, place.number, 0),
    }
}
