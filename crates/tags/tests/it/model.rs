//! Tagged records beside a plain model of them: random puts, replacements, removals and queries,
//! openings anew, power cuts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brooklet::Store;
use brooklet::io::{Fault, ManualClock, MemVolume, Rng};
use brooklet_tags::{Options, Query, Tags};

fn options() -> brooklet::Options {
    let options = brooklet::Options::new()
        .ring_size(256 << 10)
        .block_size(4096)
        .memory_budget(64 << 10)
        .max_payload(9 << 10);
    options.threads(false).clock(Arc::new(ManualClock::default())).rng_seed(5)
}

fn open(volume: &MemVolume, recent: usize) -> (Store, Tags) {
    let store = options().open_on(Arc::new(volume.clone())).unwrap();
    let tags = Tags::open(&store, "notes", Options::new().recent(recent).cache(4096)).unwrap();
    (store, tags)
}

/// A record: how new it is, its tags, its payload.
type Model = BTreeMap<String, (u64, BTreeSet<String>, Vec<u8>)>;

/// Whether a record with these tags is to be found.
type Fits = Box<dyn Fn(&BTreeSet<String>) -> bool>;

struct Twin {
    volume: MemVolume,
    store: Store,
    tags: Tags,
    rng: Rng,
    model: Model,
    puts: u64,
    recent: usize,
    /// Tags of each kind.
    many: u64,
}

impl Twin {
    fn new(seed: u64) -> Self {
        let (volume, mut rng) = (MemVolume::new(seed), Rng::new(seed));
        drop(options().create_on(Arc::new(volume.clone())).unwrap());
        let recent = 1 + rng.below(200) as usize;
        let (store, tags) = open(&volume, recent);
        Self { volume, store, tags, rng, model: Model::new(), puts: 0, recent, many: 40 }
    }

    fn tag(&mut self) -> String {
        // Some tags are on most records, and some on few.
        let kind = ["a", "b=", "c"][self.rng.below(3) as usize];
        let of = 1 + self.rng.below(self.many);
        format!("{kind}{}", self.rng.below(of))
    }

    fn change(&mut self) {
        let id = format!("{}", self.rng.below(120));
        if self.rng.percent(20) {
            let removed = self.tags.remove(&id).unwrap();
            // A removal that is not acknowledged yet comes again.
            assert!(removed.is_some() || !self.model.contains_key(&id));
            self.model.remove(&id);
            return;
        }
        let tags: Vec<String> = (0..self.rng.below(8)).map(|_| self.tag()).collect();
        let payload = vec![self.puts as u8; self.rng.below(60) as usize];
        drop(self.tags.put(&id, &tags, &payload).unwrap());
        self.puts += 1;
        self.model.insert(id, (self.puts, tags.into_iter().collect(), payload));
    }

    fn query(&mut self) -> (Query, Fits) {
        let [all, any, none] = [3, 4, 2].map(|most| {
            let count = self.rng.below(most);
            (0..count).map(|_| self.tag()).collect::<Vec<_>>()
        });
        let prefix = self.rng.percent(30).then(|| ["a", "b=", "b=1", "c2"][self.rng.below(4) as usize]);
        let mut query = self.tags.find().every().all(&all).none(&none);
        if !any.is_empty() {
            query = query.any(&any);
        }
        if let Some(prefix) = prefix {
            query = query.prefix(prefix);
        }
        let fits = move |tags: &BTreeSet<String>| {
            all.iter().all(|tag| tags.contains(tag))
                && (any.is_empty() || any.iter().any(|tag| tags.contains(tag)))
                && !none.iter().any(|tag| tags.contains(tag))
                && prefix.is_none_or(|prefix| tags.iter().any(|tag| tag.starts_with(prefix)))
        };
        (query, Box::new(fits))
    }

