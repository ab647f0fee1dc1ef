//! Finds the best block size, depth and codec by trying them on the current load.
//!
//! While the log is busy, the tuner compares the current settings with one neighbour, in short
//! alternate turns, by the payload bytes that become durable per second: a pair of turns gives one
//! ratio. The initial settings suit most devices, so a neighbour further away from them must be
//! better by [`MARGIN`] and in most pairs, and a nearer neighbour only no worse. A stronger codec,
//! which saves the device, need only be no worse; a weaker codec must be better. A trial ends early
//! if the first pairs leave no doubt. If nothing is better, trials become rare. While the log is
//! mostly idle, only latency counts and blocks end before they are full, so the tuner tries
//! nothing, and uses the fast codec.
//!
//! A plain state machine: callers pass the clock's readings.

use std::time::Duration;

use crate::format::Codec;

/// The settings for making and writing blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Codec for blocks that shrink.
    pub codec: Codec,
    /// Bytes after which a block is full.
    pub block_size: usize,
    /// Number of writes in flight at once.
    pub depth: usize,
}

/// The facts about a block when its write has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    /// Payload bytes, before compression.
    pub raw_len: usize,
    /// Whether the payload shrinks, as far as known.
    pub shrinks: bool,
    /// Number of other writes still in flight.
    pub others: usize,
}

/// First block size, in bytes. Large blocks cost the device least; a block that fills slowly is
/// written before it is full.
const FIRST_BLOCK: usize = 1 << 20;
const LEAST_BLOCK: usize = 64 << 10;
const FIRST_DEPTH: usize = 4;
/// Least gain of a neighbour that is not preferred, and the least number of pairs in which it is
/// better.
const MARGIN: f64 = 1.05;
const MOST_PAIRS: usize = 7;
/// Least ratio of a preferred neighbour: a loss that chance may cause.
const NO_WORSE: f64 = 0.99;
/// Least duration of a turn, and its least number of writes.
const TURN: Duration = Duration::from_millis(5);
const TURN_WRITES: u32 = 4;
/// Number of pairs of turns in a trial, and the number after which a trial ends if all pairs agree
/// by a factor that chance does not cause.
const PAIRS: usize = 9;
const CLEAR_PAIRS: usize = 3;
const CLEAR: f64 = 1.25;
/// Pause after a trial. While no neighbour is better, the pause doubles from the first value to the
/// last.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(3);
/// A turn is ignored if a write was in flight for less than this fraction of the turn. Callers that
/// wait for their acks leave gaps, which grow with the duration of a write; a turn with such gaps
/// counts.
const BUSY_PART: u32 = 4;
/// The time that the log must be mostly idle to count as idle.
const LIGHT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Neighbour {
    WeakerCodec,
    StrongerCodec,
    LargerBlocks,
    Deeper,
    SmallerBlocks,
    Shallower,
}

const NEIGHBOURS: [Neighbour; 6] = [
    Neighbour::WeakerCodec,
    Neighbour::StrongerCodec,
    Neighbour::LargerBlocks,
    Neighbour::Deeper,
    Neighbour::SmallerBlocks,
    Neighbour::Shallower,
];

/// The events since the turn began.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    begun: Option<Duration>,
    /// Number of writes of the previous turn that end in this turn.
    skip: usize,
    writes: u32,
    bytes: u64,
    full: u32,
    deep: u32,
    shrinking: u32,
    idle: Duration,
}

#[derive(Debug)]
struct Trial {
    settings: Settings,
    /// Whether the neighbour is accepted if it is no worse.
    preferred: bool,
    /// Bytes per second with the current settings, in the first turn of a pair.
    ours: Option<f64>,
    /// Ratio of the neighbour's throughput, pair by pair.
    ratios: Vec<f64>,
}

