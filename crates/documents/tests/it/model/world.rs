//! The world of one case: a disk, a store, documents, and the model beside them.

mod rewinds;

use std::collections::BTreeMap;
use std::sync::Arc;

use brooklet::io::{Fault, MemVolume, Rng};
use brooklet::{Options as StoreOptions, Store};
use brooklet_documents::{Answer, Documents, Error, Json, JsonChange, Options};
use serde_json::{Value, json};

use super::plain::{Expected, Patch, Plain, PlainDoc};
use super::watcher::Watcher;
use crate::common::{options, state};

/// Returns options of a small store, which is made and opened fast.
fn store_options() -> StoreOptions {
    let options = crate::common::store_options().ring_size(256 << 10).block_size(4096);
    options.memory_budget(64 << 10).max_payload(9 << 10)
}

const NAMES: [&str; 3] = ["a", "b", "c"];

/// How often each thing happened: a test that never meets a thing shows nothing about it.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    made: u64,
    repeated: u64,
    conflicts: u64,
    reused: u64,
    forgotten: u64,
    refused: u64,
    rewinds: u64,
    deleted: u64,
    kills: u64,
    cuts: u64,
    lost: u64,
    snapshots: u64,
    missed: u64,
    gone: u64,
    undos: u64,
    others: u64,
}

