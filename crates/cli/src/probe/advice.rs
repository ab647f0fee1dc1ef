//! The settings that follow from what was measured: plain arithmetic on the cells.

use std::time::Duration;

use brooklet::io::SECTOR;
use serde::Serialize;

use super::measure::Cell;
use super::plan::Way;
use super::timer::{Timer, Wait};

/// A setting, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// The call to make on the store's options, or what to look for if there is none to make.
    pub set: String,
    /// One sentence.
    pub why: String,
}

/// A block size and depth of the ring that were measured.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Choice {
    cell: Cell,
    best: f64,
}

/// What follows. Nothing where no durable writes were measured.
pub fn advise(cells: &[Cell], timers: &[Timer]) -> Vec<Setting> {
    let Some(choice) = choose(cells) else { return Vec::new() };
    let mut settings = block_and_depth(&choice);
    settings.extend(durable_by(cells));
    settings.push(linger(cells, &choice, timers));
    settings.extend(operations_cap(cells));
    settings.extend(bytes_cap(cells));
    settings.extend(interval_timer(timers));
    settings
}

/// Of the ways that reach nine tenths of the best durable bandwidth, the one that one waits for least.
fn choose(cells: &[Cell]) -> Option<Choice> {
    let durable = || cells.iter().filter(|cell| matches!(cell.way, Way::Durable | Way::Window));
    let best = durable().map(|cell| cell.mb_per_s).max_by(f64::total_cmp)?;
    let good = durable().filter(|cell| cell.mb_per_s >= 0.9 * best);
    let cell = good.min_by(|a, b| a.p50_us.total_cmp(&b.p50_us))?;
    Some(Choice { cell: *cell, best })
}

fn block_and_depth(Choice { cell, best }: &Choice) -> Vec<Setting> {
    let (kib, depth) = (cell.size >> 10, cell.depth);
    let block = Setting {
        set: format!(".block_size({kib} << 10)"),
        why: format!(
            "{kib} KiB, {depth} at once, make {:.0} MB/s of the best {best:.0}, and nothing that fast takes less \
             than its {:.0} µs; the most there is to gain, below which the store finds out by itself.",
            cell.mb_per_s, cell.p50_us
        ),
    };
    let why = match depth {
        1 => "One write at a time is enough for that; more would only wait behind each other.",
        _ => "With fewer in flight the device idles between writes; with more they wait behind each other.",
    };
    vec![block, Setting { set: format!(".depth({depth})"), why: why.into() }]
}

/// Each write durable by itself, or a flush for a window of them: whichever carries more, by a tenth at least, since
/// the first gives each write its own, shorter wait.
fn durable_by(cells: &[Cell]) -> Option<Setting> {
    let best = |way: Way| {
        let of_way = cells.iter().filter(|cell| cell.way == way && cell.size <= 1 << 20);
        of_way.map(|cell| cell.mb_per_s).max_by(f64::total_cmp)
    };
    let lone = |way: Way| find(cells, way, SECTOR, 1).map(|cell| cell.p50_us);
    let (each, window) = (best(Way::Durable)?, best(Way::Window)?);
    let (each_lone, window_lone) = (lone(Way::Durable)?, lone(Way::Window)?);
    let by_window = window > 1.1 * each && window_lone < 1.25 * each_lone;
    Some(Setting {
        set: format!("FileOptions {{ durable: Durable::{}, .. }}", if by_window { "Flush" } else { "Dsync" }),
        why: format!(
            "Each by itself carries {each:.0} MB/s and takes {each_lone:.0} µs for a lone 4 KiB, a flush by window \
             {window:.0} MB/s and {window_lone:.0} µs."
        ),
    })
}

/// Twice what a full block takes alone: the next one fills while one is written, and who waits longer gains nothing by it.
fn linger(cells: &[Cell], Choice { cell, .. }: &Choice, timers: &[Timer]) -> Setting {
    let alone = find(cells, cell.way, cell.size, 1).unwrap_or(cell);
    let micros = (2.0 * alone.p50_us / 100.0).ceil() * 100.0;
    let micros = micros.clamp(200.0, 10_000.0);
    let late = timers.iter().find(|timer| timer.wait == Wait::Sleep).map_or(0.0, |timer| timer.p99_late_us);
    let set = format!(".linger(Duration::from_micros({micros:.0}))");
    let why = if late > micros {
        format!(
            "Twice a block's write; but a sleep ends up to {late:.0} µs late here, and so do appends that nobody \
             waits for."
        )
    } else {
        "Twice a block's write: an append that nobody waits for gets company, and hardly waits longer than it writes."
            .into()
    };
    Setting { set, why }
}