impl Trial {
    /// Returns whether the neighbour is better; `None` if more pairs are needed.
    fn verdict(&self) -> Option<bool> {
        let ratios = &self.ratios;
        let all = |clearly: fn(f64) -> bool| {
            ratios.len() >= CLEAR_PAIRS && ratios.iter().all(|&ratio| clearly(ratio))
        };
        if all(|ratio| ratio >= CLEAR) {
            return Some(true);
        }
        if all(|ratio| ratio <= 1.0 / CLEAR) {
            return Some(false);
        }
        if ratios.len() < PAIRS {
            return None;
        }
        let middle = median(ratios.clone());
        let better = ratios.iter().filter(|&&ratio| ratio > 1.0).count();
        Some(if self.preferred { middle >= NO_WORSE } else { middle >= MARGIN && better >= MOST_PAIRS })
    }
}

#[derive(Debug)]
pub(crate) struct Tuner {
    most: Settings,
    chosen: Settings,
    trial: Option<Trial>,
    turn: Turn,
    idle_since: Option<Duration>,
    /// Total duration of the idle turns since the last busy turn.
    light: Duration,
    next_trial: Duration,
    pause: Duration,
    neighbour: usize,
}

impl Tuner {
    /// Creates a tuner whose settings do not exceed `most`.
    pub fn new(most: Settings) -> Self {
        let chosen = Settings {
            codec: most.codec.min(Codec::Lz4),
            block_size: most.block_size.min(FIRST_BLOCK),
            depth: most.depth.min(FIRST_DEPTH),
        };
        Self {
            most,
            chosen,
            trial: None,
            turn: Turn::default(),
            idle_since: None,
            light: Duration::ZERO,
            next_trial: Duration::ZERO,
            pause: FIRST_PAUSE,
            neighbour: 0,
        }
    }

    /// Returns the settings to use now.
    pub fn settings(&self) -> Settings {
        match &self.trial {
            Some(trial) if trial.ours.is_some() => trial.settings,
            _ => self.chosen,
        }
    }

    /// Returns whether a trial is running.
    pub fn is_trying(&self) -> bool {
        self.trial.is_some()
    }

    /// Sets the most bytes of a block from now on.
    pub fn limit_blocks(&mut self, most: usize) {
        self.most.block_size = most;
        self.chosen.block_size = self.chosen.block_size.min(most);
        self.trial = None;
    }

    /// Records that no write is in flight any more.
    pub fn idle(&mut self, now: Duration) {
        self.idle_since.get_or_insert(now);
    }

    /// Records that a write is in flight again.
    pub fn busy(&mut self, now: Duration) {
        if let Some(since) = self.idle_since.take() {
            self.turn.idle += now.saturating_sub(since);
        }
    }

    /// Records a write that has ended.
    pub fn done(&mut self, done: Done, now: Duration) {
        let Settings { block_size, depth, .. } = self.settings();
        let turn = &mut self.turn;
        let Some(begun) = turn.begun else {
            turn.skip = turn.skip.saturating_sub(1);
            if turn.skip == 0 {
                self.turn = Turn { begun: Some(now), ..Turn::default() };
            }
            return;
        };
        turn.writes += 1;
        turn.bytes += done.raw_len as u64;
        turn.full += u32::from(done.raw_len >= block_size / 2);
        turn.deep += u32::from(done.others + 1 >= depth);
        turn.shrinking += u32::from(done.shrinks);
        let took = now.saturating_sub(begun);
        if turn.writes >= TURN_WRITES && took >= TURN {
            self.end_turn(took, done.others, now);
        }
    }

