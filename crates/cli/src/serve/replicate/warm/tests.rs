mod dropped;

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use brooklet::Waits;
use brooklet::io::{FileOptions, Files, OpenMode, SystemFiles, Volume};

use super::*;
use crate::serve::replicate::tests::{append_kept, aside, host, open, options};

/// Follows a log until something holds, and for some looks more. Gives up after a minute.
fn follow_until(host: &Replication, holds: impl Fn() -> bool, on: impl FnMut(Followed)) {
    let (begin, looks) = (Instant::now(), Cell::new(0));
    let goes_on = || {
        looks.set(looks.get() + u32::from(holds()));
        looks.get() < 4 && begin.elapsed() < Duration::from_secs(60)
    };
    host.replica.stand_by(Duration::from_secs(60), goes_on, on).unwrap();
}

/// Returns whether the log in the file of a host has so many entries.
fn has(host: &Replication, next: u64) -> bool {
    let found = Options::new().read_only(true).open(&host.path);
    found.is_ok_and(|store| store.get_bounds("log").unwrap().is_some_and(|bounds| bounds.next == next))
}

/// The file of a standby is made once, and follows the log from then on, also past a backup.
#[test]
fn the_file_of_a_standby_follows_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let first = host(folder.path(), Waits::Local);
    let store = open(&first).unwrap();
    let mut second = host(folder.path(), Waits::Local);
    (second.path, second.is_standby) = (folder.path().join("second"), true);
    let options = options();
    let mut made = None;
    for next in 1..=6 {
        append_kept(&store, &first.replica);
        let mut file = Warm::new(&second, &options, 1);
        let begin = Instant::now();
        let goes_on = || !has(&second, next) && begin.elapsed() < Duration::from_secs(60);
        let is_silent = second.replica.stand_by(Duration::from_secs(60), goes_on, |read| file.take(read));
        assert!(!is_silent.unwrap() && has(&second, next), "{next}");
        let inode = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&second.path).unwrap());
        assert_eq!(*made.get_or_insert(inode), inode);
        if next % 2 == 0 {
            first.back_up(&store, || true).unwrap();
        }
    }
    first.replica.give_up();
    drop((store, first));
    let store = second.claim(&options, &|options| options.open(&second.path)).unwrap();
    assert_eq!(store.bounds("log").unwrap().next, 6);
    assert_eq!(aside(folder.path()), 0);
    append_kept(&store, &second.replica);
}

/// Without that, the takeover would copy the backup.
#[test]
fn an_old_file_of_a_standby_is_made_anew_before_the_takeover() {
    let folder = tempfile::tempdir().unwrap();
    let first = host(folder.path(), Waits::Local);
    let store = open(&first).unwrap();
    append_kept(&store, &first.replica);
    std::fs::copy(&first.path, folder.path().join("second")).unwrap();
    for _ in 0..3 {
        append_kept(&store, &first.replica);
    }
    first.back_up(&store, || true).unwrap();
    let mut second = host(folder.path(), Waits::Local);
    second.path = folder.path().join("second");
    let options = options();
    let mut file = Warm::new(&second, &options, 1);
    // A move would begin, and nobody would serve while the file is made.
    file.take(Followed::Begin { store: StoreId(1), backup: None });
    assert!(!file.approach(), "nothing shows that the file continues in the log");
    let is_made = || aside(folder.path()) == 1 && has(&second, 4);
    follow_until(&second, is_made, |read| file.take(read));
    assert!(!file.is_cold() && file.approach() && aside(folder.path()) == 1);
    let found = Options::new().read_only(true).open(&second.path).unwrap();
    assert_eq!(found.bounds("log").unwrap().next, 4);
}