impl Counts {
    fn all(&mut self) -> [(&'static str, &mut u64); 16] {
        [
            ("made", &mut self.made),
            ("repeated", &mut self.repeated),
            ("conflicts", &mut self.conflicts),
            ("reused", &mut self.reused),
            ("forgotten", &mut self.forgotten),
            ("refused", &mut self.refused),
            ("rewinds", &mut self.rewinds),
            ("deleted", &mut self.deleted),
            ("kills", &mut self.kills),
            ("cuts", &mut self.cuts),
            ("lost", &mut self.lost),
            ("snapshots", &mut self.snapshots),
            ("missed", &mut self.missed),
            ("gone", &mut self.gone),
            ("undos", &mut self.undos),
            ("others", &mut self.others),
        ]
    }

    pub fn add(&mut self, other: &Self) {
        let mut other = other.clone();
        for ((_, sum), (_, more)) in self.all().into_iter().zip(other.all()) {
            *sum += *more;
        }
    }

    pub fn expect_all(&mut self) {
        for (name, count) in self.all() {
            assert!(*count > 0, "{name} never happened");
        }
    }
}

pub struct World {
    rng: Rng,
    volume: MemVolume,
    store: Store,
    documents: Documents<Json>,
    options: Options,
    remember: u64,
    history: u64,
    /// The model as it is durable, and after each write that may not be durable yet.
    possible: Vec<(Plain, Vec<&'static str>)>,
    /// For each name and creation, the oldest version that has to be in reach.
    kept_from: BTreeMap<(&'static str, u64), u64>,
    /// For each name and creation, the history that a snapshot was asked to keep.
    asked: BTreeMap<(&'static str, u64), u64>,
    /// The greatest version that each name ever had.
    greatest: BTreeMap<&'static str, u64>,
    /// All requests that were made, to be made again.
    requests: Vec<(String, String, Vec<Patch>)>,
    watchers: Vec<Watcher>,
    next_id: u64,
    is_cut: bool,
    pub counts: Counts,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let volume = MemVolume::new(seed);
        let store = store_options().create_on(Arc::new(volume.clone())).unwrap();
        let (remember, history) = (1 + rng.below(20), rng.below(8));
        let options = options()
            .remember(remember)
            .history(history)
            .snapshot_updates(1 + rng.below(12))
            .cache_budget([0, 3_000, 1 << 20][rng.below(3) as usize]);
        let documents = Documents::open(&store, Json::new(), options.clone()).unwrap();
        let mut world = Self {
            rng,
            volume,
            store,
            documents,
            options,
            remember,
            history,
            possible: vec![(Plain::default(), Vec::new())],
            kept_from: BTreeMap::new(),
            asked: BTreeMap::new(),
            greatest: BTreeMap::new(),
            requests: Vec::new(),
            watchers: Vec::new(),
            next_id: 0,
            is_cut: false,
            counts: Counts::default(),
        };
        assert!(world.watch());
        for _ in 0..3 {
            world.create();
        }
        world
    }

    /// Begins to follow all documents. Returns `false` if the store failed.
    fn watch(&mut self) -> bool {
        let from = |name: &str| self.now().docs.get(name).map(|doc| (doc.head(), doc.now().clone()));
        let watchers = NAMES.map(|name| Watcher::new(&self.documents, name, from(name)));
        self.watchers = watchers.into_iter().flatten().collect();
        self.watchers.len() == NAMES.len()
    }

    fn now(&self) -> &Plain {
        &self.possible.last().unwrap().0
    }

    fn name(&mut self) -> &'static str {
        NAMES[self.rng.below(3) as usize]
    }

    fn id(&mut self) -> String {
        self.next_id += 1;
        format!("r{}", self.next_id)
    }

    /// Notes the model after a write of these documents, which may not be durable yet.
    fn wrote(&mut self, plain: Plain, names: Vec<&'static str>) {
        for (name, doc) in &plain.docs {
            let greatest = self.greatest.entry(name).or_default();
            *greatest = doc.head().max(*greatest);
        }
        self.possible.push((plain, names));
    }

    /// Notes that a call on a document was answered: what it may have seen is durable.
    fn answered(&mut self, name: &str) {
        if let Some(last) = self.possible.iter().rposition(|(_, names)| names.contains(&name)) {
            self.possible.drain(..last);
        }
    }

    fn change(&mut self) -> JsonChange {
        let n = self.rng.below(1000);
        let key = ["x", "y", "z"][self.rng.below(3) as usize];
        let operations = match self.rng.below(7) {
            0 => return JsonChange::merge(json!({key: n})),
            1 => return JsonChange::merge(json!({key: null, "sub": {key: n}})),
            2 => return JsonChange::merge(json!({"sub": {key: {"deep": n}}})),
            3 => json!([{"op": "add", "path": "/list/-", "value": n}]),
            4 => {
                json!([{"op": "remove", "path": "/list/0"}, {"op": "add", "path": format!("/{key}"), "value": [n]}])
            }
            5 => {
                json!([{"op": "copy", "from": "/list", "path": format!("/{key}")}, {"op": "replace", "path": "/list", "value": []}])
            }
            _ => {
                json!([{"op": "replace", "path": format!("/{key}"), "value": {"n": n}}, {"op": "test", "path": "/list", "value": []}])
            }
        };
        JsonChange::parse_patch(operations.to_string().as_bytes()).unwrap()
    }

    pub fn step(&mut self) {
        let goes_on = match self.rng.below(40) {
            0..3 => self.create(),
            3..18 => self.patch(),
            18..21 => self.many(),
            21..24 => self.again(),
            24 => self.rewind(),
            25 => self.undo_on_and_on(),
            26 => self.delete(),
            27..30 => self.look(),
            30 => self.snapshot(),
            31..34 => self.maintain(),
            34 => self.store.checkpoint().is_ok(),
            35 => self.reopen(),
            36 => {
                self.kill();
                true
            }
            37 if !self.is_cut => {
                self.volume.fail(Fault::PowerOffAfter(self.rng.below(12)));
                self.is_cut = true;
                true
            }
            _ => {
                let documents = &self.documents;
                self.watchers.iter_mut().all(|watcher| watcher.follow(documents))
            }
        };
        if !goes_on {
            assert!(self.is_cut, "only a power cut makes the store fail");
            self.crash();
        }
    }

    /// Compares an answer with the expected one. Returns `false` if the store failed.
    fn compare(&mut self, answer: Result<Answer, Error>, expected: &Expected) -> bool {
        let found = match answer {
            Ok(Answer { version, repeated: false }) => Expected::Made(version),
            Ok(Answer { version, repeated: true }) => Expected::Repeated(version),
            Err(Error::Conflict { head, .. }) => Expected::Conflict(head),
            Err(Error::RequestReused { .. }) => Expected::Reused,
            Err(Error::RequestForgotten { .. }) => Expected::Forgotten,
            Err(Error::Refused { .. }) => Expected::Refused,
            Err(Error::NotFound { .. }) => Expected::NotFound,
            Err(Error::Store(_)) => return false,
            Err(error) => panic!("{error}, and not {expected:?}"),
        };
        assert_eq!(&found, expected);
        match found {
            Expected::Made(_) => self.counts.made += 1,
            Expected::Repeated(_) => self.counts.repeated += 1,
            Expected::Conflict(_) => self.counts.conflicts += 1,
            Expected::Reused => self.counts.reused += 1,
            Expected::Forgotten => self.counts.forgotten += 1,
            Expected::Refused => self.counts.refused += 1,
            Expected::NotFound => {}
        }
        true
    }

    fn create(&mut self) -> bool {
        let (name, id) = (self.name(), self.id());
        let value = json!({"list": [], "x": self.rng.below(10)});
        let exists = self.now().docs.contains_key(name);
        match self.documents.create(name, id.as_str(), &state(value.clone())) {
            Ok(answer) => {
                assert!(!exists && !answer.repeated);
                let greatest = self.greatest.get(name).copied().unwrap_or_default();
                assert!(answer.version > greatest, "versions of a name only grow");
                self.created(name, answer.version, id, value);
                self.answered(name);
                true
            }
            Err(Error::Exists { head, .. }) => {
                assert_eq!(Some(head), self.now().docs.get(name).map(PlainDoc::head));
                self.answered(name);
                true
            }
            Err(Error::Store(_)) => {
                if !exists {
                    // Its version is one that the disk names, if the creation happened.
                    self.created(name, 0, id, value);
                }
                false
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn created(&mut self, name: &'static str, version: u64, id: String, value: Value) {
        let mut after = self.now().clone();
        let (versions, requests) = ([(version, value)].into(), [(id, (version, "create".into()))].into());
        after.docs.insert(name, PlainDoc { versions, requests, back: BTreeMap::new() });
        self.kept_from.insert((name, version), version);
        self.wrote(after, vec![name]);
    }

    fn expectation(&mut self, name: &str) -> u64 {
        let head = self.now().docs.get(name).map_or(1, PlainDoc::head);
        if self.rng.percent(10) { head.saturating_sub(self.rng.below(3)) } else { head }
    }

    fn patch(&mut self) -> bool {
        let (name, change) = (self.name(), self.change());
        let expected = self.expectation(name);
        // Some ids come again with other content.
        let id = match self.rng.percent(5) && self.next_id > 0 {
            true => format!("r{}", 1 + self.rng.below(self.next_id)),
            false => self.id(),
        };
        self.make("patch", id, vec![Patch { name, expected, change }])
    }

    fn many(&mut self) -> bool {
        let first = self.rng.below(3) as usize;
        let patches = (0..1 + self.rng.below(3) as usize).map(|i| {
            let name = NAMES[(first + i) % 3];
            Patch { name, expected: self.expectation(name), change: self.change() }
        });
        let (patches, id) = (patches.collect(), self.id());
        self.make("many", id, patches)
    }

    fn again(&mut self) -> bool {
        if self.requests.is_empty() {
            return true;
        }
        let back = self.rng.below(self.requests.len().min(12) as u64) as usize;
        let (call, id, patches) = self.requests[self.requests.len() - 1 - back].clone();
        self.make(&call, id, patches)
    }

    /// Makes a request, and compares its answer.
    fn make(&mut self, call: &str, id: String, patches: Vec<Patch>) -> bool {
        let mut after = self.now().clone();
        let expected = after.patch(call, &id, &patches, self.remember);
        let names: Vec<_> = patches.iter().map(|patch| patch.name).collect();
        if matches!(&expected, Ok(made) if matches!(made[0], Expected::Made(_))) {
            self.wrote(after, names.clone());
        }
        self.requests.push((call.into(), id.clone(), patches.clone()));
        if call == "many" {
            let parts: Vec<_> =
                patches.iter().map(|patch| (patch.name, patch.expected, &patch.change)).collect();
            let (answers, expected) = match (self.documents.patch_many(id, &parts), expected) {
                (Ok(answers), Ok(expected)) => (answers.into_iter().map(Ok).collect(), expected),
                (Err(error), Ok(expected)) => (vec![Err(error)], expected),
                (Ok(answers), Err(expected)) => panic!("{answers:?}, and not {expected:?}"),
                (Err(error), Err(expected)) => (vec![Err(error)], vec![expected]),
            };
            let pairs = answers.into_iter().zip(&expected).collect::<Vec<_>>();
            let goes_on = pairs.into_iter().all(|(answer, expected)| self.compare(answer, expected));
            if goes_on {
                names.iter().for_each(|name| self.answered(name));
            }
            return goes_on;
        }
        let expected = expected.map_or_else(|expected| expected, |made| made[0].clone());
        let Patch { name, expected: version, change } = &patches[0];
        let submitted = self.documents.submit(name, *version, id, change);
        if let Ok(submitted) = &submitted
            && self.rng.percent(40)
        {
            // The client goes away, or makes other calls before it waits.
            let answer = submitted.answer();
            return self.compare(Ok(answer), &expected);
        }
        let goes_on = self.compare(submitted.and_then(|submitted| submitted.wait()), &expected);
        if goes_on {
            self.answered(name);
        }
        goes_on
    }

    fn delete(&mut self) -> bool {
        let name = self.name();
        let Some(head) = self.now().docs.get(name).map(PlainDoc::head) else {
            return match self.documents.delete(name, 1) {
                Err(Error::Store(_)) => false,
                Err(Error::NotFound { .. }) => true,
                other => panic!("{other:?}"),
            };
        };
        let mut after = self.now().clone();
        after.docs.remove(name);
        self.wrote(after, vec![name]);
        match self.documents.delete(name, head) {
            Ok(()) => {
                self.answered(name);
                self.counts.deleted += 1;
                true
            }
            Err(Error::Store(_)) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Looks at a document: its state, an earlier version, the changes since then.
    fn look(&mut self) -> bool {
        let name = self.name();
        let doc = self.now().docs.get(name).cloned();
        match self.documents.get(name) {
            Ok(found) => {
                let found = found.map(|found| (found.version, found.state.value().clone()));
                assert_eq!(found, doc.as_ref().map(|doc| (doc.head(), doc.now().clone())));
            }
            Err(Error::Store(_)) => return false,
            Err(error) => panic!("{error}"),
        }
        self.answered(name);
        let Some(doc) = doc else { return true };
        let version = doc.created() + self.rng.below(doc.head() - doc.created() + 1);
        let kept_from = self.kept_from[&(name, doc.created())];
        match self.documents.at(name, version) {
            Ok(found) => assert_eq!((found.version, found.state.value()), (version, &doc.versions[&version])),
            Err(Error::HistoryGone { .. }) => {
                assert!(version < kept_from, "version {version} is in reach from {kept_from} on");
                self.counts.gone += 1;
                return true;
            }
            Err(Error::Store(_)) => return false,
            Err(error) => panic!("{error}"),
        }
        let changes = match self.documents.changes(name, version) {
            Err(Error::Store(_)) => return false,
            changes => changes.unwrap(),
        };
        let apply = |value: Value, change: &JsonChange| super::plain::changed(&value, change).unwrap();
        let from = doc.versions[&version].clone();
        let after = changes.updates.iter().fold(from.clone(), |value, update| apply(value, &update.change));
        assert_eq!((changes.version, &after), (doc.head(), doc.now()));
        if let Some(merged) = &changes.merged {
            assert_eq!(&apply(from, merged), doc.now());
        }
        true
    }

    /// Notes that a snapshot keeps only a part of the history.
    fn kept(&mut self, name: &'static str, history: u64) {
        if let Some(doc) = self.now().docs.get(name) {
            let (head, created) = (doc.head(), doc.created());
            let kept = self.kept_from.entry((name, created)).or_default();
            *kept = head.saturating_sub(history).max(*kept);
        }
    }

    fn snapshot(&mut self) -> bool {
        let (name, history) = (self.name(), self.rng.below(16));
        // Another handle may take it, which reads what is durable. The first one has an old head.
        let mut other = None;
        if self.rng.percent(50) {
            if self.store.flush().is_err() {
                return false;
            }
            self.possible.drain(..self.possible.len() - 1);
            self.counts.others += 1;
            other = Some(Documents::open(&self.store, Json::new(), self.options.clone()).unwrap());
        }
        self.kept(name, history);
        let created = self.now().docs.get(name).map(PlainDoc::created);
        let asked = created.map(|created| self.asked.entry((name, created)).or_default());
        let result = other.as_ref().unwrap_or(&self.documents).snapshot(name, history);
        match (&result, asked) {
            (Ok(_), Some(asked)) => *asked = history,
            // Whether it happened is unknown.
            (_, Some(asked)) => *asked = history.min(*asked),
            _ => {}
        }
        match result {
            Ok(version) => assert_eq!(Some(version), self.now().docs.get(name).map(PlainDoc::head)),
            Err(Error::NotFound { .. }) => assert!(!self.now().docs.contains_key(name)),
            Err(Error::Store(_)) => return false,
            Err(error) => panic!("{error}"),
        }
        self.answered(name);
        self.counts.snapshots += 1;
        true
    }

    fn maintain(&mut self) -> bool {
        for name in NAMES {
            let created = self.now().docs.get(name).map(PlainDoc::created);
            let asked = created.and_then(|created| self.asked.get(&(name, created))).copied();
            self.kept(name, asked.unwrap_or_default().max(self.history));
        }
        self.counts.snapshots += self.documents.maintain() as u64;
        // A snapshot by itself has nobody who learns of its failure.
        !self.is_cut || self.store.flush().is_ok()
    }

    fn reopen(&mut self) -> bool {
        // Documents that are opened again read what is durable.
        if self.store.flush().is_err() {
            return false;
        }
        self.possible.drain(..self.possible.len() - 1);
        self.documents = Documents::open(&self.store, Json::new(), self.options.clone()).unwrap();
        self.watch()
    }

    /// Kills the process.
    fn kill(&mut self) {
        if self.is_cut {
            return self.crash();
        }
        self.store.clone().abandon();
        self.counts.kills += 1;
        self.open();
    }

    /// Cuts the power.
    fn crash(&mut self) {
        self.store.clone().abandon();
        self.volume = MemVolume::from_image(self.volume.crash(), self.rng.next());
        self.is_cut = false;
        self.counts.cuts += 1;
        self.open();
    }

    /// Opens the store again, and finds out which writes it has: the acknowledged ones, and then
    /// some of the others, in their order.
    fn open(&mut self) {
        self.store = store_options().open_on(Arc::new(self.volume.clone())).unwrap();
        self.documents = Documents::open(&self.store, Json::new(), self.options.clone()).unwrap();
        let found = NAMES.map(|name| {
            self.documents.get(name).unwrap().map(|found| (found.version, found.state.value().clone()))
        });
        for (plain, _) in &mut self.possible {
            for (name, found) in NAMES.iter().zip(&found) {
                // A creation without an answer has the version that the disk names.
                if let (Some(doc), Some((version, _))) = (plain.docs.get_mut(name), found)
                    && doc.created() == 0
                {
                    let value = doc.now().clone();
                    let requests =
                        doc.requests.keys().map(|id| (id.clone(), (*version, "create".into()))).collect();
                    let versions = [(*version, value)].into();
                    *doc = PlainDoc { versions, requests, back: BTreeMap::new() };
                    self.kept_from.insert((name, *version), *version);
                }
            }
        }
        let fits = |plain: &Plain| {
            NAMES.iter().zip(&found).all(|(name, found)| {
                plain.docs.get(name).map(|doc| (doc.head(), doc.now().clone())) == *found
            })
        };
        let which = self.possible.iter().rposition(|(plain, _)| fits(plain));
        let which = which.unwrap_or_else(|| panic!("{found:?} is none of {:#?}", self.possible));
        self.counts.lost += (self.possible.len() - 1 - which) as u64;
        let plain = self.possible[which].0.clone();
        for (name, doc) in &plain.docs {
            self.greatest.insert(name, doc.head());
        }
        self.possible = vec![(plain, Vec::new())];
        self.counts.missed += self.watchers.iter().map(|watcher| watcher.missed).sum::<u64>();
        assert!(self.watch());
    }

    /// Ends the case: all is made durable, and compared once more after a last opening.
    pub fn end(&mut self) {
        if self.is_cut || self.store.flush().is_err() {
            self.crash();
        }
        self.store.flush().unwrap();
        self.possible.drain(..self.possible.len() - 1);
        let documents = &self.documents;
        assert!(self.watchers.iter_mut().all(|watcher| watcher.follow(documents)));
        for watcher in &self.watchers {
            watcher.check(self.now().docs.get(watcher.name));
        }
        self.kill();
        for _ in 0..6 {
            assert!(self.look());
        }
    }
}