    fn end_turn(&mut self, took: Duration, in_flight: usize, now: Duration) {
        let turn = std::mem::replace(&mut self.turn, Turn { skip: in_flight + 1, ..Turn::default() });
        if took.saturating_sub(turn.idle) < took / BUSY_PART {
            self.trial = None;
            self.light += took;
            if self.light >= LIGHT {
                self.chosen.codec = self.most.codec.min(Codec::Lz4);
                // When the log is busy again, the tuner soon tries the codec first.
                (self.neighbour, self.next_trial, self.pause) = (0, now, FIRST_PAUSE);
            }
            return;
        }
        self.light = Duration::ZERO;
        let Some(trial) = &mut self.trial else {
            if now >= self.next_trial {
                self.trial = self.next_trial(&turn);
            }
            return;
        };
        let rate = turn.bytes as f64 / took.as_secs_f64();
        let Some(ours) = trial.ours.take() else {
            trial.ours = Some(rate);
            return;
        };
        trial.ratios.push(rate / ours);
        if let Some(better) = trial.verdict() {
            self.end_trial(better, now);
        }
    }

    fn end_trial(&mut self, better: bool, now: Duration) {
        let Some(Trial { settings, .. }) = self.trial.take() else { return };
        if better {
            tracing::debug!(?settings, "other settings serve better");
            self.chosen = settings;
            self.pause = FIRST_PAUSE;
            // Tries the same direction once more before the other directions.
            self.neighbour = self.neighbour.saturating_sub(1);
        } else {
            self.pause = (self.pause * 2).min(LAST_PAUSE);
        }
        self.next_trial = now.saturating_add(self.pause);
    }