/// The backup of a busy owner has more than the first objects behind the begin of the log.
#[test]
fn a_standby_waits_for_the_blocks_that_the_backup_has() {
    let folder = tempfile::tempdir().unwrap();
    let first = host(folder.path(), Waits::Local);
    let store = open(&first).unwrap();
    for _ in 0..3 {
        append_kept(&store, &first.replica);
    }
    let view = store.view().unwrap();
    append_kept(&store, &first.replica);
    first.back_up(&store, || true).unwrap();
    let (blocks, store_id) = {
        let second = host(folder.path(), Waits::Local);
        let (mut read, end) = (Vec::new(), Cell::new(0));
        let take = |followed: Followed| {
            if let Followed::Blocks(blocks) = &followed {
                end.set(blocks.last().map_or(end.get(), |block| block.end));
            }
            read.push(followed);
        };
        follow_until(&second, || end.get() > view.lsn(), take);
        let Some(Followed::Begin { store, backup: Some(0) }) = read.first().cloned() else {
            panic!("{read:?}")
        };
        let blocks = read.into_iter().flat_map(|followed| match followed {
            Followed::Blocks(blocks) => blocks,
            Followed::Begin { .. } | Followed::Owner { .. } => Vec::new(),
        });
        (blocks.collect::<Vec<_>>(), store)
    };
    assert!(view.lsn() < blocks.last().unwrap().end);
    let mut second = host(folder.path(), Waits::Local);
    second.path = folder.path().join("second");
    let options = options();
    let mut file = Warm::new(&second, &options, 1);
    // The backup of this begin is newer than the first of its blocks.
    append_kept(&store, &first.replica);
    append_kept(&store, &first.replica);
    first.back_up(&store, || true).unwrap();
    file.take(Followed::Begin { store: store_id, backup: Some(1) });
    file.take(Followed::Blocks(blocks));
    assert!(!file.is_cold() && !second.path.exists());
    // Its own blocks follow.
    let done = Cell::new(false);
    let begin = Instant::now();
    let goes_on = || !done.get() && begin.elapsed() < Duration::from_secs(60);
    let on = |followed: Followed| {
        if let Followed::Blocks(_) = &followed {
            file.take(followed);
            done.set(second.path.exists());
        }
    };
    second.replica.stand_by(Duration::from_secs(60), goes_on, on).unwrap();
    let found = Options::new().read_only(true).open(&second.path).unwrap();
    assert_eq!(found.bounds("log").unwrap().next, 6);
}

/// A file that somebody takes away is not made of the blocks that happen to be at hand.
#[test]
fn a_standby_makes_no_file_with_a_gap() {
    let folder = tempfile::tempdir().unwrap();
    let first = host(folder.path(), Waits::Local);
    let store = open(&first).unwrap();
    append_kept(&store, &first.replica);
    let mut second = host(folder.path(), Waits::Local);
    second.path = folder.path().join("second");
    let options = options();
    let mut file = Warm::new(&second, &options, 1);
    let mut was_made = false;
    let begin = Instant::now();
    let is_done = Cell::new(false);
    let goes_on = || !is_done.get() && begin.elapsed() < Duration::from_secs(60);
    let on = |followed: Followed| {
        file.take(followed);
        if second.path.exists() {
            was_made = true;
            std::fs::remove_file(&second.path).unwrap();
            append_kept(&store, &first.replica);
        }
        is_done.set(file.is_cold());
    };
    second.replica.stand_by(Duration::from_secs(60), goes_on, on).unwrap();
    assert!(was_made && file.is_cold() && !second.path.exists());
}

