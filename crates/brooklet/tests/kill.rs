//! SIGKILL of a real process at random moments: while it opens, recovers, appends, checkpoints and
//! compacts.
//!
//! The victim is this very test binary. It prints a line for every acknowledgement after it was
//! given; the parent, which survives, keeps those lines, kills the victim and looks at what is
//! left. Every payload follows from its log and number, so the parent knows every byte without
//! having seen it. `BROOKLET_KILLS` sets how many rounds are run, `BROOKLET_KILL_DIR` on which file
//! system.
//!
//! A reader in the parent reads the store beside the victim, before, while and after the victim
//! dies.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brooklet::io::{Rng, system_seed};
use brooklet::{Bounds, Commit, Error, Options, Store};

const VICTIM: &str = "BROOKLET_VICTIM";
const WRITERS: u64 = 4;
const LOGS: u64 = 40;
/// Entries that a log keeps at least.
const KEPT: u64 = 20;

fn options() -> Options {
    // Everything is small, so that checkpoints and compactions go on all the time.
    Options::new().ring_size(512 << 10).memory_budget(512 << 10).max_payload(32 << 10)
}

fn payload(log: &str, seq: u64) -> Vec<u8> {
    let mut rng = Rng::new(log.bytes().fold(seq, |h, b| h.wrapping_mul(31).wrapping_add(b.into())));
    let len = if rng.percent(2) { rng.below(20_000) } else { rng.below(300) } as usize;
    (0..len).map(|i| if i % 3 == 0 { rng.next() as u8 } else { b'x' }).collect()
}

/// The log in which a writer counts its commits.
fn order(writer: u64) -> String {
    format!("w{writer}/order")
}

/// Appends until it is killed.
fn victim(path: &Path) {
    let store = options().open(path).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let store = &store;
            scope.spawn(move || write(store, writer));
        }
    });
}

fn write(store: &Store, writer: u64) {
    let mut rng = Rng::new(system_seed());
    let next = |log: &str| store.bounds(log).map_or(0, |b| b.next);
    loop {
        let log = format!("w{writer}/{}", rng.below(LOGS));
        let (twin, order) = (format!("{log}/twin"), order(writer));
        let (seq, count) = (next(&log), next(&order));
        let (bytes, twin_bytes) = (payload(&log, seq), payload(&twin, seq));
        let mut commit = Commit::new();
        commit.expect_next(&log, seq).append(&log, &bytes).append(&twin, &twin_bytes);
        commit.expect_next(&order, count).append(&order, payload(&order, count)).keep_last(&order, KEPT);
        if rng.percent(20) {
            commit.keep_last(&log, KEPT).keep_last(&twin, KEPT);
        }
        store.commit(&commit).unwrap().wait().unwrap();
        let mut out = std::io::stdout().lock();
        writeln!(out, "ack {log} {seq}").unwrap();
        out.flush().unwrap();
    }
}

/// Reads everything: each log is whole, and each writer's commits are whole and without a gap.
/// Returns the number of entries, and the bounds of the logs.
fn read_all(store: &Store) -> Result<(u64, BTreeMap<String, Bounds>), Error> {
    let (mut entries, mut logs) = (0, BTreeMap::new());
    for log in store.scan("")? {
        let log = log?;
        let name = String::from_utf8(log.key).unwrap();
        let mut seq = log.bounds.first;
        for entry in store.read(&name, ..)? {
            let entry = entry?;
            assert_eq!(entry.seq, seq, "{name}: an entry is missing");
            assert!(entry.payload == payload(&name, entry.seq), "{name} {seq}: wrong bytes");
            (seq, entries) = (seq + 1, entries + 1);
        }
        assert_eq!(seq, log.bounds.next, "{name}: its end is missing");
        logs.insert(name, log.bounds);
    }
    for writer in 0..WRITERS {
        let of_writer = |log: &u64| format!("w{writer}/{log}");
        let mut commits = 0;
        for name in (0..LOGS).map(|log| of_writer(&log)) {
            let (log, twin) = (logs.get(&name), logs.get(&format!("{name}/twin")));
            assert_eq!(log, twin, "half a commit of {name}");
            commits += log.map_or(0, |log| log.next);
        }
        let counted = logs.get(&order(writer)).map_or(0, |order| order.next);
        assert_eq!(commits, counted, "commits of writer {writer}");
    }
    Ok((entries, logs))
}