    /// Returns the next neighbour worth a trial, judged by the turn that ended.
    fn next_trial(&mut self, turn: &Turn) -> Option<Trial> {
        for _ in NEIGHBOURS {
            let neighbour = NEIGHBOURS[self.neighbour % NEIGHBOURS.len()];
            self.neighbour = self.neighbour % NEIGHBOURS.len() + 1;
            let mostly = |n: u32| n * 2 > turn.writes;
            let Settings { codec, block_size, depth } = self.chosen;
            let tried = match neighbour {
                Neighbour::WeakerCodec if mostly(turn.shrinking) => {
                    Settings { codec: codec.weaker(), ..self.chosen }
                }
                Neighbour::StrongerCodec if mostly(turn.shrinking) => {
                    Settings { codec: codec.stronger().min(self.most.codec), ..self.chosen }
                }
                Neighbour::LargerBlocks if mostly(turn.full) => {
                    Settings { block_size: (block_size * 2).min(self.most.block_size), ..self.chosen }
                }
                Neighbour::SmallerBlocks if mostly(turn.full) => {
                    let least = LEAST_BLOCK.min(self.most.block_size);
                    Settings { block_size: (block_size / 2).max(least), ..self.chosen }
                }
                Neighbour::Deeper if mostly(turn.deep) => {
                    Settings { depth: (depth * 2).min(self.most.depth), ..self.chosen }
                }
                Neighbour::Shallower if mostly(turn.deep) => {
                    Settings { depth: (depth / 2).max(1), ..self.chosen }
                }
                _ => continue,
            };
            if tried != self.chosen {
                let preferred = match neighbour {
                    Neighbour::StrongerCodec => true,
                    Neighbour::WeakerCodec => false,
                    Neighbour::LargerBlocks | Neighbour::SmallerBlocks => {
                        block_size.abs_diff(FIRST_BLOCK) > tried.block_size.abs_diff(FIRST_BLOCK)
                    }
                    Neighbour::Deeper | Neighbour::Shallower => {
                        depth.abs_diff(FIRST_DEPTH) > tried.depth.abs_diff(FIRST_DEPTH)
                    }
                };
                return Some(Trial { settings: tried, preferred, ours: None, ratios: Vec::new() });
            }
        }
        None
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Settings = Settings { codec: Codec::Zstd, block_size: 1 << 20, depth: 8 };

    /// Runs the tuner against a device for `seconds`; `rate` gives payload bytes a second for
    /// settings.
    fn run(
        tuner: &mut Tuner,
        now: &mut Duration,
        seconds: u64,
        shrinks: bool,
        rate: impl Fn(Settings) -> f64,
    ) {
        let end = *now + Duration::from_secs(seconds);
        while *now < end {
            let settings = tuner.settings();
            *now += Duration::from_secs_f64(settings.block_size as f64 / rate(settings));
            let done = Done { raw_len: settings.block_size, shrinks, others: settings.depth - 1 };
            tuner.done(done, *now);
        }
    }

    fn at_rest(tuner: &Tuner) -> Settings {
        tuner.chosen
    }

    #[test]
    fn larger_blocks_where_a_write_costs_much() {
        let (mut tuner, mut now) = (Tuner::new(MOST), Duration::ZERO);
        // 100 us a write besides 5 GB/s.
        run(&mut tuner, &mut now, 5, false, |s| s.block_size as f64 / (100e-6 + s.block_size as f64 / 5e9));
        assert_eq!(at_rest(&tuner).block_size, 1 << 20);
        assert_eq!(at_rest(&tuner).depth, 4, "depth changes nothing here");
    }

    #[test]
    fn more_in_flight_where_the_device_is_far_away() {
        let (mut tuner, mut now) = (Tuner::new(MOST), Duration::ZERO);
        run(&mut tuner, &mut now, 20, false, |s| (s.depth * s.block_size) as f64 / 1e-3);
        assert_eq!((at_rest(&tuner).depth, at_rest(&tuner).block_size), (8, 1 << 20));
    }

    #[test]
    fn the_codec_follows_what_is_the_bottleneck() {
        let (mut tuner, mut now) = (Tuner::new(MOST), Duration::ZERO);
        // One core compresses at these rates; the device takes what comes of it.
        let device = |bytes: f64| {
            move |s: Settings| match s.codec {
                Codec::Raw => bytes,
                Codec::Lz4 => (bytes * 3.0).min(5e8),
                Codec::Zstd => (bytes * 4.6).min(3e8),
            }
        };
        run(&mut tuner, &mut now, 5, true, device(2e9));
        assert_eq!(at_rest(&tuner).codec, Codec::Raw, "a fast device");
        run(&mut tuner, &mut now, 60, true, device(125e6));
        assert_eq!(at_rest(&tuner).codec, Codec::Lz4, "one in between");
        run(&mut tuner, &mut now, 60, true, device(20e6));
        assert_eq!(at_rest(&tuner).codec, Codec::Zstd, "a slow one");
        run(&mut tuner, &mut now, 60, false, device(2e9));
        assert_eq!(at_rest(&tuner).codec, Codec::Zstd, "what does not shrink is not compressed anyway");
    }

    #[test]
    fn an_idle_log_takes_the_fast_codec_and_tries_nothing() {
        let (mut tuner, mut now) = (Tuner::new(MOST), Duration::ZERO);
        run(&mut tuner, &mut now, 5, true, |s| if s.codec == Codec::Raw { 2e9 } else { 5e8 });
        assert_eq!(at_rest(&tuner).codec, Codec::Raw);
        for _ in 0..1000 {
            tuner.idle(now);
            now += Duration::from_millis(10);
            tuner.busy(now);
            now += Duration::from_micros(50);
            tuner.done(Done { raw_len: 200, shrinks: true, others: 0 }, now);
        }
        assert!(tuner.settings().codec == Codec::Lz4 && tuner.trial.is_none());
    }

    #[test]
    fn trials_grow_rare_where_nothing_is_better() {
        let (mut tuner, mut now) = (Tuner::new(MOST), Duration::ZERO);
        let first = tuner.settings();
        run(&mut tuner, &mut now, 60, false, |_| 1e9);
        assert_eq!(at_rest(&tuner), first);
        assert_eq!(tuner.pause, LAST_PAUSE);
    }

    #[test]
    fn limits_hold() {
        let most = Settings { codec: Codec::Raw, block_size: 4096, depth: 1 };
        let (mut tuner, mut now) = (Tuner::new(most), Duration::ZERO);
        run(&mut tuner, &mut now, 2, true, |s| {
            assert_eq!(s, most);
            1e6
        });
    }
}