/// A file with commits of its own stays as it is while its host stands by.
#[test]
fn a_file_that_cannot_follow_stays() {
    let folder = tempfile::tempdir().unwrap();
    let first = host(folder.path(), Waits::Local);
    let store = open(&first).unwrap();
    append_kept(&store, &first.replica);
    let mut second = host(folder.path(), Waits::Local);
    second.path = folder.path().join("second");
    std::fs::copy(&first.path, &second.path).unwrap();
    let alone = options().open(&second.path).unwrap();
    alone.append("log", "of the copy").unwrap().wait().unwrap();
    alone.close().unwrap();
    drop(alone);
    for _ in 0..2 {
        append_kept(&store, &first.replica);
    }
    let before = std::fs::read(&second.path).unwrap();
    let options = options();
    let file = RefCell::new(Warm::new(&second, &options, 1));
    follow_until(&second, || file.borrow().is_cold(), |read| file.borrow_mut().take(read));
    assert!(file.borrow().is_cold());
    assert!(std::fs::read(&second.path).unwrap() == before);
}

/// A standby that often falls behind does not fill its disk. A file that somebody has written to
/// keeps its place.
#[test]
fn one_file_with_nothing_of_its_own_is_kept() {
    for is_touched in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let first = host(folder.path(), Waits::Local);
        let store = open(&first).unwrap();
        append_kept(&store, &first.replica);
        let mut second = host(folder.path(), Waits::Local);
        second.path = folder.path().join("second");
        let options = options();
        let mut file = Warm::new(&second, &options, 1);
        follow_until(&second, || has(&second, 1), |read| file.take(read));
        assert!(second.path.exists());
        if is_touched {
            let alone = options.clone().open(&second.path).unwrap();
            alone.append("log", "of the copy").unwrap().wait().unwrap();
        }
        for _ in 0..5 {
            append_kept(&store, &first.replica);
        }
        first.back_up(&store, || true).unwrap();
        follow_until(&second, || has(&second, 6), |read| file.take(read));
        let found = Options::new().read_only(true).open(&second.path).unwrap();
        assert_eq!(found.bounds("log").unwrap().next, 6);
        assert_eq!(aside(folder.path()), usize::from(is_touched));
        assert_eq!(folder.path().join("second.behind").exists(), !is_touched);
    }
}

/// In the old state they waited for a minute, however many came.
#[test]
fn blocks_that_wait_for_a_file_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let first = host(folder.path(), Waits::Kept);
    let store = open(&first).unwrap();
    append_kept(&store, &first.replica);
    let block = blocks(&first).pop().unwrap();
    let mut second = host(folder.path(), Waits::Kept);
    second.path = folder.path().join("second");
    // Somebody looks at it.
    let _busy = options().open(&second.path).unwrap();
    let options = options();
    let mut file = Warm::new(&second, &options, 1);
    file.take(Followed::Begin { store: StoreId(1), backup: None });
    file.take(Followed::Blocks(vec![block.clone()]));
    assert!(!file.is_cold());
    let many = MOST * PORTION / block.bytes.len() + 1;
    file.take(Followed::Blocks(vec![block; many]));
    assert!(file.is_cold() && file.bytes == 0 && !file.begins_again());
}

/// Returns the blocks of a log.
fn blocks(of: &Replication) -> Vec<SealedBlock> {
    let reader = host(of.path.parent().unwrap(), of.waits);
    let (mut read, is_read) = (Vec::new(), Cell::new(false));
    let take = |followed| {
        if let Followed::Blocks(blocks) = followed {
            is_read.set(true);
            read.extend(blocks);
        }
    };
    follow_until(&reader, || is_read.get(), take);
    read
}

/// Returns the blocks of a log, so many of them with records.
fn blocks_with(of: &Replication, count: usize) -> Vec<SealedBlock> {
    loop {
        let read = blocks(of);
        if read.iter().filter(|block| block.begin < block.end).count() >= count {
            break read;
        }
    }
}

/// Follows the log for a moment. Returns whether the file could take the store at once, and whether
/// the log is to be read again.
fn stand_by(host: &Replication) -> (bool, bool) {
    let (options, looks) = (options(), Cell::new(0));
    let mut file = Warm::new(host, &options, 1);
    let goes_on = || looks.replace(looks.get() + 1) < 10;
    host.replica.stand_by(Duration::from_secs(60), goes_on, |read| file.take(read)).unwrap();
    (file.approach(), file.begins_again())
}

