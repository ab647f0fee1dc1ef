//! The settings that follow from what was measured: plain arithmetic on the cells.
//!
//! Most of what is measured needs no setting. A store tries both ways of durable writes when it is
//! opened, and block sizes, depths and codecs under load. What it cannot find out by itself is what
//! a metered volume is paid for, and it looks for block sizes only up to a limit.

use std::time::Duration;

use brooklet_wal::Config;
use serde::Serialize;

use super::measure::Cell;
use super::plan::Way;

/// A setting, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// The call to make on the store's options.
    pub set: String,
    /// One sentence.
    pub why: String,
}

/// What follows. Nothing where no durable writes were measured, or where the store finds all that
/// matters by itself.
pub fn advise(cells: &[Cell]) -> Vec<Setting> {
    [larger_blocks(cells), operations_cap(cells), bytes_cap(cells)].into_iter().flatten().collect()
}

/// Blocks over the default limit, where they carry a tenth more than any below it.
fn larger_blocks(cells: &[Cell]) -> Option<Setting> {
    let limit = Config::default().block_size;
    let durable = |cell: &&Cell| matches!(cell.way, Way::Durable | Way::Window);
    let best = |large: bool| {
        let cells = cells.iter().filter(durable).filter(|cell| (cell.size > limit) == large);
        cells.max_by(|a, b| a.mb_per_s.total_cmp(&b.mb_per_s))
    };
    let (within, beyond) = (best(false)?, best(true)?);
    (beyond.mb_per_s > 1.1 * within.mb_per_s).then(|| Setting {
        set: format!(".block_size({} << 20)", beyond.size >> 20),
        why: format!(
            "Blocks of {} MiB carry {:.0} MB/s, those up to the default limit of {} MiB only {:.0}.",
            beyond.size >> 20,
            beyond.mb_per_s,
            limit >> 20,
            within.mb_per_s
        ),
    })
}

/// A volume that is metered by operations does as many small as middling ones, however many are in
/// flight, and reads no more of them than it writes. (A disk that syncs one write after the other
/// is slow to write, and not to read.)
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

/// Operations a second beyond which an interval is shorter than a timer is exact, and more likely
/// to be the processor's limit than the volume's.
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
        set: format!(".write_rate({:.0}_000_000)", rate.max(1.0)),
        why: "Large writes and reads get the same at every size and depth, as on a metered volume; asking for more only \
              makes queues."
            .into(),
    })
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

    /// Cells of a device: microseconds of one operation, and how many MB and operations a second it
    /// takes at most.
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

    fn sets(cells: &[Cell]) -> String {
        let settings = advise(cells);
        assert!(settings.iter().all(|s| s.why.ends_with('.')), "{settings:?}");
        settings.into_iter().map(|s| s.set).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn nothing_is_to_be_set_for_what_the_store_finds_by_itself() {
        let micros = |size: usize| 30.0 + size as f64 / 500.0;
        let mut cells = device(Way::Durable, micros, 2000.0, 30_000.0);
        cells.extend(device(Way::Window, |size| 50.0 + micros(size), 2000.0, 30_000.0));
        cells.extend(device(Way::Read, micros, 5000.0, 30_000.0));
        assert_eq!(sets(&cells), "");
        // Flushes are dear: a window of writes shares one.
        let mut cells = device(Way::Durable, |size| 1000.0 + size as f64 / 500.0, 300.0, 1000.0);
        cells.extend(device(Way::Window, |size| 1000.0 + size as f64 / 500.0, 500.0, 1e9));
        assert_eq!(sets(&cells), "");
    }

    /// A device that is slow to start each write, and quick to go on.
    #[test]
    fn a_limit_on_blocks_that_holds_the_device_back_is_raised() {
        let mut cells = device(Way::Durable, |_| 20_000.0, 1000.0, 200.0);
        cells.extend(device(Way::Window, |_| 20_000.0, 1000.0, 200.0));
        assert_eq!(sets(&cells), ".block_size(4 << 20)");
        assert!(
            advise(&cells)[0]
                .why
                .contains("carry 839 MB/s, those up to the default limit of 1 MiB only 210.")
        );
        let close = device(Way::Durable, |_| 20_000.0, 220.0, 200.0);
        assert_eq!(sets(&close), "", "less than a tenth is not worth it");
    }

    #[test]
    fn a_metered_volume_is_known_by_its_flat_figures() {
        let mut cells = device(Way::Durable, |_| 500.0, 125.0, 3000.0);
        cells.extend(device(Way::Window, |_| 700.0, 125.0, 3000.0));
        cells.extend(device(Way::Read, |_| 400.0, 125.0, 3000.0));
        let set = sets(&cells);
        assert!(set.contains(".write_rate(125_000_000)"), "{set}");
        // 64 KiB are held back by the bytes: the operations are not flat up to there. With more
        // bytes they are.
        assert!(!set.contains("interval"), "{set}");
        let mut cells = device(Way::Durable, |_| 500.0, 1000.0, 3000.0);
        cells.extend(device(Way::Window, |_| 700.0, 1000.0, 3000.0));
        cells.extend(device(Way::Read, |_| 400.0, 1000.0, 3000.0));
        let set = sets(&cells);
        assert!(set.contains(".write_interval(Duration::from_micros(333))"), "{set}");
        assert!(!set.contains("write_rate"), "{set}");
    }

    #[test]
    fn a_disk_that_takes_its_time_is_not_metered() {
        let mut cells = device(Way::Durable, |_| 8000.0, 1000.0, 125.0);
        cells.extend(device(Way::Window, |_| 8000.0, 150.0, 1e9));
        cells.extend(device(Way::Read, |_| 100.0, 150.0, 1e9));
        assert!(!sets(&cells).contains("interval"));
    }

    #[test]
    fn nothing_follows_from_reads() {
        assert_eq!(advise(&device(Way::Read, |_| 50.0, 2000.0, 1e9)), []);
    }
}
