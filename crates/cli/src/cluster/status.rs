//! `cluster status`: the shards, as the map and their logs show them.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::time::SystemTime;

use brooklet_replica::{Error, Health, Map};
use serde::Serialize;

use super::{Opened, goes_on};
use crate::failure::Failure;
use crate::output::Output;
use crate::serve::replicate::refused;

pub fn run(place: &str, out: &mut Output) -> Result<(), Failure> {
    let opened = Opened::at(place)?;
    let map = opened.map()?;
    let (mut rows, mut failure) = (Vec::new(), None);
    for name in map.shards.keys() {
        let (health, error) = match Health::of(&opened.shard(name)?.0, &goes_on) {
            Err(error @ Error::GivenUp) => return Err(refused(error)),
            // The other shards may be sound.
            Err(error) => (None, Some(error)),
            Ok(health) => (health, None),
        };
        let why = error.as_ref().map(Error::to_string);
        rows.push(Row { error: why, ..Row::new(&map, name, health.as_ref()) });
        failure = failure.or(error);
    }
    out.line(Table { map: map.number, rows: &rows })?;
    rows.iter().try_for_each(|row| out.document(row))?;
    failure.map_or(Ok(()), |error| Err(refused(error)))
}

#[derive(Serialize)]
struct Row {
    shard: String,
    wanted: Option<String>,
    owner: Option<String>,
    url: Option<String>,
    /// Epoch of the owner, and number of its next object.
    epoch: Option<u64>,
    end: Option<u64>,
    sign_ms: Option<u64>,
    moves_to: Option<String>,
    is_ready: bool,
    hosts: BTreeMap<String, String>,
    spaces: Vec<String>,
    has_other_spaces: bool,
    /// Why the log cannot be looked at.
    error: Option<String>,
}

impl Row {
    fn new(map: &Map, name: &str, health: Option<&Health>) -> Self {
        let shard = &map.shards[name];
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let epoch = health.map(|health| health.claim.writer.epoch);
        let moving = shard.moving.as_ref();
        Self {
            shard: name.into(),
            wanted: text(&shard.wanted),
            owner: health.and_then(|health| text(&health.claim.owner)),
            url: health.and_then(|health| text(&health.claim.address)),
            epoch: epoch.map(|epoch| epoch.0),
            end: health.map(|health| health.end.number),
            sign_ms: health.map(|health| health.silence(SystemTime::now()).as_millis() as u64),
            moves_to: moving.map(|moving| moving.to.clone()),
            is_ready: moving.and_then(|moving| moving.ready).map(|ready| ready.epoch) == epoch
                && moving.is_some(),
            hosts: shard.hosts.clone(),
            spaces: map.spaces.iter().filter(|(_, of)| *of == name).map(|(space, _)| space.clone()).collect(),
            has_other_spaces: map.default == name,
            error: None,
        }
    }

    fn cells(&self) -> [String; 7] {
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
        let sign = self.sign_ms.map_or("-".into(), |ms| format!("{}.{} s ago", ms / 1000, ms % 1000 / 100));
        let end = self.epoch.zip(self.end).map_or("-".into(), |(epoch, end)| format!("{epoch}/{end}"));
        let moving = self
            .moves_to
            .as_ref()
            .map_or("-".into(), |to| format!("to {to}{}", if self.is_ready { ", ready" } else { "" }));
        let others = self.has_other_spaces.then(|| "all others".to_owned());
        let spaces: Vec<String> = self.spaces.iter().cloned().chain(others).collect();
        let spaces = if spaces.is_empty() { "-".into() } else { spaces.join(", ") };
        [self.shard.clone(), or_none(&self.wanted), or_none(&self.owner), sign, end, moving, spaces]
    }
}

struct Table<'a> {
    map: u64,
    rows: &'a [Row],
}

impl Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["shard", "wanted", "owner", "last sign", "log", "move", "spaces"].map(str::to_owned);
        let lines: Vec<[String; 7]> = [head].into_iter().chain(self.rows.iter().map(Row::cells)).collect();
        let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or_default();
        for line in &lines {
            let (last, cells) = line.split_last().expect("seven cells");
            for (at, cell) in cells.iter().enumerate() {
                write!(f, "{cell:<width$}  ", width = width(at))?;
            }
            writeln!(f, "{last}")?;
        }
        for (row, error) in self.rows.iter().filter_map(|row| Some((row, row.error.as_ref()?))) {
            writeln!(f, "shard {} cannot be looked at: {error}", row.shard)?;
        }
        write!(f, "map {}", self.map)
    }
}