/// Does so until this is what it returns: on a busy machine, a moment may be too short.
fn stand_by_until(host: &Replication, expected: (bool, bool)) {
    let found: Vec<_> = (0..60).map(|_| stand_by(host)).take_while(|found| *found != expected).collect();
    assert!(found.len() < 60, "{found:?} and not {expected:?}");
}

/// It is no target of a move, and with `kept` it makes its file anew before a takeover needs it.
#[test]
fn a_former_owner_that_diverged_makes_its_file_anew() {
    for waits in [Waits::Kept, Waits::Local] {
        let folder = tempfile::tempdir().unwrap();
        let first = host(folder.path(), Waits::Local);
        let store = open(&first).unwrap();
        append_kept(&store, &first.replica);
        store.close().unwrap();
        let path = first.path.clone();
        drop((store, first));
        let alone = options().open(&path).unwrap();
        alone.append("log", "the bucket lacks this").unwrap().wait().unwrap();
        alone.close().unwrap();
        drop(alone);
        let mut third = host(folder.path(), Waits::Kept);
        third.path = folder.path().join("third");
        let store = third.claim(&options(), &|options| options.open(&third.path)).unwrap();
        let former = host(folder.path(), waits);
        assert_eq!(stand_by(&former), (false, false), "the file is ahead");
        append_kept(&store, &third.replica);
        store.append("log", [7; 4000]).unwrap().wait().unwrap();
        let is_kept = waits == Waits::Kept;
        stand_by_until(&former, (false, is_kept));
        assert_eq!(aside(folder.path()), usize::from(is_kept), "{waits:?}");
        if is_kept {
            stand_by_until(&former, (true, false));
            let found = Options::new().read_only(true).open(&former.path).unwrap();
            assert_eq!(found.bounds("log").unwrap().next, 3);
        }
    }
}

/// Its last commit is as long as the first one of its successor. So the file first seems to be
/// ahead, and the blocks that show more are forgotten by then. In the old state the file was left
/// until the process ended, and no move to this host was ever ready.
#[test]
fn a_file_that_seemed_to_be_ahead_is_looked_at_again() {
    let folder = tempfile::tempdir().unwrap();
    let first = host(folder.path(), Waits::Kept);
    let store = open(&first).unwrap();
    append_kept(&store, &first.replica);
    store.close().unwrap();
    let path = first.path.clone();
    drop((store, first));
    let mut third = host(folder.path(), Waits::Kept);
    third.path = folder.path().join("third");
    let store = third.claim(&options(), &|options| options.open(&third.path)).unwrap();
    append_kept(&store, &third.replica);
    append_kept(&store, &third.replica);
    let has_records = |block: &&SealedBlock| block.begin < block.end;
    let read = loop {
        let read = blocks(&third);
        if read.iter().filter(has_records).count() >= 3 {
            break read;
        }
    };
    let end = read.iter().filter(has_records).nth(1).unwrap().end;
    let lost = folder.path().join("lost");
    let ends_there = |bytes: usize| {
        std::fs::copy(&path, &lost).unwrap();
        let alone = options().open(&lost).unwrap();
        alone.append("log", vec![9; bytes]).unwrap().wait().unwrap();
        let there = alone.view().unwrap().lsn();
        alone.close().unwrap();
        there == end
    };
    assert!((1..100).any(ends_there), "no commit is as long");
    let (ahead, behind): (Vec<_>, Vec<_>) = read.into_iter().partition(|block| block.end <= end);
    for waits in [Waits::Kept, Waits::Local] {
        let mut former = host(folder.path(), waits);
        former.path.clone_from(&lost);
        let options = options();
        let mut file = Warm::new(&former, &options, 1);
        file.take(Followed::Begin { store: StoreId(store.info().unwrap().id), backup: None });
        file.take(Followed::Blocks(ahead.clone()));
        assert!(!file.is_cold());
        file.take(Followed::Blocks(behind.clone()));
        assert!(file.is_cold());
        // What was acknowledged locally stays for the takeover to look at.
        assert_eq!(file.cold_since.is_some(), waits == Waits::Kept);
        assert_eq!(aside(folder.path()), 0);
    }
}

