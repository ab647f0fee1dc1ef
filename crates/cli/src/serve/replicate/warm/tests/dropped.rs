//! A file that is given up while it catches up with the log.

use super::*;

/// The log begins again while the file, which is made, catches up: such as behind the next backup.
/// The file has nothing but what the log had. In the old state each such file stayed aside, as one
/// that may have the only copy of a commit.
#[test]
fn a_file_that_is_given_up_while_it_catches_up_has_nothing_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let first = host(folder.path(), Waits::Local);
    let store = open(&first).unwrap();
    (0..3).for_each(|_| append_kept(&store, &first.replica));
    let read = blocks_with(&first, 3);
    let mut second = host(folder.path(), Waits::Local);
    second.path = folder.path().join("second");
    let gate = Gate::new(true, 0);
    let options = options().files(gate.clone());
    let mut file = Warm::new(&second, &options, 1);
    file.take(Followed::Begin { store: StoreId(store.info().unwrap().id), backup: None });
    read.iter().for_each(|block| file.take(Followed::Blocks(vec![block.clone()])));
    gate.is_closed.store(false, Ordering::Release);
    let begin = Instant::now();
    // The thread has made the file, and opens it to let it catch up.
    while gate.opened.load(Ordering::Acquire) == 0 {
        assert!(begin.elapsed() < Duration::from_secs(60) && !file.is_cold());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(second.path.exists());
    for _ in 0..5 {
        append_kept(&store, &first.replica);
    }
    first.back_up(&store, || true).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The file is given up meanwhile.
            std::thread::sleep(Duration::from_millis(500));
            gate.let_in.store(u64::MAX, Ordering::Release);
        });
        follow_until(&second, || has(&second, 8), |read| file.take(read));
    });
    assert!(has(&second, 8));
    assert_eq!(aside(folder.path()), 0);
    assert!(folder.path().join("second.behind").exists());
}
