//! Which block size, depth and codec serve best: found by trying them on the load at hand.
//!
//! While the log is busy, the tuner compares the settings in use with one neighbour of theirs, in short turns one after
//! the other, by the payload bytes that become durable in a second. A neighbour that is better by [`MARGIN`] is
//! taken; a stronger codec already where it is no worse, since it saves the device. Where nothing is better, trials grow
//! rare. While the log is idle now and then, latency is what counts and blocks end by themselves, so nothing is tried,
//! and the codec is the fast one.
//!
//! A plain state machine: the clock's readings are given to it.

use std::time::Duration;

use crate::format::Codec;

/// How blocks are made and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// How blocks are compressed where that shrinks them.
    pub codec: Codec,
    /// Bytes after which a block is full.
    pub block_size: usize,
    /// Writes in flight at once.
    pub depth: usize,
}

/// What is known of a block when its write has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    /// Payload bytes, before compression.
    pub raw_len: usize,
    /// The payload shrinks, as far as is known.
    pub shrinks: bool,
    /// Other writes still in flight.
    pub others: usize,
}

/// A block that starts with is large enough for most devices, and small enough for a cloud volume to take it in one piece.
const FIRST_BLOCK: usize = 256 << 10;
const LEAST_BLOCK: usize = 64 << 10;
const FIRST_DEPTH: usize = 4;
/// How much better a neighbour must be: more than what chance makes of equal settings.
const MARGIN: f64 = 1.05;
/// How much worse a stronger codec may be: no more than chance makes.
const NO_WORSE: f64 = 0.99;
/// A turn lasts so long and so many writes at least.
const TURN: Duration = Duration::from_millis(5);
const TURN_WRITES: u32 = 8;
/// Turns of each side in a trial; the medians are compared.
const TURNS: usize = 5;
/// The pause after a trial, doubled from the first to the last while nothing is better.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(3);
/// A turn in which nothing was on its way for more than this part of it says nothing.
const IDLE_PART: u32 = 4;

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

/// What happened since the turn began.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    begun: Option<Duration>,
    /// Writes of the turn before, which end in this one.
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
    /// Bytes a second, of the settings in use and of those on trial.
    rates: [Vec<f64>; 2],
}

#[derive(Debug)]
pub(crate) struct Tuner {
    most: Settings,
    chosen: Settings,
    trial: Option<Trial>,
    turn: Turn,
    idle_since: Option<Duration>,
    next_trial: Duration,
    pause: Duration,
    neighbour: usize,
}

impl Tuner {
    /// A tuner that stays within `most`.
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
            next_trial: Duration::ZERO,
            pause: FIRST_PAUSE,
            neighbour: 0,
        }
    }

    /// The settings to use now.
    pub fn settings(&self) -> Settings {
        match &self.trial {
            Some(trial) if trial.rates[0].len() > trial.rates[1].len() => trial.settings,
            _ => self.chosen,
        }
    }

    /// Whether settings are being compared.
    pub fn is_trying(&self) -> bool {
        self.trial.is_some()
    }

    /// Blocks have at most so many bytes from now on.
    pub fn limit_blocks(&mut self, most: usize) {
        self.most.block_size = most;
        self.chosen.block_size = self.chosen.block_size.min(most);
        self.trial = None;
    }

    /// Nothing is on its way any more.
    pub fn idle(&mut self, now: Duration) {
        self.idle_since.get_or_insert(now);
    }

    /// Something is on its way again.
    pub fn busy(&mut self, now: Duration) {
        if let Some(since) = self.idle_since.take() {
            self.turn.idle += now.saturating_sub(since);
        }
    }

    /// A write has ended.
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
        if turn.idle > took / IDLE_PART {
            self.trial = None;
            self.chosen.codec = self.most.codec.min(Codec::Lz4);
            return;
        }
        let Some(trial) = &mut self.trial else {
            if now >= self.next_trial {
                self.trial =
                    self.next_neighbour(&turn).map(|settings| Trial { settings, rates: Default::default() });
            }
            return;
        };
        let [ours, theirs] = &mut trial.rates;
        let side = if ours.len() > theirs.len() { theirs } else { ours };
        side.push(turn.bytes as f64 / took.as_secs_f64());
        if trial.rates[1].len() == TURNS {
            self.end_trial(now);
        }
    }

    fn end_trial(&mut self, now: Duration) {
        let Some(Trial { settings, rates: [ours, theirs] }) = self.trial.take() else { return };
        let margin = if settings.codec > self.chosen.codec { NO_WORSE } else { MARGIN };
        if median(theirs) >= median(ours) * margin {
            tracing::debug!(?settings, "other settings serve better");
            self.chosen = settings;
            self.pause = FIRST_PAUSE;
            // The same way once more before the others.
            self.neighbour = self.neighbour.saturating_sub(1);
        } else {
            self.pause = (self.pause * 2).min(LAST_PAUSE);
        }
        self.next_trial = now.saturating_add(self.pause);
    }

    /// The next neighbour worth a trial, judged by the turn that ended.
    fn next_neighbour(&mut self, turn: &Turn) -> Option<Settings> {
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
                return Some(tried);
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

    /// Runs the tuner against a device for `seconds`; `rate` gives payload bytes a second for settings.
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