/// In the old state each takeover failed.
#[test]
fn a_host_whose_file_cannot_be_opened_makes_it_anew() {
    let folder = tempfile::tempdir().unwrap();
    let first = host(folder.path(), Waits::Kept);
    let store = open(&first).unwrap();
    append_kept(&store, &first.replica);
    let mut second = host(folder.path(), Waits::Kept);
    second.path = folder.path().join("second");
    let damage = || std::fs::write(&second.path, [7; 100_000]).unwrap();
    damage();
    stand_by_until(&second, (false, true));
    stand_by_until(&second, (true, false));
    assert_eq!(aside(folder.path()), 1);
    damage();
    let mut local = host(folder.path(), Waits::Local);
    local.path.clone_from(&second.path);
    assert_eq!(stand_by(&local), (false, false));
    let error = local.claim(&options(), &|options| options.open(&local.path)).map(drop).unwrap_err();
    assert!(matches!(error, Error::Store(_)), "{error}");
    let store = second.claim(&options(), &|options| options.open(&second.path)).unwrap();
    assert_eq!(store.bounds("log").unwrap().next, 1);
    assert_eq!(aside(folder.path()), 2);
}

/// Somebody has named the wrong file, or the wrong place. In the old state the file was moved
/// aside.
#[test]
fn the_file_of_another_store_stays() {
    let folder = tempfile::tempdir().unwrap();
    let first = host(folder.path(), Waits::Kept);
    let store = open(&first).unwrap();
    append_kept(&store, &first.replica);
    let mut second = host(folder.path(), Waits::Kept);
    second.path = folder.path().join("second");
    options().open(&second.path).unwrap().close().unwrap();
    assert_eq!(stand_by(&second), (false, false));
    let error = second.claim(&options(), &|options| options.open(&second.path)).map(drop).unwrap_err();
    assert!(matches!(error, Error::OtherStore { .. }), "{error}");
    assert_eq!(aside(folder.path()), 0);
    append_kept(&store, &first.replica);
}

/// A newer version may have sealed a block that this one does not know.
#[test]
fn a_file_stays_if_a_block_of_the_log_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let first = host(folder.path(), Waits::Kept);
    let store = open(&first).unwrap();
    append_kept(&store, &first.replica);
    let mut second = host(folder.path(), Waits::Kept);
    second.path = folder.path().join("second");
    stand_by_until(&second, (true, false));
    for _ in 0..3 {
        append_kept(&store, &first.replica);
    }
    let mut blocks = loop {
        let read = blocks(&first);
        if read.len() >= 4 {
            break read;
        }
    };
    blocks.remove(blocks.len() - 2);
    let options = options();
    let mut file = Warm::new(&second, &options, 1);
    file.take(Followed::Begin { store: StoreId(store.info().unwrap().id), backup: None });
    file.take(Followed::Blocks(blocks));
    assert!(file.is_cold() && !file.begins_again());
    assert_eq!(aside(folder.path()), 0);
}

/// Files of which no new one is made while the gate is closed, and existing ones are opened only so
/// many times. It opens after a minute at most.
#[derive(Debug)]
struct Gate {
    is_closed: AtomicBool,
    opened: AtomicU64,
    let_in: AtomicU64,
    since: Instant,
}

impl Gate {
    fn new(is_closed: bool, let_in: u64) -> Arc<Self> {
        let (is_closed, let_in) = (AtomicBool::new(is_closed), AtomicU64::new(let_in));
        Arc::new(Self { is_closed, opened: AtomicU64::new(0), let_in, since: Instant::now() })
    }
}

