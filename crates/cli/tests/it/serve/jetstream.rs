//! Two hosts whose log is on real servers of NATS: `.ci/jetstream` starts them.

use super::process::Client;
use super::replication::{Host, elements};

#[test]
#[ignore = "needs servers: .ci/jetstream"]
fn a_standby_takes_over_with_all_that_was_acknowledged() {
    let hosts = std::env::var("NATS_HOSTS").expect(".ci/jetstream sets it");
    let log = format!("nats://{hosts}/serve-{:x}", brooklet::io::system_seed());
    let bucket = tempfile::tempdir().unwrap();
    let backups = ["--backups", bucket.path().to_str().unwrap()];
    let (mut owner, mut standby) = (Host::new(), Host::new());
    owner.start_at(&log, &backups);
    owner.wait_ready();
    let mut next = 0;
    for round in 0..3 {
        standby.start_at(&log, &[&backups[..], &["--standby"]].concat());
        next = owner.push(next, 200);
        let told = owner.push_until_killed(next);
        // The host is lost with its disk.
        owner = Host::new();
        standby.wait_ready();
        let found = Client::at(&standby.socket()).list("list");
        assert!(found.iter().eq(&elements(found.len() as u64)), "round {round}: {found:?}");
        // The last push may have had its effect without a reply.
        assert!((told..told + 2).contains(&(found.len() as u64)), "round {round}: {told} {}", found.len());
        next = found.len() as u64;
        std::mem::swap(&mut owner, &mut standby);
    }
}