/// Everything acknowledged is there, in order and whole, and twins are alike.
fn inspect(path: &Path, acked: &mut BTreeMap<String, u64>) -> u64 {
    // The victim's lock goes with its last write, which a busy disk may end late.
    let is_free = |opened: &Result<_, _>| !matches!(opened, Err(Error::Locked { .. }));
    let store = (0..600).map(|_| options().open(path)).find(is_free).expect("the lock goes").unwrap();
    for (log, last) in acked.iter_mut() {
        let bounds = store.bounds(log).unwrap();
        assert!(bounds.next > *last, "{log}: entry {last} was acknowledged, and is lost: {bounds:?}");
        assert!(bounds.first <= bounds.next.saturating_sub(KEPT), "{log}: {bounds:?} lost its head");
        assert!(bounds.next <= *last + 2, "{log}: {bounds:?} holds more than was sent after {last}");
        // What one opening has shown, no later one may miss.
        *last = bounds.next - 1;
    }
    let entries = read_all(&store).unwrap().0;
    // Let go as a killed process would, so that the victim has to recover, too.
    store.abandon();
    entries
}

/// Runs a victim until it has printed so many acknowledgements, and a little longer; gives how many
/// it printed.
fn round(path: &Path, acks: u64, longer: Duration, acked: &mut BTreeMap<String, u64>) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "nothing_acknowledged_is_lost_by_a_kill", "--nocapture"])
        .env(VICTIM, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = child.stdout.take().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let reader = std::thread::Builder::new().spawn(move || {
        // A line without its end was cut by the kill; the acknowledgement had been given, but who
        // knows to what.
        let lines = BufReader::new(stdout).split(b'\n').map_while(Result::ok);
        let lines = lines.filter_map(|line| String::from_utf8(line).ok());
        let acks = |line: &str| line.contains("ack ").then(|| tell.send(()).ok());
        lines.inspect(|line| _ = acks(line)).collect::<Vec<_>>()
    });
    let reader = reader.unwrap();
    (0..acks).for_each(|_| told.recv_timeout(Duration::from_secs(60)).expect("the victim writes"));
    // Not by parking: whoever had a thread of ours to wait for may have left a wake-up behind.
    let (_nobody_sends, silence) = std::sync::mpsc::channel::<()>();
    let _ = silence.recv_timeout(longer);
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert!(
        !status.success() && status.code().is_none(),
        "the victim did not live until it was killed: {status}"
    );
    let mut count = 0;
    for line in reader.join().unwrap() {
        let mut words = line.split(' ').skip_while(|word| *word != "ack").skip(1);
        if let (Some(log), Some(Ok(seq))) = (words.next(), words.next().map(str::parse)) {
            acked.insert(log.to_owned(), seq);
            count += 1;
        }
    }
    count
}

