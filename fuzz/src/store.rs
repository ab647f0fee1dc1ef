//! Small stores to do harm to, and what they held after each commit.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use brooklet::fuzzing::{COPIES, RING_OFFSET, choose, decode_manifest};
use brooklet::io::{Fault, ManualClock, MemVolume, Rng, SECTOR, Volume};
use brooklet::{CheckReport, check_volume, check_volume_with_ring};
use brooklet::{Commit, Error, Options, Store};

use crate::{Cover, Seam, blocks};

/// No store here grows beyond this.
pub const LARGEST: u64 = 4 << 20;

/// The entries of each log that is there, with the number of the first.
pub type Logs = BTreeMap<Vec<u8>, (u64, Vec<Vec<u8>>)>;

/// A store on its volume, or on two.
pub struct Sample {
    pub image: Vec<u8>,
    /// Where in `image` the ring's own volume starts, if it has one.
    pub ring: Option<usize>,
    /// What recovery may find: one state where the store was closed, those after each commit that
    /// the ring still holds where it was killed.
    pub states: Vec<Logs>,
    pub seams: Vec<Seam>,
}

/// Options of a store that is small and does nothing by itself.
pub fn options() -> Options {
    let options = Options::new().ring_size(64 << 10).memory_budget(64 << 10).block_size(8 << 10);
    options.max_payload(9 << 10).threads(false).clock(Arc::new(ManualClock::default())).rng_seed(5)
}

/// The volumes of a store, and what is done with them.
#[derive(Clone)]
pub struct Volumes {
    data: Arc<dyn Volume>,
    ring: Option<Arc<dyn Volume>>,
}

impl Volumes {
    /// Volumes that hold `image`, with the ring's own from `ring` on, and have little room beyond.
    pub fn new(mut image: Vec<u8>, ring: Option<usize>) -> Self {
        let volume = |image| {
            let volume = MemVolume::from_image(image, 5);
            volume.fail(Fault::Full(LARGEST));
            Arc::new(volume)
        };
        let ring = ring.map(|at| volume(image.split_off(at.min(image.len()))) as _);
        Self { data: volume(image), ring }
    }

    pub fn open(&self, options: Options) -> Result<Store, Error> {
        match self.ring.clone() {
            Some(ring) => options.open_on_with_ring(self.data.clone(), ring),
            None => options.open_on(self.data.clone()),
        }
    }

    pub fn check(&self) -> Result<CheckReport, Error> {
        match self.ring.clone() {
            Some(ring) => check_volume_with_ring(self.data.clone(), ring, brooklet::Progress::ignore),
            None => check_volume(self.data.clone(), brooklet::Progress::ignore),
        }
    }

    /// Bytes of the larger one.
    pub fn size(&self) -> u64 {
        let sizes = [&self.data].into_iter().chain(&self.ring).map(|volume| volume.size());
        sizes.map(|size| size.expect("memory is measured")).max().unwrap_or_default()
    }
}

/// The stores: one closed with runs of two levels and a ring in use, the same killed, one with
/// little in it, and one killed with its ring on a volume of its own and a capacity.
pub fn samples() -> &'static [Sample] {
    static SAMPLES: OnceLock<[Sample; 4]> = OnceLock::new();
    SAMPLES.get_or_init(|| {
        [sample(true, 6, false), sample(false, 6, false), sample(false, 1, false), sample(false, 5, true)]
    })
}

