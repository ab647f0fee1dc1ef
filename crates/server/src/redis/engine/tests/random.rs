//! Requests by chance, over few keys, so that they get in each other's way.

use brooklet::io::Rng;
use bytes::Bytes;

/// The keys that there may be.
pub const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];

pub struct Asker {
    rng: Rng,
    n: u64,
    /// Longest value that is drawn, now and then.
    longest: u64,
}

impl Asker {
    pub fn new(seed: u64, longest: u64) -> Self {
        Self { rng: Rng::new(seed), n: 0, longest }
    }

    fn one_of(&mut self, all: &[&str]) -> String {
        all[self.rng.below(all.len() as u64) as usize].into()
    }

    fn key(&mut self) -> String {
        self.one_of(&KEYS)
    }

    /// A value: often one of few, or else unlike all others.
    fn value(&mut self) -> String {
        self.n += 1;
        match self.rng.below(20) {
            0 => format!("{}{}", self.n, "-".repeat(self.rng.below(self.longest) as usize)),
            1..8 => self.one_of(&["x", "y", "z", "7"]),
            _ => self.n.to_string(),
        }
    }

    fn id(&mut self) -> String {
        format!("{}-{}", 1 + self.rng.below(30), self.rng.below(2))
    }

    fn place(&mut self) -> String {
        (self.rng.below(9) as i64 - 4).to_string()
    }

    fn several(&mut self, most: u64, mut word: impl FnMut(&mut Self) -> String) -> String {
        let words: Vec<String> = (0..1 + self.rng.below(most)).map(|_| word(self)).collect();
        words.join(" ")
    }

    /// So many words that the command runs in portions, or a little fewer.
    fn long(&mut self, most: u64, mut word: impl FnMut(&mut Self) -> String) -> String {
        let words: Vec<String> = (0..most - self.rng.below(4)).map(|_| word(self)).collect();
        words.join(" ")
    }

    /// What a client asks for that has nothing else on its mind.
    pub fn request(&mut self, may_wait: bool) -> Vec<Bytes> {
        let text = self.text(may_wait);
        text.split(' ').map(|word| Bytes::from(word.to_owned())).collect()
    }

    fn text(&mut self, may_wait: bool) -> String {
        let key = self.key();
        match self.rng.below(if may_wait { 72 } else { 69 }) {
            0..4 => format!("RPUSH {key} {}", self.several(4, Self::value)),
            4..8 => format!("LPUSH {key} {}", self.several(4, Self::value)),
            8 => format!("{} {key} {}", self.one_of(&["RPUSHX", "LPUSHX"]), self.value()),
            9..12 => format!("{} {key}", self.one_of(&["LPOP", "RPOP"])),
            12 => format!("{} {key} {}", self.one_of(&["LPOP", "RPOP"]), 1 + self.rng.below(4)),
            13..15 => format!("LTRIM {key} {} {}", self.place(), self.place()),
            15 => format!("LSET {key} {} {}", self.place(), self.value()),
            16 => format!("LINSERT {key} {} x {}", self.one_of(&["BEFORE", "AFTER"]), self.value()),
            17 => format!("LREM {key} {} {}", self.place(), self.one_of(&["x", "y", "z"])),
            18..21 => {
                let (to, ends) = (self.key(), ["LEFT", "RIGHT"]);
                format!("LMOVE {key} {to} {} {}", self.one_of(&ends), self.one_of(&ends))
            }
            21..23 => format!("LRANGE {key} {} {}", self.place(), self.place()),
            23 => format!("LLEN {key}"),
            24..29 => format!("XADD {key} * f {}", self.value()),
            29 => format!("XADD {key} {} f {}", self.id(), self.value()),
            30 => format!("XADD {key} MAXLEN {} * f {}", self.rng.below(5), self.value()),
            31 => format!("XTRIM {key} MAXLEN {}", self.rng.below(5)),
            32 => format!("XTRIM {key} MINID {}", self.id()),
            33..35 => format!("XDEL {key} {}", self.several(3, Self::id)),
            35..38 => format!("XGROUP CREATE {key} g {} MKSTREAM", self.one_of(&["0", "$", "7-1"])),
            38 => format!("XGROUP CREATE {key} h 0"),
            39 => format!("XGROUP DESTROY {key} h"),
            40 => format!("XGROUP CREATECONSUMER {key} g {}", self.one_of(&["p", "q"])),
            41 => format!("XGROUP DELCONSUMER {key} g {}", self.one_of(&["p", "q"])),
            42 => format!("XGROUP SETID {key} g {}", self.id()),
            43..47 => {
                let (group, name) = (self.one_of(&["g", "g", "h"]), self.one_of(&["p", "q"]));
                let from = self.one_of(&[">", ">", ">", "0-0"]);
                format!(
                    "XREADGROUP GROUP {group} {name} COUNT {} STREAMS {key} {from}",
                    1 + self.rng.below(4)
                )
            }
            47 => format!("XACK {key} g {}", self.several(3, Self::id)),
            48 => format!("XAUTOCLAIM {key} g p 0 0"),
            49 => self.one_of(&["XLEN KEY", "XRANGE KEY - +"]).replace("KEY", &key),
            50..52 => format!("SET {key} {}", self.value()),
            52 => format!("SET {key} {} {}", self.value(), self.one_of(&["NX", "XX", "KEEPTTL", "PX 3000"])),
            53 => format!("APPEND {key} {}", self.value()),
            54 => format!("INCR {key}"),
            55 => format!("{} {key}", self.one_of(&["GET", "GETDEL"])),
            56 => format!("MSET {key} {} {} {}", self.value(), self.key(), self.value()),
            57..60 => {
                let pair = |asker: &mut Self| format!("{} {}", asker.one_of(&["f", "g", "h"]), asker.value());
                format!("HSET {key} {}", self.several(2, pair))
            }
            60 => format!("HDEL {key} {}", self.several(2, |asker| asker.one_of(&["f", "g", "h"]))),
            61 => format!("HINCRBY {key} f 3"),
            62 => format!("{} {key}", self.one_of(&["HGETALL", "TYPE", "EXISTS", "PEXPIRETIME"])),
            63 if self.rng.percent(5) => format!("DEL {}", self.long(1_002, Self::key)),
            63 => format!("DEL {}", self.several(3, Self::key)),
            64 => format!("RENAME {key} {}", self.key()),
            65 => format!("COPY {key} {}", self.key()) + &self.one_of(&["", " REPLACE"]),
            66 => format!("PEXPIRE {key} {}", self.rng.below(9000)),
            67 => format!("PERSIST {key}"),
            68 => self.one_of(&["DBSIZE", "DBSIZE", "DBSIZE", "FLUSHDB"]),
            69..71 => format!(
                "{} {} {}",
                self.one_of(&["BLPOP", "BRPOP"]),
                self.several(2, Self::key),
                self.rng.below(4)
            ),
            _ => format!("BLMOVE {key} {} LEFT RIGHT {}", self.key(), self.rng.below(4)),
        }
    }
}
