//! Random edits, pushes in any order, flushes, kills and clears, beside a document of yrs in
//! memory.

use std::sync::Arc;

use brooklet::io::MemVolume;
use brooklet::{Options, Store};
use brooklet_yrs::Documents;
use proptest::prelude::*;
use yrs::types::ToJson;
use yrs::updates::decoder::Decode;
use yrs::{Any, Map, MapRef, ReadTxn, StateVector, Text, Transact, Update};

use crate::common::Replica;

#[derive(Clone, Debug)]
enum Step {
    Insert {
        client: usize,
        at: u32,
        words: String,
    },
    Remove {
        client: usize,
        at: u32,
        len: u32,
    },
    Set {
        client: usize,
        key: u8,
        value: u8,
    },
    /// Pushes one of the updates of a client that are not pushed yet.
    Push {
        client: usize,
        which: usize,
    },
    /// A client inserts its document, with all updates that are not pushed yet.
    InsertDoc {
        client: usize,
    },
    /// Pushes an update once more.
    Again {
        which: usize,
    },
    /// A client gets the document.
    Pull {
        client: usize,
    },
    Flush {
        skip_gc: bool,
    },
    Kill,
    Checkpoint,
    Clear,
}

const CLIENTS: usize = 3;

fn step() -> impl Strategy<Value = Step> {
    let client = || 0..CLIENTS;
    prop_oneof![
        8 => (client(), any::<u32>(), "[a-z]{1,6}")
            .prop_map(|(client, at, words)| Step::Insert { client, at, words }),
        4 => (client(), any::<u32>(), 1..5_u32).prop_map(|(client, at, len)| Step::Remove { client, at, len }),
        3 => (client(), 0..4_u8, any::<u8>()).prop_map(|(client, key, value)| Step::Set { client, key, value }),
        12 => (client(), 0..3_usize).prop_map(|(client, which)| Step::Push { client, which }),
        2 => client().prop_map(|client| Step::InsertDoc { client }),
        1 => any::<usize>().prop_map(|which| Step::Again { which }),
        4 => client().prop_map(|client| Step::Pull { client }),
        4 => any::<bool>().prop_map(|skip_gc| Step::Flush { skip_gc }),
        1 => Just(Step::Kill),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Clear),
    ]
}

struct Client {
    replica: Replica,
    map: MapRef,
    /// Updates that are not pushed yet.
    outbox: Vec<Vec<u8>>,
}

impl Client {
    fn new(id: u64) -> Self {
        let replica = Replica::new(id);
        let map = replica.doc.get_or_insert_map("map");
        Self { replica, map, outbox: Vec::new() }
    }

    fn content(&self) -> (String, Any) {
        (self.replica.string(), self.map.to_json(&self.replica.doc.transact()))
    }
}

struct World {
    volume: MemVolume,
    store: Store,
    documents: Documents,
    clients: Vec<Client>,
    /// The updates that the document has.
    pushed: Vec<Vec<u8>>,
    next_id: u64,
}

fn options() -> Options {
    Options::new().ring_size(1 << 20).max_payload(64 << 10).rng_seed(3)
}

impl World {
    fn new() -> Self {
        let volume = MemVolume::new(1);
        let store = options().create_on(Arc::new(volume.clone())).unwrap();
        let documents = Documents::new(&store, "docs/");
        let mut world =
            Self { volume, store, documents, clients: Vec::new(), pushed: Vec::new(), next_id: 0 };
        world.renew();
        world
    }

    /// All clients begin with an empty document.
    fn renew(&mut self) {
        self.clients = (1..=CLIENTS as u64).map(|n| Client::new(self.next_id + n)).collect();
        self.next_id += CLIENTS as u64;
        self.pushed.clear();
    }

