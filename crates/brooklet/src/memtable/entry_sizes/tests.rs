use brooklet_io::Rng;

use super::*;

/// A model log; runs hold the entries before `stored`.
struct Log {
    sizes: Vec<u32>,
    first: u64,
    stored: u64,
}

impl Log {
    fn next(&self) -> u64 {
        self.sizes.len() as u64
    }

    fn bounds(&self) -> Bounds {
        Bounds { first: self.first, next: self.next() }
    }

    fn sum(&self, range: Range<u64>) -> u64 {
        self.sizes[range.start as usize..range.end as usize].iter().copied().map(u64::from).sum()
    }

    /// Reads missing sizes in chunks of seven entries, a few chunks at a time.
    fn look(&self, missing: &SizeQuery, chunks: u64) -> SizeAnswer {
        let (mut rest, mut sum, mut spans) = (missing.range.clone(), 0, Vec::new());
        for _ in 0..chunks {
            if rest.is_empty() || sum > missing.enough {
                break;
            }
            let at = if missing.newest { rest.end - 1 } else { rest.start };
            let range = rest.start.max(at / 7 * 7)..rest.end.min((at / 7 + 1) * 7);
            let sizes = &self.sizes[range.start as usize..range.end as usize];
            let mut span = Span::each(range.start, sizes.iter().copied().collect());
            sum += span.bytes;
            if sum <= missing.enough {
                span.forget_sizes();
            }
            spans.push(span);
            rest = if missing.newest { rest.start..range.start } else { range.end..rest.end };
        }
        SizeAnswer { missing: missing.clone(), spans }
    }

    fn check(&self, sizes: &EntrySizes, when: &str) {
        let mut at = None;
        for span in &sizes.spans {
            assert!(at.is_none_or(|at| at <= span.range.start), "{when}: {:?}", sizes.spans);
            assert!(!span.range.is_empty() && span.range.end <= self.next(), "{when}: {:?}", sizes.spans);
            assert_eq!(span.bytes, self.sum(span.range.clone()), "{when}: {:?}", sizes.spans);
            assert!(span.range.end <= sizes.recent || span.range.start >= sizes.recent, "{when}");
            at = Some(span.range.end);
        }
        let held: u64 = sizes.spans.iter().filter(|span| span.range.end > sizes.memory).map(Span::len).sum();
        assert!(held >= self.next() - sizes.memory.max(self.first), "{when}: {sizes:?}");
        assert!(sizes.memory <= self.stored, "{when}: entries from {} on are in memory only", self.stored);
    }
}

/// Asks until all needed sizes were looked up. Other callers may look up sizes too, and get their
/// results late.
fn ask<T>(
    log: &Log,
    sizes: &mut EntrySizes,
    late: &mut Vec<SizeAnswer>,
    rng: &mut Rng,
    question: impl Fn(&EntrySizes) -> Result<T, SizeQuery>,
) -> T {
    let held = Some(log.sum(log.first..log.next()));
    for _ in 0..1000 {
        sizes.begin(log.first);
        let missing = match question(sizes) {
            Ok(answer) => return answer,
            Err(missing) => missing,
        };
        assert!(!missing.range.is_empty() && missing.range.end <= log.stored, "{missing:?}");
        let found = log.look(&missing, 1 + rng.below(9));
        if rng.percent(20) {
            late.push(log.look(&missing, 1 + rng.below(9)));
        }
        sizes.learn(found, log.bounds(), held);
        if rng.percent(20) && !late.is_empty() {
            let found = late.swap_remove(rng.below(late.len() as u64) as usize);
            sizes.learn(found, log.bounds(), held);
        }
    }
    panic!("no answer");
}

