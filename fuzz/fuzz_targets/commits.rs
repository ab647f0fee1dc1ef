//! Commits that whoever follows a store kept, when they are not what was told.
//!
//! Input: flags (1 byte: 1 has the checksum made anew, 2 has a moment up to which they count), then
//! patches.

#![no_main]

use std::sync::OnceLock;

use arbitrary::{Result, Unstructured};
use brooklet::{Error, Moment, Store, View, WalkItem};
use brooklet_fuzz::{export, patches};
use brooklet_wal::checksum;
use libfuzzer_sys::fuzz_target;

/// A view of nothing, the commits behind it, and the entries that they lead to.
fn sample() -> &'static (View, Vec<u8>, u64) {
    static SAMPLE: OnceLock<(View, Vec<u8>, u64)> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let store = Store::in_memory(1).expect("memory takes a store");
        let (subscription, view) = (store.subscribe(1 << 20), store.view());
        let (subscription, view) = (subscription.expect("it is open"), view.expect("memory takes writes"));
        export::fill(&store);
        store.flush().expect("memory takes writes");
        let mut commits = subscription.take().expect("it is not much");
        commits.mark(Moment { lsn: view.lsn(), time_ms: 1 });
        let commits = commits.encode();
        let entries = read(&view, &commits, None).expect("it is sound");
        (view, commits, entries)
    })
}

fuzz_target!(|data: &[u8]| {
    let _ = run(&mut Unstructured::new(data));
});

fn run(input: &mut Unstructured<'_>) -> Result<()> {
    let (view, commits, entries) = sample();
    let flags: u8 = input.arbitrary()?;
    let mut changed = commits.clone();
    for patch in patches(input, 8)? {
        patch.apply(&mut changed);
    }
    if flags & 1 != 0 {
        let body = changed.len() - 8;
        let sum = checksum(&changed[..body]);
        changed[body..].copy_from_slice(&sum.to_le_bytes());
    }
    let is_right = changed == *commits;
    match read(view, &changed, (flags & 2 != 0).then_some(Moment { lsn: 0, time_ms: 0 })) {
        Ok(found) => assert!(!is_right || found == *entries || flags & 2 != 0),
        Err(Error::Damaged { .. } | Error::NewerFormat { .. }) => assert!(!is_right),
        Err(error) => panic!("{error}"),
    }
    Ok(())
}

/// Reads everything; gives how many entries there are.
fn read(view: &View, commits: &[u8], until: Option<Moment>) -> std::result::Result<u64, Error> {
    let mut entries = 0;
    if until.is_none() {
        view.moments([commits])?;
    }
    for walked in view.with_commits([commits], until)?.walk("")? {
        entries += u64::from(matches!(walked?, WalkItem::Entry(_)));
    }
    Ok(entries)
}