    fn push(&mut self, update: Vec<u8>) {
        self.documents.push_update("doc", &update).unwrap();
        self.pushed.push(update);
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Insert { client, at, words } => {
                let Client { replica, outbox, .. } = &mut self.clients[client];
                let at = at % (1 + replica.text.len(&replica.doc.transact()));
                outbox.push(replica.insert(at, &words));
            }
            Step::Remove { client, at, len } => {
                let Client { replica, outbox, .. } = &mut self.clients[client];
                let most = replica.text.len(&replica.doc.transact());
                if most > 0 {
                    let at = at % most;
                    outbox.push(replica.remove(at, len.min(most - at)));
                }
            }
            Step::Set { client, key, value } => {
                let Client { replica, map, outbox } = &mut self.clients[client];
                let mut txn = replica.doc.transact_mut();
                map.insert(&mut txn, format!("{key}"), i64::from(value));
                outbox.push(txn.encode_update_v1());
            }
            Step::Push { client, which } => {
                let outbox = &mut self.clients[client].outbox;
                if !outbox.is_empty() {
                    let update = outbox.remove(which % outbox.len());
                    self.push(update);
                }
            }
            Step::InsertDoc { client } => {
                let txn = self.clients[client].replica.doc.transact();
                self.documents.insert_doc("doc", &txn).unwrap();
                let state = txn.encode_diff_v1(&StateVector::default());
                drop(txn);
                self.pushed.push(state);
            }
            Step::Again { which } => {
                if !self.pushed.is_empty() {
                    let update = self.pushed[which % self.pushed.len()].clone();
                    self.push(update);
                }
            }
            Step::Pull { client } => {
                let replica = &self.clients[client].replica;
                let known = replica.doc.transact().state_vector();
                if let Some(diff) = self.documents.get_diff("doc", &known).unwrap() {
                    replica.apply(&diff);
                }
            }
            Step::Flush { skip_gc } => {
                let options = yrs::Options { skip_gc, ..yrs::Options::default() };
                let merged = self.documents.flush_doc_with("doc", options).unwrap();
                assert_eq!(merged.is_some(), !self.pushed.is_empty());
            }
            Step::Kill => {
                self.store.clone().abandon();
                self.store = options().open_on(Arc::new(self.volume.clone())).unwrap();
                self.documents = Documents::new(&self.store, "docs/");
            }
            Step::Checkpoint => self.store.checkpoint().unwrap(),
            Step::Clear => {
                self.documents.clear_doc("doc").unwrap();
                self.renew();
            }
        }
    }

    fn loaded(&self) -> Client {
        let client = Client::new(1_000_000);
        let found = self.documents.load_doc("doc", &mut client.replica.doc.transact_mut()).unwrap();
        assert_eq!(found.is_some(), !self.pushed.is_empty());
        client
    }

    /// Compares with a document in memory that got the same updates.
    fn check(&self) {
        let (model, loaded) = (Client::new(1_000_001), self.loaded());
        let state = |client: &Client| {
            let txn = client.replica.doc.transact();
            let update = Update::decode_v1(&txn.encode_diff_v1(&StateVector::default())).unwrap();
            (txn.state_vector(), update.insertions(true), update.delete_set().clone())
        };
        // Updates that wait for one another may need several rounds.
        loop {
            let before = (model.content(), state(&model));
            self.pushed.iter().for_each(|update| model.replica.apply(update));
            if (model.content(), state(&model)) == before {
                break;
            }
        }
        assert_eq!(loaded.content(), model.content());
        assert_eq!(state(&loaded), state(&model));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_document_is_the_merge_of_its_updates(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for (n, step) in steps.into_iter().enumerate() {
            world.run(step);
            if n % 8 == 0 {
                world.check();
            }
        }
        world.check();
        // In the end, all have all.
        for client in 0..CLIENTS {
            for update in std::mem::take(&mut world.clients[client].outbox) {
                world.push(update);
            }
        }
        world.check();
        for client in 0..CLIENTS {
            world.run(Step::Pull { client });
            let content = world.clients[client].content();
            prop_assert_eq!(content, world.loaded().content());
        }
        prop_assert!(!world.loaded().replica.doc.transact().has_missing_updates());
    }
}