fn story(seed: u64) {
    let rng = &mut Rng::new(seed);
    let sizes: Vec<u32> = (0..rng.below(300)).map(|_| rng.below(50) as u32).collect();
    let stored = sizes.len() as u64;
    let mut log = Log { sizes, first: 0, stored };
    let (mut sizes, mut late) = (EntrySizes::new(0, stored), Vec::new());
    for step in 0..150 {
        let when = format!("seed {seed}, step {step}");
        let (bounds, next) = (log.bounds(), log.next());
        let held = log.sum(log.first..next);
        let asked = log.first + rng.below(bounds.len() + 1);
        match rng.below(8) {
            0 | 1 => {
                let size = rng.below(50) as u32;
                assert!(sizes.apply(Effect::Append(next), size).is_none());
                log.sizes.push(size);
            }
            2 => {
                let left =
                    ask(&log, &mut sizes, &mut late, rng, |t| t.left(bounds, held, bounds.first, asked));
                assert_eq!(left, log.sum(bounds.first..asked), "{when}");
                sizes.truncate(asked);
                log.sizes.truncate(asked as usize);
                log.stored = log.stored.min(asked);
            }
            3 => {
                let left = ask(&log, &mut sizes, &mut late, rng, |t| t.left(bounds, held, asked, next));
                assert_eq!(left, log.sum(asked..next), "{when}");
                log.first = asked;
                sizes.begin(asked);
            }
            4 => {
                // A refused commit.
                let before = sizes.spans.clone();
                let cut = if rng.percent(30) { sizes.truncate(0) } else { sizes.truncate(asked) };
                let from = sizes.spans.back().map_or(sizes.memory, |last| last.range.end);
                sizes.join(from, [9; 3]);
                sizes.truncate(from);
                sizes.restore(cut);
                let (kept, before): (u64, u64) = (
                    sizes.spans.iter().map(|span| span.bytes).sum(),
                    before.iter().map(|span| span.bytes).sum(),
                );
                assert_eq!(kept, before, "{when}");
            }
            5 => {
                // Runs hold the entries that were frozen before.
                log.stored = sizes.recent;
                sizes.freeze(next);
            }
            _ => {
                let (enough, newest) = (rng.below(2000), rng.percent(50));
                let range = bounds.first..next;
                let (at, sum) =
                    ask(&log, &mut sizes, &mut late, rng, |t| t.walk(range.clone(), newest, enough));
                let part = if newest { at..next } else { bounds.first..at };
                assert_eq!(sum, log.sum(part.clone()), "{when}");
                let less = if newest { (at + 1).min(next)..next } else { bounds.first..at.max(1) - 1 };
                assert!(part.end - part.start == bounds.len() || sum > enough, "{when}");
                assert!(part.is_empty() || sum <= enough || log.sum(less) <= enough, "{when}");
            }
        }
        log.check(&sizes, &when);
        assert!(sizes.spans.len() <= MOST + 8, "{when}: {} spans", sizes.spans.len());
    }
}

/// After any sequence of truncations, appends, trims, freezes and look-ups, the known sizes are
/// correct and sums are found.
#[test]
fn a_tally_knows_what_the_log_holds() {
    (0..400).for_each(story);
}

/// A log of a million entries is counted, after a count from the other end. Few spans hold the
/// results.
#[test]
fn what_was_learned_takes_little() {
    let log = Log { sizes: vec![100; 1_000_000], first: 0, stored: 1_000_000 };
    let mut sizes = EntrySizes::new(0, log.stored);
    for (newest, enough, place) in [(true, 30_000_000, 699_999), (false, 60_000_000, 600_001)] {
        let counted = loop {
            match sizes.walk(0..log.next(), newest, enough) {
                Ok(counted) => break counted,
                Err(missing) => sizes.learn(log.look(&missing, 500), log.bounds(), None),
            }
            assert!(sizes.memory() < 4 << 10, "{} bytes", sizes.memory());
        };
        assert_eq!(counted, (place, enough + 100));
    }
}

/// Regression: a truncation and its undo moved all known sizes of the log.
#[test]
fn what_is_cut_off_is_all_that_moves() {
    let mut sizes = EntrySizes::new(0, 0);
    sizes.join(0, vec![1; 1000]);
    sizes.freeze(1000);
    sizes.join(1000, vec![2; 1000]);
    let before = sizes.spans.clone();
    for next in [1999, 1500, 1000, 999, 0] {
        let cut = sizes.truncate(next);
        assert_eq!(cut.spans.iter().map(Span::len).sum::<u64>(), 2000 - next);
        sizes.restore(cut);
        assert_eq!(sizes.spans, before, "{next}");
    }
}

/// Damaged entries get their share of the unknown bytes, and are dropped like other entries.
#[test]
fn what_is_damaged_has_its_share() {
    let mut sizes = EntrySizes::new(0, 100);
    sizes.join(100, [40; 10]);
    let bounds = Bounds { first: 0, next: 110 };
    let missing = sizes.walk(0..109, false, 99).unwrap_err();
    assert_eq!((missing.range.clone(), missing.enough), (0..100, 99));
    let spans = vec![Span::each(0, [10; 5].into()), Span::damaged(5..45)];
    sizes.learn(SizeAnswer { missing, spans }, bounds, Some(50 + 950 + 400));
    // 95 entries have 950 bytes. 40 entries are damaged.
    assert_eq!(sizes.walk(0..45, false, u64::MAX).unwrap(), (45, 450));
    assert_eq!(sizes.walk(0..109, false, 99).unwrap(), (10, 100));
    assert_eq!(sizes.left(bounds, 1400, 30, 110).unwrap(), 1100);
    sizes.begin(30);
    assert_eq!(sizes.walk(30..45, false, u64::MAX).unwrap(), (45, 150));
    // In a log that is counted for the first time, the share of damaged entries is unknown.
    let mut sizes = EntrySizes::new(1, 10);
    let missing = sizes.walk(0..10, true, u64::MAX).unwrap_err();
    sizes.learn(
        SizeAnswer { missing, spans: vec![Span::damaged(0..10)] },
        Bounds { first: 0, next: 10 },
        None,
    );
    assert_eq!(sizes.walk(0..10, true, 0).unwrap(), (0, 0));
}
