//! Small stores to do harm to, and what they held after each commit.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use brooklet::fuzzing::{COPIES, RING_OFFSET, choose, decode_manifest};
use brooklet::io::{Fault, ManualClock, MemVolume, Rng, SECTOR, Volume};
use brooklet::{Commit, Error, Options, Store};
use brooklet_wal::Header;
use brooklet_wal::fuzzing::HEADER;

use crate::{Cover, Seam};

/// No store here grows beyond this.
pub const LARGEST: u64 = 4 << 20;

/// The entries of each log that is there, with the number of the first.
pub type Logs = BTreeMap<Vec<u8>, (u64, Vec<Vec<u8>>)>;

/// A store on its volume.
pub struct Sample {
    pub image: Vec<u8>,
    /// What recovery may find: one state where the store was closed, those after each commit that the ring still holds
    /// where it was killed.
    pub states: Vec<Logs>,
    pub seams: Vec<Seam>,
}

/// Options of a store that is small and does nothing by itself.
pub fn options() -> Options {
    let options = Options::new().ring_size(64 << 10).memory_budget(64 << 10).block_size(8 << 10);
    options.max_payload(9 << 10).threads(false).environment(Arc::new(ManualClock::default()), 5)
}

/// A volume that holds `image` and has little room beyond.
pub fn volume(image: Vec<u8>) -> Arc<dyn Volume> {
    let volume = MemVolume::from_image(image, 5);
    volume.fail(Fault::Full(LARGEST));
    Arc::new(volume)
}

/// The stores: one closed with runs of two levels and a ring in use, the same killed, one with little in it.
pub fn samples() -> &'static [Sample] {
    static SAMPLES: OnceLock<[Sample; 3]> = OnceLock::new();
    SAMPLES.get_or_init(|| [sample(true, 6), sample(false, 6), sample(false, 1)])
}

fn sample(closed: bool, rounds: u64) -> Sample {
    let volume = MemVolume::new(5);
    let store = options().create_on(Arc::new(volume.clone())).expect("memory has room");
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
        // Compresses: in the runs a little, to be quick to read, in the ring as a block of several sectors.
        let even = if round + 1 < rounds { 600 } else { 8200 };
        store.append("even", vec![7; even]).unwrap().wait().unwrap();
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
    let image = volume.image();
    let seams = seams(&image);
    Sample { image, states, seams }
}

/// Reads everything a store shows.
pub fn contents(store: &Store) -> Result<Logs, Error> {
    store.scan("")?.map(|log| log.and_then(|log| Ok((log.key.clone(), read(store, &log.key)?)))).collect()
}

/// Reads a log from both ends: the same entries, numbered without a gap.
pub fn read(store: &Store, key: &[u8]) -> Result<(u64, Vec<Vec<u8>>), Error> {
    let bounds = store.bounds(key)?;
    let entries = store.read(key, ..)?.collect::<Result<Vec<_>, _>>()?;
    let mut back = store.read(key, ..)?.rev().collect::<Result<Vec<_>, _>>()?;
    back.reverse();
    assert!(entries == back, "the two directions differ");
    assert_eq!(entries.len() as u64, bounds.len());
    for (entry, seq) in entries.iter().zip(bounds.first..) {
        assert_eq!(entry.seq, seq);
    }
    Ok((bounds.first, entries.into_iter().map(|entry| entry.payload.to_vec()).collect()))
}

/// The checksums of a sound store, each before those of what names it.
fn seams(image: &[u8]) -> Vec<Seam> {
    let slots: Vec<&[u8]> = (0..COPIES).map(|copy| &image[copy * SECTOR..]).collect();
    let superblock = choose(&slots, image.len() as u64).expect("sound");
    let (offset, len, sum) = superblock.manifest;
    let (offset, len) = (offset as usize, len as usize);
    let mut seams = Vec::new();
    if len > 0 {
        let runs = decode_manifest(&image[offset..offset + len], sum).expect("sound");
        for (n, [_, _, base, len, ..]) in runs.into_iter().enumerate() {
            let (base, end) = (base as usize, (base + len) as usize);
            let named = offset + 16 + n * 64 + 40;
            let run = crate::codex::seams(&image[base..end], base, vec![end - 8, named]);
            seams.extend(run.expect("its keys do not compress"));
        }
        let mut put = vec![offset + len - 8];
        put.extend((0..COPIES).map(|copy| copy * SECTOR + 120));
        seams.push(Seam { covers: Cover::Bytes(offset..offset + len - 8), put });
    }
    seams.extend(blocks(image, superblock.trim.0, superblock.ring_size));
    for slot in (0..COPIES).map(|copy| copy * SECTOR) {
        seams.push(Seam { covers: Cover::Bytes(slot..slot + 504), put: vec![slot + 504] });
    }
    seams
}

/// The checksums of the blocks of the ring, with the chain that names each in the next.
fn blocks(image: &[u8], trim: u64, size: u64) -> Vec<Seam> {
    let mut seams: Vec<Seam> = Vec::new();
    let mut position = trim;
    while position < trim + size {
        let at = (RING_OFFSET + position % size) as usize;
        match Header::decode(&image[at..at + HEADER]) {
            Some((header, _)) if header.position == position => {
                if let Some(before) = seams.last_mut() {
                    before.put.push(at + 56);
                }
                seams.push(Seam { covers: Cover::Payload(at), put: vec![at + 80] });
                seams.push(Seam { covers: Cover::Bytes(at..at + 88), put: vec![at + 88] });
                position += header.disk_len() as u64;
            }
            _ => position += SECTOR as u64,
        }
    }
    seams
}
