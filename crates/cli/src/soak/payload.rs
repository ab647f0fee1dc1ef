//! Payloads that tell who they are: the log, the entry's number and its stamp, then bytes that
//! follow from these alone.

use brooklet::io::Rng;

use crate::bench::load::{delta, noise};

/// The sizes of payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mix {
    /// 76 to 512 bytes
    Small,
    /// Mostly small ones, with keystrokes; some of a few KiB, few of up to 200 KiB
    Mixed,
    /// 4 to 256 KiB
    Large,
}

/// Bytes before the filling: log, number, stamp.
const HEADER: usize = 12;
/// Bytes of filling that are taken from one place.
const PIECE: usize = 4096;

/// Makes payloads and checks them.
pub struct Payloads {
    seed: u64,
    mix: Mix,
    /// What fillings are cut from: JSON, then what does not compress.
    text: Vec<u8>,
}

impl Payloads {
    pub fn new(seed: u64, mix: Mix) -> Self {
        let (mut rng, mut one, mut text) = (Rng::new(seed), Vec::new(), Vec::new());
        while text.len() < 60 << 10 {
            delta(&mut rng, &mut one);
            text.extend_from_slice(&one);
        }
        text.extend(noise(8 << 10));
        Self { seed, mix, text }
    }

    /// The payload of an entry.
    pub fn of(&self, log: u32, seq: u32, stamp: u32) -> Vec<u8> {
        let place = u64::from(log) << 32 | u64::from(seq);
        let mut rng = Rng::new(self.seed ^ Rng::new(place).next() ^ u64::from(stamp).rotate_left(40));
        let len = self.mix.filling(&mut rng);
        let mut payload = Vec::with_capacity(HEADER + len);
        for word in [log, seq, stamp] {
            payload.extend(word.to_le_bytes());
        }
        while payload.len() < HEADER + len {
            let at = rng.below((self.text.len() - PIECE) as u64) as usize;
            let piece = PIECE.min(HEADER + len - payload.len());
            payload.extend_from_slice(&self.text[at..at + piece]);
        }
        payload
    }

    /// The stamp of an entry that is, byte for byte, what was written as this one of this log.
    pub fn stamp_of(&self, log: u32, seq: u64, payload: &[u8]) -> Option<u32> {
        let stamp = u32::from_le_bytes(payload.get(8..HEADER)?.try_into().ok()?);
        let seq = u32::try_from(seq).ok()?;
        (self.of(log, seq, stamp) == payload).then_some(stamp)
    }
}

impl Mix {
    fn filling(self, rng: &mut Rng) -> usize {
        let between = |rng: &mut Rng, from: u64, to: u64| (from + rng.below(to - from + 1)) as usize;
        match (self, rng.below(1000)) {
            (Mix::Small, _) | (Mix::Mixed, 0..850) => between(rng, 64, 500),
            (Mix::Mixed, 850..950) => between(rng, 0, 20),
            (Mix::Mixed, 950..999) => between(rng, 1 << 10, 8 << 10),
            (Mix::Mixed, _) => between(rng, 8 << 10, 200 << 10),
            (Mix::Large, _) => between(rng, 4 << 10, 256 << 10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_known_by_its_payload_and_by_no_other() {
        let payloads = Payloads::new(7, Mix::Mixed);
        for seq in 0..2000 {
            let mut payload = payloads.of(3, seq, 9);
            assert_eq!(payloads.stamp_of(3, u64::from(seq), &payload), Some(9));
            assert_eq!(payloads.stamp_of(4, u64::from(seq), &payload), None);
            assert_eq!(payloads.stamp_of(3, u64::from(seq) + 1, &payload), None);
            assert_eq!(payloads.stamp_of(3, u64::from(seq), &payload[..payload.len() - 1]), None);
            *payload.last_mut().unwrap() ^= 1;
            assert_eq!(payloads.stamp_of(3, u64::from(seq), &payload), None);
        }
    }

    #[test]
    fn sizes_are_what_the_mix_says() {
        for (mix, least, most) in [(Mix::Small, 76, 512), (Mix::Large, 4108, 262_156)] {
            let payloads = Payloads::new(1, mix);
            let sizes: Vec<usize> = (0..500).map(|seq| payloads.of(1, seq, 0).len()).collect();
            assert!(sizes.iter().all(|size| (least..=most).contains(size)), "{mix:?}: {sizes:?}");
        }
    }
}
