//! What an archive keeps, when it is not what was written: the record of a backup, an object of its
//! parts, and the note of whose it is.
//!
//! Input: what (1 byte: even has the record's checksum made anew, a multiple of 4 has an object
//! patched, too, 255 is about a note, of which the rest is the text), then patches for the record,
//! then for the object.

#![no_main]

use std::sync::{Arc, OnceLock};

use arbitrary::{Result, Unstructured};
use brooklet::WalkItem;
use brooklet_archive::object_store::memory::InMemory;
use brooklet_archive::object_store::path::Path;
use brooklet_archive::{Archive, Bucket, Error, Which};
use brooklet_codex::Bytes;
use brooklet_fuzz::{export, patches, wait};
use brooklet_wal::checksum;
use libfuzzer_sys::fuzz_target;

/// A bucket with a backup, and what lies in it.
struct Sample {
    memory: Arc<InMemory>,
    bucket: Bucket,
    record: (Path, Bytes),
    object: (Path, Bytes),
    entries: u64,
}

fn sample() -> &'static Sample {
    static SAMPLE: OnceLock<Sample> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let memory = Arc::new(InMemory::new());
        let bucket = Bucket::of(memory.clone(), "").expect("it is a path");
        let note = tempfile::tempdir().expect("there is room").path().join("note");
        std::fs::create_dir_all(note.parent().expect("it has one")).expect("there is room");
        let mut archive = Archive::new(bucket.clone(), note, "somebody").expect("nothing is noted");
        let store = export::store();
        archive.backup(&store, brooklet::Progress::ignore).expect("memory takes it");
        let entries = read(&bucket).expect("it is sound");
        let all = wait::objects(&memory);
        let of = |what: &str| {
            all.iter().find(|(path, _)| path.as_ref().starts_with(what)).expect("it is there").clone()
        };
        Sample { record: of("backups"), object: of("bundles"), memory, bucket, entries }
    })
}

fuzz_target!(|data: &[u8]| {
    let _ = run(&mut Unstructured::new(data));
});

fn run(input: &mut Unstructured<'_>) -> Result<()> {
    let what: u8 = input.arbitrary()?;
    if what == 255 {
        let text = String::from_utf8_lossy(input.bytes(input.len())?).into_owned();
        if let Some(again) = brooklet_archive::fuzzing::note(&text) {
            assert_eq!(brooklet_archive::fuzzing::note(&again), Some(again));
        }
        return Ok(());
    }
    let sample = sample();
    let mut record = sample.record.1.to_vec();
    for patch in patches(input, 8)? {
        patch.apply(&mut record);
    }
    if what % 2 == 0 {
        let body = record.len() - 8;
        let sum = checksum(&record[..body]);
        record[body..].copy_from_slice(&sum.to_le_bytes());
    }
    let mut object = sample.object.1.to_vec();
    if what % 4 == 0 {
        for patch in patches(input, 4)? {
            patch.apply(&mut object);
        }
    }
    let is_right = record == sample.record.1 && object == sample.object.1;
    wait::put(&sample.memory, &sample.record.0, record);
    wait::put(&sample.memory, &sample.object.0, object);
    match read(&sample.bucket) {
        Ok(entries) => assert!(!is_right || entries == sample.entries),
        Err(Error::Bucket { doing, cause }) => panic!("{doing}: {cause}"),
        Err(error) => assert!(!is_right, "{error}"),
    }
    Ok(())
}

/// Reads everything; gives how many entries there are.
fn read(bucket: &Bucket) -> std::result::Result<u64, Error> {
    let mut entries = 0;
    let backup = bucket.backup(Which::Number(0))?;
    for walked in backup.view(1 << 20)?.walk("")? {
        entries += u64::from(matches!(walked?, WalkItem::Entry(_)));
    }
    Ok(entries)
}
