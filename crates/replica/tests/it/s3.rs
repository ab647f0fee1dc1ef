//! The log on a real S3 server, whose address and keys the environment tells: `.ci/s3` starts one
//! and runs these.

use std::sync::Arc;
use std::time::Duration;

use brooklet::MirrorOptions;
use brooklet::io::MemVolume;
use brooklet_archive::{Archive, Bucket, Which};
use brooklet_replica::{
    BucketJournal, Error, Found, Journal, Probe, Replica, Shipper, ShipperOptions, StoreId, blocks,
};

use crate::replica::{entries, options};

fn address(name: &str) -> String {
    format!("s3://brooklet/{name}-{:x}", brooklet::io::system_seed())
}

fn journal(name: &str) -> BucketJournal {
    BucketJournal::new(&Bucket::open(&address(name)).unwrap())
}

/// Opens the log, and returns its blocks.
pub fn open(journal: &(impl Journal + Clone)) -> Result<(Shipper, Vec<Vec<u8>>), Error> {
    let mut found = Vec::new();
    let (shipper, _) = Shipper::open(journal.clone(), StoreId(7), ShipperOptions::default(), |it| {
        match it {
            Found::Begin(_) => found.clear(),
            Found::Object(object) => {
                found.extend(blocks(&object.payload).unwrap().iter().map(|block| block.to_vec()));
            }
        }
        Ok(())
    })?;
    Ok((shipper, found))
}

#[test]
#[ignore = "needs a server: .ci/s3"]
fn the_server_passes_the_probe() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let probe = Probe { names: 20, creators: 32 };
    runtime.block_on(probe.run(&journal("probe"))).unwrap();
}

#[test]
#[ignore = "needs a server: .ci/s3"]
fn owners_follow_one_another() {
    owners(&journal("owners"));
}

/// Owner after owner takes the log from one that appends.
pub fn owners(journal: &(impl Journal + Clone)) {
    let mut acked = Vec::<Vec<u8>>::new();
    let mut last: Option<Shipper> = None;
    for round in 0..20u64 {
        let (shipper, found) = open(journal).unwrap();
        assert!(found.starts_with(&acked), "round {round}");
        if let Some(last) = last.take() {
            // It has appended to the last, and learns now that it may not.
            let end = last.status().kept.lsn + 1000;
            let late = last.ship(end, end + 1, b"late").and_then(|number| last.wait(number));
            assert!(matches!(late, Err(Error::Fenced { .. })));
        }
        acked = found;
        let base = acked.len() as u64;
        for number in 0..50 {
            let block = format!("block {number} of round {round}").into_bytes();
            shipper.ship(base + number, base + number + 1, &block).unwrap();
            acked.push(block);
        }
        shipper.wait(50).unwrap();
        if round % 5 == 4 {
            // Beats do not harm.
            std::thread::park_timeout(Duration::from_millis(1500));
        }
        last = Some(shipper);
    }
    assert_eq!(open(journal).unwrap().1, acked);
}

#[test]
#[ignore = "needs a server: .ci/s3"]
fn claimants_race() {
    claimants(&journal("race"));
}

/// Of hosts that take over at the same moment, the later claim wins, and nothing is lost.
pub fn claimants(journal: &(impl Journal + Clone)) {
    let mut most = 0;
    for _ in 0..10 {
        let (first, found) = open(journal).unwrap();
        let base = found.len() as u64;
        assert!(base >= most);
        first.wait(first.ship(base, base + 1, b"one").unwrap()).unwrap();
        most = base + 1;
        std::thread::scope(|scope| {
            let opened: Vec<_> = (0..4).map(|_| scope.spawn(|| open(journal))).collect();
            let opened: Vec<_> = opened.into_iter().map(|it| it.join().unwrap()).collect();
            assert!(opened.iter().any(Result::is_ok));
            for opened in opened {
                match opened {
                    Ok((_, found)) => assert!(found.len() as u64 >= most),
                    Err(Error::Outbid { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
    }
}

#[test]
#[ignore = "needs a server: .ci/s3"]
fn stores_follow_one_another() {
    let address = address("stores");
    let journal = BucketJournal::new(&Bucket::open(&address).unwrap());
    stores(&journal, &Bucket::open(&format!("{address}/backups")).unwrap());
}

/// Host after host goes on with the store, each without the disk of the one before it.
pub fn stores(journal: &(impl Journal + Clone), backups: &Bucket) {
    let note = tempfile::tempdir().unwrap();
    let mut acked = Vec::new();
    for round in 0..6 {
        let replica = Replica::new(journal.clone(), ShipperOptions::default());
        let volume = Arc::new(MemVolume::new(round));
        let backup = |number| Ok(backups.backup(Which::Number(number))?.view(1 << 20)?);
        let _claim = match replica.kept(backup) {
            Ok((kept, claim)) => {
                assert_eq!(kept.backup.is_some(), round > 2, "round {round}");
                options().succeed_on(volume.clone(), &kept).unwrap().close().unwrap();
                Some(claim)
            }
            Err(Error::NoLog) => {
                options().create_on(volume.clone()).unwrap().close().unwrap();
                None
            }
            Err(error) => panic!("{error}"),
        };
        let store = options().mirror(MirrorOptions::new(replica.clone())).open_on(volume).unwrap();
        assert_eq!(entries(&store), acked, "round {round}");
        for n in 0..20 {
            let entry = format!("entry {n} of round {round}");
            store.append("log", &entry).unwrap().wait().unwrap();
            acked.push(entry);
            if round >= 2 && n == 10 {
                let host = format!("host {round}");
                let note = note.path().join(&host);
                let mut archive = Archive::new(backups.clone(), note, host).unwrap().take_over();
                replica.back_up(&store, &mut archive, || true).unwrap().unwrap();
                while replica.status().unwrap().is_recording {
                    std::thread::yield_now();
                }
            }
        }
        store.abandon();
        replica.give_up();
    }
}