    fn compare(&mut self, what: &str) {
        self.store.flush().unwrap();
        assert_eq!(self.tags.len(), self.model.len() as u64, "{what}");
        for _ in 0..4 {
            let (query, fits) = self.query();
            let mut expected: Vec<_> = self.model.iter().filter(|(_, (_, tags, _))| fits(tags)).collect();
            expected.sort_by_key(|(_, (put, ..))| std::cmp::Reverse(*put));
            assert_eq!(query.count().unwrap(), expected.len() as u64, "{what}");
            // Page by page.
            let (mut found, mut before) = (Vec::new(), u64::MAX);
            let limit = 1 + self.rng.below(20);
            loop {
                let page = query.clone().before(before).limit(limit).run().unwrap();
                let page: Vec<_> = page.map(Result::unwrap).collect();
                found.extend(page.iter().cloned());
                match page.last() {
                    Some(last) if page.len() as u64 == limit => before = last.cursor,
                    _ => break,
                }
            }
            assert_eq!(found.len(), expected.len(), "{what}");
            for (found, (id, (_, tags, payload))) in found.iter().zip(expected) {
                assert_eq!((&found.id[..], &found.payload[..]), (id.as_bytes(), &payload[..]), "{what}");
                let same = found.tags.iter().map(|tag| &tag[..]).eq(tags.iter().map(|tag| tag.as_bytes()));
                assert!(same, "{what}");
            }
        }
        let id = format!("{}", self.rng.below(120));
        let got = self.tags.get(&id).unwrap().map(|record| record.payload.to_vec());
        assert_eq!(got, self.model.get(&id).map(|(_, _, payload)| payload.clone()), "{what}");
        let prefix = ["", "a", "b=1"][self.rng.below(3) as usize];
        let mut counts = BTreeMap::<&[u8], u64>::new();
        for tag in self.model.values().flat_map(|(_, tags, _)| tags).filter(|tag| tag.starts_with(prefix)) {
            *counts.entry(tag.as_bytes()).or_default() += 1;
        }
        let told: Vec<_> = self.tags.tags(prefix).unwrap().map(Result::unwrap).collect();
        assert!(told.iter().map(|(tag, n)| (&tag[..], *n)).eq(counts), "{what}");
    }
}

#[test]
fn records_are_found_by_their_tags_whatever_happens() {
    for seed in 0..40 {
        let mut twin = Twin::new(seed);
        for step in 0..300 {
            match twin.rng.below(60) {
                0 => {
                    twin.tags = Tags::open(&twin.store, "notes", Options::new().recent(twin.recent)).unwrap();
                }
                1 => {
                    twin.store.flush().unwrap();
                    twin.store.clone().abandon();
                    (twin.store, twin.tags) = open(&twin.volume, twin.recent);
                }
                2 => twin.tags.settle().unwrap(),
                3 => twin.store.checkpoint().unwrap(),
                4 => twin.compare(&format!("seed {seed}, step {step}")),
                _ => twin.change(),
            }
        }
        twin.compare(&format!("seed {seed}"));
    }
}

/// The power goes at each operation of bringing tags into their logs: what was put is found, and it
/// goes on.
#[test]
fn settling_may_be_cut_anywhere() {
    for seed in 0..2 {
        let mut at = 0;
        loop {
            let mut twin = Twin::new(100 + seed);
            twin.store.clone().abandon();
            twin.many = 4000;
            (twin.store, twin.tags) = open(&twin.volume, 1 << 20);
            (0..80).for_each(|_| twin.change());
            twin.tags.settle().unwrap();
            (0..400).for_each(|_| twin.change());
            twin.store.flush().unwrap();
            twin.volume.fail(Fault::PowerOffAfter(at));
            let done = twin.tags.settle().is_ok();
            twin.store.clone().abandon();
            twin.volume = MemVolume::from_image(twin.volume.crash(), seed);
            (twin.store, twin.tags) = open(&twin.volume, 1 << 20);
            twin.compare(&format!("operation {at}"));
            (0..20).for_each(|_| twin.change());
            twin.store.flush().unwrap();
            twin.tags.settle().unwrap();
            twin.compare(&format!("operation {at}, and settled"));
            if done {
                break;
            }
            at += 1;
        }
        assert!(at > 1);
    }
}
