//! The log on a real S3 server, whose address and keys the environment tells: `.ci/s3` starts one
//! and runs these.

use std::time::Duration;

use brooklet_archive::Bucket;
use brooklet_replica::{BucketJournal, Error, Found, Probe, Shipper, ShipperOptions, StoreId, blocks};

fn journal(name: &str) -> BucketJournal {
    let address = format!("s3://brooklet/{name}-{:x}", brooklet::io::system_seed());
    BucketJournal::new(&Bucket::open(&address).unwrap())
}

/// Opens the log, and returns its blocks.
fn open(journal: &BucketJournal) -> Result<(Shipper, Vec<Vec<u8>>), Error> {
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

/// Owner after owner takes the log from one that appends.
#[test]
#[ignore = "needs a server: .ci/s3"]
fn owners_follow_one_another() {
    let (journal, mut acked) = (journal("owners"), Vec::<Vec<u8>>::new());
    let mut last: Option<Shipper> = None;
    for round in 0..20u64 {
        let (shipper, found) = open(&journal).unwrap();
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
    assert_eq!(open(&journal).unwrap().1, acked);
}

/// Of hosts that take over at the same moment, the later claim wins, and nothing is lost.
#[test]
#[ignore = "needs a server: .ci/s3"]
fn claimants_race() {
    let journal = journal("race");
    let mut most = 0;
    for _ in 0..10 {
        let (first, found) = open(&journal).unwrap();
        let base = found.len() as u64;
        assert!(base >= most);
        first.wait(first.ship(base, base + 1, b"one").unwrap()).unwrap();
        most = base + 1;
        std::thread::scope(|scope| {
            let opened: Vec<_> = (0..4).map(|_| scope.spawn(|| open(&journal))).collect();
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