/// A volume that is metered by operations does as many small as middling ones, however many are in flight, and reads no
/// more of them than it writes. (A disk that syncs one write after the other is slow to write, and not to read.)
fn operations_cap(cells: &[Cell]) -> Option<Setting> {
    let rate = |way: Way| {
        let small = cells.iter().filter(|cell| cell.way == way && cell.size <= 64 << 10 && cell.depth >= 4);
        flat(&small.map(Cell::per_second).collect::<Vec<_>>(), 9, 1.15)
    };
    let rate = flat(&[rate(Way::Durable)?, rate(Way::Read)?], 2, 1.15)?;
    if rate > MOST_PER_SECOND {
        return None;
    }
    let interval = Duration::from_secs_f64(1.0 / rate);
    Some(Setting {
        set: format!(".write_interval(Duration::from_micros({}))", interval.as_micros()),
        why: format!(
            "From 4 to 64 KiB and from 4 to 16 in flight it takes the same {rate:.0} writes and reads a second, as a \
             metered volume does; fewer, fuller writes carry more."
        ),
    })
}

/// Operations a second beyond which an interval is shorter than a timer is exact, and more likely to be the processor's
/// limit than the volume's.
const MOST_PER_SECOND: f64 = 20_000.0;

/// A volume that is metered by bytes reads no faster than it writes, at any size and depth.
fn bytes_cap(cells: &[Cell]) -> Option<Setting> {
    let large = |way: Way| -> Vec<f64> {
        let of_way = cells.iter().filter(|cell| cell.way == way && cell.size >= 256 << 10 && cell.depth >= 2);
        of_way.map(|cell| cell.mb_per_s).collect()
    };
    let (writes, reads) = (flat(&large(Way::Durable), 4, 1.1)?, flat(&large(Way::Read), 4, 1.1)?);
    let rate = flat(&[writes, reads], 2, 1.1)?;
    Some(Setting {
        set: format!(".write_rate({rate:.0}_000_000)"),
        why: "Large writes and reads get the same at every size and depth, as on a metered volume; asking for more only \
              makes queues."
            .into(),
    })
}

/// Whether an exact interval needs a thread that watches the clock.
fn interval_timer(timers: &[Timer]) -> Option<Setting> {
    let of = |wait: Wait| timers.iter().find(|timer| timer.wait == wait);
    let (sleep, spin) = (of(Wait::ExactSleep)?, of(Wait::SleepThenSpin)?);
    if sleep.p99_late_us <= EXACT_US {
        return None;
    }
    Some(Setting {
        set: format!("exact intervals: sleep, and watch the clock for the last {:.0} µs", spin.spin_us),
        why: format!(
            "Even with exact timers a sleep ends up to {:.0} µs late (p99), one that spins at the end {:.0} µs.",
            sleep.p99_late_us, spin.p99_late_us
        ),
    })
}

/// How late a timer for least intervals may be, in microseconds.
const EXACT_US: f64 = 50.0;

fn find(cells: &[Cell], way: Way, size: usize, depth: usize) -> Option<&Cell> {
    cells.iter().find(|cell| cell.way == way && cell.size == size && cell.depth == depth)
}

