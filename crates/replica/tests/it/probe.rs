//! The probe refuses stores whose creates are not atomic, and says why.

use std::sync::Arc;

use brooklet_archive::Bucket;
use brooklet_archive::object_store::memory::InMemory;
use brooklet_archive::object_store::{ObjectStore, ObjectStoreExt};
use brooklet_replica::{BucketJournal, Error, Probe};
use futures_util::{FutureExt, TryStreamExt};

use crate::faulty::{Failing, Faulty};

fn run(bucket: &Bucket) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(Probe::default().run(&BucketJournal::new(bucket)))
}

fn probe(failing: Failing) -> Result<(), Error> {
    let memory: Arc<InMemory> = Arc::default();
    run(&Bucket::of(Arc::new(Faulty::new(memory, failing, 1)), "there").unwrap())
}

fn refusal(failing: Failing) -> String {
    match probe(failing) {
        Err(error @ Error::NotAtomic { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn sound_stores_pass_and_are_left_empty() {
    let memory: Arc<InMemory> = Arc::default();
    run(&Bucket::of(memory.clone(), "there").unwrap()).unwrap();
    let left: Vec<_> = memory.list(None).try_collect().now_or_never().unwrap().unwrap();
    assert_eq!(left.len(), 0);
    memory.put(&"mine".into(), "x".into()).now_or_never().unwrap().unwrap();
    let dir = tempfile::tempdir().unwrap();
    run(&Bucket::open(dir.path().to_str().unwrap()).unwrap()).unwrap();
}

#[test]
fn stores_without_atomic_creates_are_refused() {
    assert!(refusal(Failing::Unconditional).contains("32 of 32 creators of one object won at once"));
    assert!(refusal(Failing::CheckThenWrite).contains("creators of one object won at once"));
    assert!(refusal(Failing::Unsupported).contains("does not create objects conditionally"));
}

#[test]
fn a_store_that_cannot_be_written_is_another_error() {
    let error = probe(Failing::ReadOnly).unwrap_err();
    assert!(matches!(error, Error::Bucket { .. }) && error.to_string().contains("read only"), "{error}");
}

/// Amazon S3 replies so to a user without s3:ListBucket. In the old state the claims, the holes and
/// the records of a log were asked for for ever.
#[test]
fn a_store_that_refuses_missing_objects_is_refused_with_the_right_that_it_lacks() {
    let error = probe(Failing::NoList).unwrap_err();
    assert!(matches!(error, Error::NoList { .. }) && error.to_string().contains("s3:ListBucket"), "{error}");
}

/// A store that fails now and then is no reason to refuse it.
#[test]
fn a_failing_store_is_not_called_unsound() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut passed = 0;
        for seed in 0..40 {
            let memory: Arc<InMemory> = Arc::default();
            let faulty = Faulty::new(memory, Failing::Percent(10), seed);
            let bucket = Bucket::of(Arc::new(faulty), "there").unwrap();
            match Probe::default().run(&BucketJournal::new(&bucket)).await {
                Ok(()) => passed += 1,
                Err(Error::Bucket { .. } | Error::NoAnswer { .. }) => {}
                Err(error) => panic!("seed {seed}: {error}"),
            }
        }
        assert!(passed > 0);
    });
}
