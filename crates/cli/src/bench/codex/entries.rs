//! Entries that are the same each time: numbers, and titles as an encyclopedia has them.

/// Bytes from which values are cut; so many that neighbours have nothing in common.
const POOL: usize = 1 << 20;
/// Different words in titles.
const WORDS: u64 = 20_000;

/// The finalizer of splitmix64.
pub fn mix(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Keys and values, in no order.
pub trait Entries: Sync {
    type Key<'a>: AsRef<[u8]>
    where
        Self: 'a;
    type Value<'a>: AsRef<[u8]>
    where
        Self: 'a;

    fn len(&self) -> usize;
    fn get(&self, at: usize) -> (Self::Key<'_>, Self::Value<'_>);
}

/// Keys of 16 bytes.
pub struct Numbers {
    keys: Vec<[u8; 16]>,
    value: usize,
    pool: Vec<u8>,
}

impl Numbers {
    /// So many, with values of this length that do not get smaller by compressing.
    pub fn new(count: usize, value: usize) -> Self {
        let number = |at: usize| u128::from(mix(at as u64)) << 64 | u128::from(mix(!at as u64));
        let keys = (0..count).map(|at| number(at).to_be_bytes()).collect();
        let pool = (0..POOL as u64 / 8).flat_map(|at| mix(at << 32).to_le_bytes()).collect();
        Self { keys, value, pool }
    }

    pub fn keys(&self) -> &[[u8; 16]] {
        &self.keys
    }

    /// Bytes of all keys and values.
    pub fn bytes(&self) -> u64 {
        (self.keys.len() * (16 + self.value)) as u64
    }

    /// The same, in the order of the keys.
    pub fn sorted(&self) -> Self {
        let mut keys = self.keys.clone();
        keys.sort_unstable();
        Self { keys, pool: self.pool.clone(), ..*self }
    }
}

impl Entries for Numbers {
    type Key<'a> = [u8; 16];
    type Value<'a> = &'a [u8];

    fn len(&self) -> usize {
        self.keys.len()
    }

    fn get(&self, at: usize) -> ([u8; 16], &[u8]) {
        let key = self.keys[at];
        let start = usize::from(key[3]) << 12 | usize::from(key[4]) << 4;
        (key, &self.pool[start % (POOL - self.value)..][..self.value])
    }
}

/// Titles of two to four words, 20 bytes on average; the value is a number of four bytes.
pub struct Titles {
    text: Vec<u8>,
    ends: Vec<u32>,
}

impl Titles {
    pub fn new(count: usize) -> Self {
        let words: Vec<String> = (0..WORDS).map(word).collect();
        let (mut text, mut ends) = (Vec::with_capacity(count * 22), Vec::with_capacity(count));
        for at in 0..count as u64 {
            let dice = mix(at);
            for nth in 0..2 + dice % 3 {
                if nth > 0 {
                    text.push(b'_');
                }
                // Some words are common, and most are not.
                let rank = mix(dice ^ nth) as f64 / u64::MAX as f64;
                text.extend_from_slice(words[(rank * rank * WORDS as f64) as usize % words.len()].as_bytes());
            }
            ends.push(text.len() as u32);
        }
        Self { text, ends }
    }

    pub fn key(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.text[start..self.ends[at] as usize]
    }
}

/// A word of syllables.
fn word(number: u64) -> String {
    let mut dice = mix(number ^ 0xc0de);
    let syllable = |dice: u64| {
        let consonant = b"bcdfghjklmnprstvwz"[dice as usize % 18] as char;
        let vowel = b"aeiou"[(dice >> 8) as usize % 5] as char;
        [consonant, vowel]
    };
    let mut word = String::new();
    for _ in 0..2 + dice % 3 {
        dice = mix(dice);
        word.extend(syllable(dice));
    }
    word[..1].make_ascii_uppercase();
    word
}

impl Entries for Titles {
    type Key<'a> = &'a [u8];
    type Value<'a> = [u8; 4];

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn get(&self, at: usize) -> (&[u8], [u8; 4]) {
        (self.key(at), (at as u32).to_le_bytes())
    }
}