/// The middle of at least `count` figures of which none is more than `spread` times another.
fn flat(figures: &[f64], count: usize, spread: f64) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (least, most) = (*sorted.first()?, *sorted.last()?);
    (sorted.len() >= count && most <= spread * least).then(|| sorted[sorted.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cells of a device: microseconds of one operation, and how many MB and operations a second it takes at most.
    fn device(way: Way, micros: impl Fn(usize) -> f64, most_mb: f64, most_per_second: f64) -> Vec<Cell> {
        let mut cells = Vec::new();
        for size in super::super::plan::SIZES.into_iter().skip(1) {
            for &depth in way.depths() {
                let free = depth as f64 * size as f64 / micros(size);
                let mb_per_s = free.min(most_mb).min(most_per_second * size as f64 / 1e6);
                let p50_us = depth as f64 * size as f64 / mb_per_s;
                cells.push(Cell { way, size, depth, samples: 100, p50_us, p99_us: 2.0 * p50_us, mb_per_s });
            }
        }
        cells
    }

    fn sets(cells: &[Cell], timers: &[Timer]) -> String {
        let settings = advise(cells, timers);
        assert!(settings.iter().all(|s| s.why.ends_with('.')), "{settings:?}");
        settings.into_iter().map(|s| s.set).collect::<Vec<_>>().join("; ")
    }

    fn timer(wait: Wait, late: f64) -> Timer {
        Timer { wait, asked_us: 333.0, spin_us: 80.0, samples: 9, p50_late_us: late / 2.0, p99_late_us: late }
    }

    #[test]
    fn a_fast_disk_gets_the_least_latency_that_fills_it() {
        let micros = |size: usize| 30.0 + size as f64 / 500.0;
        let mut cells = device(Way::Durable, micros, 2000.0, 30_000.0);
        cells.extend(device(Way::Window, |size| 50.0 + micros(size), 2000.0, 30_000.0));
        cells.extend(device(Way::Read, micros, 5000.0, 30_000.0));
        let set = sets(&cells, &[]);
        // 64 KiB take 161 µs alone; eight in flight make all there is. So would 4 KiB, but for their number.
        assert_eq!(
            set,
            ".block_size(64 << 10); .depth(8); FileOptions { durable: Durable::Dsync, .. }; .linger(Duration::from_micros(400))"
        );
    }

    #[test]
    fn a_disk_with_dear_flushes_gets_one_for_each_window() {
        let mut cells = device(Way::Durable, |size| 1000.0 + size as f64 / 500.0, 300.0, 1000.0);
        cells.extend(device(Way::Window, |size| 1000.0 + size as f64 / 500.0, 500.0, 1e9));
        let set = sets(&cells, &[]);
        assert!(set.contains("Durable::Flush"), "{set}");
        assert!(!set.contains("interval"), "{set}");
    }

    #[test]
    fn a_metered_volume_is_known_by_its_flat_figures() {
        let mut cells = device(Way::Durable, |_| 500.0, 125.0, 3000.0);
        cells.extend(device(Way::Window, |_| 700.0, 125.0, 3000.0));
        cells.extend(device(Way::Read, |_| 400.0, 125.0, 3000.0));
        let set = sets(&cells, &[]);
        assert!(set.contains(".write_rate(125_000_000)"), "{set}");
        // 64 KiB are held back by the bytes: the operations are not flat up to there. With more bytes they are.
        assert!(!set.contains("interval"), "{set}");
        let mut cells = device(Way::Durable, |_| 500.0, 1000.0, 3000.0);
        cells.extend(device(Way::Window, |_| 700.0, 1000.0, 3000.0));
        cells.extend(device(Way::Read, |_| 400.0, 1000.0, 3000.0));
        let set = sets(&cells, &[]);
        assert!(set.contains(".write_interval(Duration::from_micros(333))"), "{set}");
        assert!(!set.contains("write_rate"), "{set}");
    }

    #[test]
    fn a_disk_that_takes_its_time_is_not_metered() {
        let mut cells = device(Way::Durable, |_| 8000.0, 1000.0, 125.0);
        cells.extend(device(Way::Window, |_| 8000.0, 150.0, 1e9));
        cells.extend(device(Way::Read, |_| 100.0, 150.0, 1e9));
        assert!(!sets(&cells, &[]).contains("interval"));
    }

    #[test]
    fn late_timers_are_told() {
        let cells = device(Way::Durable, |_| 50.0, 2000.0, 1e9);
        let spin = timer(Wait::SleepThenSpin, 2.0);
        let late = [timer(Wait::Sleep, 4000.0), timer(Wait::ExactSleep, 3000.0), spin];
        assert!(sets(&cells, &late).contains("watch the clock for the last 80 µs"));
        assert!(advise(&cells, &late).iter().any(|s| s.why.contains("4000 µs late here")));
        let exact = [timer(Wait::Sleep, 90.0), timer(Wait::ExactSleep, 20.0), spin];
        assert!(!sets(&cells, &exact).contains("clock"));
    }

    #[test]
    fn nothing_follows_from_reads() {
        assert_eq!(advise(&device(Way::Read, |_| 50.0, 2000.0, 1e9), &[timer(Wait::Sleep, 90.0)]), []);
    }
}