#[cfg(unix)]
#[test]
fn nothing_acknowledged_is_lost_by_a_kill() {
    if let Some(path) = std::env::var_os(VICTIM) {
        return victim(Path::new(&path));
    }
    let rounds: u64 =
        std::env::var("BROOKLET_KILLS").map_or(200, |n| n.parse().expect("BROOKLET_KILLS is a number"));
    let dir =
        std::env::var_os("BROOKLET_KILL_DIR").map_or_else(tempfile::tempdir, tempfile::tempdir_in).unwrap();
    let mut rng = Rng::new(system_seed());
    let (mut acks, mut entries, mut compacted) = (0, 0, 0);
    for store in 0..rounds.div_ceil(25) {
        let path = dir.path().join(format!("store-{store}"));
        drop(options().open(&path).unwrap());
        let mut acked = BTreeMap::new();
        for _ in 0..25.min(rounds - store * 25) {
            // However slow the machine is: some die while they open, some in full swing.
            let wanted = if rng.percent(30) { 0 } else { 1 + rng.below(500) };
            acks += round(&path, wanted, Duration::from_millis(2 + rng.below(10)), &mut acked);
            entries += inspect(&path, &mut acked);
        }
        let store = options().read_only(true).open(&path).unwrap();
        compacted += u64::from(store.info().unwrap().runs.iter().any(|run| run.level > 0));
        drop(store);
        let report = brooklet::check(&path, brooklet::Progress::ignore).unwrap();
        assert!(report.is_sound(), "{:?}", report.findings);
        std::fs::remove_file(&path).unwrap();
    }
    println!(
        "{rounds} kills, {acks} acknowledgements, {entries} entries read back, {compacted} stores with merged runs"
    );
    assert!(compacted > 0 || rounds < 100, "no compaction was ever met");
}

/// Ends the reader, also after a panic.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Opens the store beside its writer, again and again until `over`, and reads everything. Each
/// opening shows at least as much as the one before it. Returns the last bounds, and the numbers of
/// whole looks and of looks that came too late.
fn read_beside(path: &Path, over: &AtomicBool) -> (BTreeMap<String, Bounds>, u64, u64) {
    let (mut seen, mut looks, mut late) = (BTreeMap::new(), 0, 0);
    loop {
        // The last look begins after the kill.
        let is_last = over.load(Ordering::Acquire);
        match options().beside_writer(true).open(path).and_then(|store| read_all(&store)) {
            Ok((_, logs)) => {
                for (name, Bounds { first, next }) in &seen {
                    let now = logs.get(name).unwrap_or_else(|| panic!("{name} is gone"));
                    assert!(now.first >= *first && now.next >= *next, "{name} went back to {now:?}");
                }
                (seen, looks) = (logs, looks + 1);
                if is_last {
                    return (seen, looks, late);
                }
            }
            // The only error that a reader beside a writer may meet.
            Err(Error::Replaced { .. }) => late += 1,
            Err(error) => panic!("a reader beside the writer: {error}"),
        }
    }
}

/// A reader beside the writer shows a prefix of the commits with the right bytes, whenever the
/// writer is killed: in the middle of a write, a checkpoint or a merge.
#[cfg(unix)]
#[test]
fn a_reader_beside_a_killed_writer_reads_a_prefix() {
    let kills =
        std::env::var("BROOKLET_KILLS").map_or(200, |n| n.parse().expect("BROOKLET_KILLS is a number"));
    let rounds = u64::div_ceil(kills, 5);
    let dir =
        std::env::var_os("BROOKLET_KILL_DIR").map_or_else(tempfile::tempdir, tempfile::tempdir_in).unwrap();
    let path = dir.path().join("store");
    drop(options().open(&path).unwrap());
    let (mut rng, mut acked) = (Rng::new(system_seed()), BTreeMap::new());
    let (mut acks, mut looks, mut late) = (0, 0, 0);
    for _ in 0..rounds {
        let over = AtomicBool::new(false);
        let seen = std::thread::scope(|scope| {
            let reader = scope.spawn(|| read_beside(&path, &over));
            let ends = Ends(&over);
            let longer = Duration::from_millis(2 + rng.below(10));
            acks += round(&path, 1 + rng.below(500), longer, &mut acked);
            drop(ends);
            let (seen, whole, too_late) = reader.join().unwrap();
            (looks, late) = (looks + whole, late + too_late);
            seen
        });
        inspect(&path, &mut acked);
        // Everything that was shown stays.
        let store = options().read_only(true).open(&path).unwrap();
        for (name, shown) in seen {
            let there = store.bounds(&name).unwrap();
            assert!(there.next >= shown.next, "{name}: {shown:?} was shown, and {there:?} is left");
        }
    }
    println!("{rounds} kills, {acks} acknowledgements, {looks} looks of a reader, {late} came too late");
}