fn sample(closed: bool, rounds: u64, apart: bool) -> Sample {
    let [volume, ring] = [5, 6].map(MemVolume::new);
    let data = Arc::new(volume.clone());
    let created = match apart {
        true => options().capacity(3 << 20).create_on_with_ring(data, Arc::new(ring.clone())),
        false => options().create_on(data),
    };
    let store = created.expect("memory has room");
    let mut rng = Rng::new(5);
    let mut noise = |len: usize| -> Vec<u8> { (0..len).map(|_| rng.next() as u8).collect() };
    let mut states = vec![Logs::new()];
    // Keys that do not compress keep the pointers of the runs' indexes in the open.
    let keys: Vec<Vec<u8>> = (b'a'..b'e').map(|first| [vec![first], noise(150)].concat()).collect();
    for round in 0..rounds {
        let mut done = || states.push(contents(&store).expect("sound"));
        for key in &keys {
            store.append(key, noise(40)).unwrap().wait().unwrap();
            done();
        }
        store.append("large", noise(5000)).unwrap().wait().unwrap();
        done();
        // Compresses: in the runs a little, to be quick to read, in the ring as a block of several
        // sectors.
        let even = if round + 1 < rounds { 600 } else { 8200 };
        store.append("even", vec![7; even]).unwrap().wait().unwrap();
        done();
        store.append("brief", noise(10)).unwrap().wait().unwrap();
        done();
        match round {
            2 => store.delete("brief").unwrap().wait().unwrap(),
            4 => store.trim("large", 2).unwrap().wait().unwrap(),
            _ => {}
        }
        if round + 1 < rounds {
            store.checkpoint().unwrap();
            while store.step().unwrap() {}
            states = vec![contents(&store).expect("sound")];
        }
    }
    let mut commit = Commit::new();
    commit.append("large", b"both").append("even", b"or none").truncate("large", rounds - 1);
    states.push(contents(&store).expect("sound"));
    store.commit(&commit).unwrap().wait().unwrap();
    states.push(contents(&store).expect("sound"));
    if closed {
        store.close().expect("memory takes writes");
        states.drain(..states.len() - 1);
    } else {
        store.abandon();
    }
    let mut image = volume.image();
    let data = image.len();
    image.extend(ring.image());
    let ring = apart.then_some(data);
    let seams = seams(&image, ring);
    Sample { image, ring, states, seams }
}

/// Reads everything a store shows.
pub fn contents(store: &Store) -> Result<Logs, Error> {
    store.scan("")?.map(|log| log.and_then(|log| Ok((log.key.clone(), read(store, &log.key)?)))).collect()
}

/// The place of the damage that [`read`] itself finds.
pub const DISAGREEMENT: &str = "the bounds of a log";

/// Reads a log from both ends: the same entries, numbered without a gap. The bounds of a log at
/// rest come from a note, and its entries do not: with checksums made anew, the two may disagree,
/// and that is damage, which the check has to find.
pub fn read(store: &Store, key: &[u8]) -> Result<(u64, Vec<Vec<u8>>), Error> {
    let bounds = store.bounds(key)?;
    let entries = store.read(key, ..)?.collect::<Result<Vec<_>, _>>()?;
    let mut back = store.read(key, ..)?.rev().collect::<Result<Vec<_>, _>>()?;
    back.reverse();
    assert!(entries == back, "the two directions differ");
    let first = entries.first().map_or(bounds.first, |entry| entry.seq);
    for (entry, seq) in entries.iter().zip(first..) {
        assert_eq!(entry.seq, seq);
    }
    if (first, entries.len() as u64) != (bounds.first, bounds.len()) {
        let what = format!("{} entries from {first} on, and bounds of {bounds:?}", entries.len());
        return Err(Error::Damaged { place: DISAGREEMENT.into(), what });
    }
    Ok((bounds.first, entries.into_iter().map(|entry| entry.payload.to_vec()).collect()))
}

/// The checksums of a sound store, each before those of what names it.
fn seams(image: &[u8], ring: Option<usize>) -> Vec<Seam> {
    let slots: Vec<&[u8]> = (0..COPIES).map(|copy| &image[copy * SECTOR..]).collect();
    let superblock = choose(&slots, ring.unwrap_or(image.len()) as u64).expect("sound");
    let (offset, len, sum) = superblock.manifest;
    let (offset, len) = (offset as usize, len as usize);
    let mut seams = Vec::new();
    if len > 0 {
        let manifest = &image[offset..offset + len];
        for [base, len, sum] in decode_manifest(manifest, sum).expect("sound").tables {
            let (base, end) = (base as usize, (base + len) as usize);
            let named = manifest.windows(8).position(|word| word == sum.to_le_bytes());
            let named = offset + named.expect("it is named there");
            let run = crate::codex::seams(&image[base..end], base, vec![end - 8, named]);
            seams.extend(run.expect("its keys do not compress"));
        }
        let mut put = vec![offset + len - 8];
        put.extend((0..COPIES).map(|copy| copy * SECTOR + 120));
        seams.push(Seam { covers: Cover::Bytes(offset..offset + len - 8), put });
    }
    // Each slot of the superblock, and of the label of a ring apart.
    let base = ring.unwrap_or(0);
    seams.extend(blocks(
        image,
        base + RING_OFFSET as usize..base + (RING_OFFSET + superblock.ring_size) as usize,
    ));
    for base in [0].into_iter().chain(ring) {
        for slot in (0..COPIES).map(|copy| base + copy * SECTOR) {
            seams.push(Seam { covers: Cover::Bytes(slot..slot + 504), put: vec![slot + 504] });
        }
    }
    seams
}