impl Files for Gate {
    fn open(&self, path: &Path, mode: OpenMode, options: FileOptions) -> io::Result<Arc<dyn Volume>> {
        let is_early = || self.since.elapsed().as_secs() < 60;
        while matches!(mode, OpenMode::Create) && self.is_closed.load(Ordering::Acquire) && is_early() {
            std::thread::sleep(Duration::from_millis(1));
        }
        if matches!(mode, OpenMode::ReadWrite) {
            let before = self.opened.fetch_add(1, Ordering::AcqRel);
            while before >= self.let_in.load(Ordering::Acquire) && is_early() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        SystemFiles.open(path, mode, options)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        SystemFiles.exists(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        SystemFiles.link(from, to)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        SystemFiles.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        SystemFiles.remove(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        SystemFiles.sync_folder(path)
    }
}

/// The copy of a backup may take longer than the owner keeps the log behind it. In the old state
/// nothing was read meanwhile, and the copy was of no use.
#[test]
fn blocks_that_come_while_a_file_is_made_are_held() {
    let folder = tempfile::tempdir().unwrap();
    let first = host(folder.path(), Waits::Kept);
    let store = open(&first).unwrap();
    (0..3).for_each(|_| append_kept(&store, &first.replica));
    let read = blocks_with(&first, 3);
    let begin = Followed::Begin { store: StoreId(store.info().unwrap().id), backup: None };
    for is_taken_over in [false, true] {
        let mut second = host(folder.path(), Waits::Kept);
        second.path = folder.path().join(format!("second, {is_taken_over}"));
        let gate = Gate::new(true, u64::MAX);
        let options = options().files(gate.clone());
        let mut file = Warm::new(&second, &options, 1);
        file.take(begin.clone());
        for block in &read {
            file.take(Followed::Blocks(vec![block.clone()]));
            assert!(!file.is_cold() && !file.approach() && !second.path.exists());
        }
        gate.is_closed.store(false, Ordering::Release);
        if is_taken_over {
            // The takeover makes a file itself, and does not wait for this one.
            file.finish();
            assert!(!second.path.exists() || (1..=3).any(|next| has(&second, next)));
            continue;
        }
        let begin = Instant::now();
        while !file.approach() {
            assert!(begin.elapsed() < Duration::from_secs(60) && !file.is_cold());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(has(&second, 3));
        // It goes on with what comes later.
        file.take(Followed::Blocks(Vec::new()));
        assert!(file.approach() && !file.is_cold());
    }
    let names = std::fs::read_dir(folder.path()).unwrap();
    let names: Vec<_> = names.map(|found| found.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.iter().all(|name| !name.contains(".new") && !name.contains(".later")), "{names:?}");
}

/// The owner goes on without a pause: one block comes with each try. In the old state the file was
/// never made.
#[test]
fn a_file_is_made_although_each_moment_brings_a_block() {
    let folder = tempfile::tempdir().unwrap();
    let first = host(folder.path(), Waits::Kept);
    let store = open(&first).unwrap();
    (0..12).for_each(|_| append_kept(&store, &first.replica));
    let read = blocks_with(&first, 12);
    let (begin, rest) = read.split_at(1);
    let kept = Kept { store: store.info().unwrap().id, backup: None, blocks: begin.to_vec() };
    let gate = Gate::new(false, 0);
    let options = options().files(gate.clone());
    let mut making = Making::start(&options, &folder.path().join("second"), kept, || true).unwrap();
    let (mut rest, mut let_in) = (rest.iter(), 0);
    while !making.is_made().unwrap() {
        if gate.opened.load(Ordering::Acquire) > let_in {
            making.hold(rest.next().map_or(&[][..], std::slice::from_ref)).unwrap();
            let_in += 1;
            gate.let_in.store(let_in, Ordering::Release);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(making.holds() && rest.next().is_some(), "the caller takes the rest");
}
