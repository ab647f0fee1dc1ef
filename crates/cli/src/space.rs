//! Commands on spaces: making, changing, removing and listing them.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use brooklet::{Class, Create, MemoryConfig, SpaceConfig, SpaceInfo, Store, WhenFull};
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use crate::failure::{Failure, Kind};
use crate::output::{Output, counted};
use crate::size::size;
use crate::space_rules::{Limits, Rule, RuleRow, rule};
use crate::store_args::StoreArgs;
use crate::time::{Span, age};

#[derive(Subcommand)]
pub enum Command {
    /// List the spaces of a store
    List {
        /// The store: a file or a block device
        store: PathBuf,
    },
    /// Create a space for all logs below its name and a slash; create the store if missing
    Create {
        #[command(flatten)]
        space: Named,
        #[command(flatten)]
        asks: Asks,
    },
    /// Change settings of a space; other settings stay as they are
    Set {
        #[command(flatten)]
        space: Named,
        #[command(flatten)]
        asks: Asks,
    },
    /// Write a space that is kept in memory to the store: all changes since the last dump
    Dump(Named),
    /// Remove a space; its logs stay
    Remove(Named),
}

impl Command {
    /// Returns whether the command changes nothing.
    pub fn only_reads(&self) -> bool {
        matches!(self, Self::List { .. })
    }
}

#[derive(Args)]
pub struct Named {
    /// The store: a file or a block device
    store: PathBuf,
    /// The name of the space
    name: String,
}

#[derive(Args)]
pub struct Asks {
    /// The moment at which commits are acknowledged
    #[arg(long, value_enum)]
    class: Option<When>,
    /// Longest time until deferred commits are on stable media [default: 100ms] (ms, s and m are
    /// understood)
    #[arg(long, value_name = "TIME", value_parser = age)]
    within: Option<Duration>,
    /// Memory for a space in memory, in bytes [default: 64M] (K, M and G are understood)
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<u64>,
    /// Reaction to a full memory [default: refuse]
    #[arg(long, value_enum)]
    when_full: Option<Full>,
    /// Time between dumps, while the store is open (ms, s, m and h are understood), or `none`
    #[arg(long, value_name = "TIME", value_parser = time)]
    dump_every: Option<Limit<Duration>>,
    /// Most logs in the space, or `none`
    #[arg(long, value_name = "N", value_parser = number)]
    max_logs: Option<Limit<u64>>,
    /// Most bytes of payloads of all its logs (K, M and G are understood), or `none`
    #[arg(long, value_name = "N", value_parser = bytes)]
    max_bytes: Option<Limit<u64>>,
    /// Most entries that each log keeps, or `none`
    #[arg(long, value_name = "N", value_parser = number)]
    entries: Option<Limit<u64>>,
    /// Most bytes of payloads that each log keeps (K, M and G are understood), or `none`
    #[arg(long, value_name = "N", value_parser = bytes)]
    bytes: Option<Limit<u64>>,
    /// Age at which each log drops entries (ms, s, m, h, d and w are understood), or `none`
    #[arg(long, value_name = "TIME", value_parser = time)]
    age: Option<Limit<Duration>>,
    /// Other limits for the logs whose keys match, as PATTERN=LIMITS, such as `*/feed=entries:100`
    /// or `audit/*=none`; limits are entries:N, bytes:SIZE and age:TIME, with commas. `*` matches
    /// any characters of the key after the space's name; the first rule that matches counts.
    /// Repeat the option for more rules. They replace all rules of before; `none` removes these
    #[arg(long = "rule", value_name = "RULE", value_parser = rule)]
    rules: Vec<Rule>,
}

#[derive(Clone, Copy, ValueEnum)]
enum When {
    /// When the commit is on stable media
    Durable,
    /// At once; the commit is on stable media within a bound
    Deferred,
    /// At once; the commit is in memory only, and on stable media with the next dump or clean stop
    Memory,
}

#[derive(Clone, Copy, ValueEnum)]
enum Full {
    /// Refuse commits that need more memory
    Refuse,
    /// Drop the least recently written logs
    DropOldest,
}

/// Default memory of a space, in bytes.
const MEMORY: u64 = 64 << 20;

/// Default bound of deferred commits.
const WITHIN: Duration = Duration::from_millis(100);

/// A limit, or that there is none.
#[derive(Clone, Copy)]
struct Limit<T>(Option<T>);

fn limit<T>(text: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<Limit<T>, String> {
    if text == "none" { Ok(Limit(None)) } else { parse(text).map(|limit| Limit(Some(limit))) }
}

fn number(text: &str) -> Result<Limit<u64>, String> {
    limit(text, |text| text.parse().map_err(|_| "use digits, or none".into()))
}

fn bytes(text: &str) -> Result<Limit<u64>, String> {
    limit(text, size)
}

fn time(text: &str) -> Result<Limit<Duration>, String> {
    limit(text, age)
}

impl Asks {
    /// Refuses options of another class than the one that is asked for.
    fn check(&self) -> Result<(), Failure> {
        let within = self.within.map(|_| "--within");
        let in_memory = [
            self.memory.map(|_| "--memory"),
            self.when_full.map(|_| "--when-full"),
            self.dump_every.map(|_| "--dump-every"),
        ];
        let in_memory = in_memory.into_iter().flatten().next();
        let (option, class) = match (self.class, within, in_memory) {
            (Some(When::Durable), Some(option), _) | (Some(When::Durable), _, Some(option)) => {
                (option, "durable")
            }
            (Some(When::Deferred), _, Some(option)) => (option, "deferred"),
            (Some(When::Memory), Some(option), _) => (option, "memory"),
            (None, Some(within), Some(option)) => {
                let what = format!(
                    "{within} is for spaces of class deferred, and {option} for those of class memory"
                );
                return Err(Failure::new(Kind::Usage, what));
            }
            _ => return Ok(()),
        };
        Err(Failure::new(Kind::Usage, format!("{option} is not for spaces of class {class}: leave it out")))
    }

    /// The class of a space that was of class `was`.
    fn class(&self, was: Class) -> Class {
        let in_memory = self.memory.is_some() || self.when_full.is_some() || self.dump_every.is_some();
        let wanted = self.class.unwrap_or(match was {
            _ if in_memory => When::Memory,
            _ if self.within.is_some() => When::Deferred,
            Class::Memory(_) => When::Memory,
            Class::Deferred(_) => When::Deferred,
            _ => When::Durable,
        });
        match (wanted, was) {
            (When::Durable, _) => Class::Durable,
            (When::Deferred, Class::Deferred(bound)) => Class::Deferred(self.within.unwrap_or(bound)),
            (When::Deferred, _) => Class::Deferred(self.within.unwrap_or(WITHIN)),
            (When::Memory, _) => {
                let mut memory = was.memory().unwrap_or(MemoryConfig::new(MEMORY));
                memory.bytes = self.memory.unwrap_or(memory.bytes);
                memory.when_full = match self.when_full {
                    Some(Full::Refuse) => WhenFull::Refuse,
                    Some(Full::DropOldest) => WhenFull::DropOldest,
                    None => memory.when_full,
                };
                if let Some(Limit(every)) = self.dump_every {
                    memory.dump_every = every;
                }
                Class::Memory(memory)
            }
        }
    }

    /// Returns `config` with the requested changes.
    fn of(&self, mut config: SpaceConfig) -> SpaceConfig {
        fn set<T: Copy>(limit: &mut Option<T>, asked: Option<Limit<T>>) {
            if let Some(Limit(asked)) = asked {
                *limit = asked;
            }
        }
        config.class = self.class(config.class);
        set(&mut config.max_logs, self.max_logs);
        set(&mut config.max_bytes, self.max_bytes);
        set(&mut config.retention.entries, self.entries);
        set(&mut config.retention.bytes, self.bytes);
        set(&mut config.retention.age, self.age);
        if !self.rules.is_empty() {
            config.rules.clear();
        }
        for rule in &self.rules {
            if let Rule::For(pattern, retention) = rule {
                config = config.retention_for(pattern, *retention);
            }
        }
        config
    }
}

/// Runs the command.
pub fn run(command: Command, store_args: &StoreArgs, out: &mut Output) -> Result<(), Failure> {
    match command {
        Command::List { store } => {
            let store = store_args.open_to_read(&store)?;
            let (spaces, lacks) = (store.spaces(), lacks_some(&store));
            if spaces.is_empty() && lacks.is_none() {
                out.line("no spaces")?;
            }
            spaces.iter().try_for_each(|space| out.put(&Row::of(space)))?;
            lacks.map_or(Ok(()), Err)?;
            Ok(store.close()?)
        }
        Command::Create { space: Named { store, name }, asks } => {
            asks.check()?;
            let store = store_args.options()?.create(Create::IfMissing).open(store)?;
            store.create_space(&name, asks.of(SpaceConfig::new()))?;
            show(&store, &name, out)
        }
        Command::Set { space: Named { store, name }, asks } => {
            asks.check()?;
            let store = store_args.options()?.open(store)?;
            let space = store.space(&name)?;
            space.configure(asks.of(space.info()?.config))?;
            show(&store, &name, out)
        }
        Command::Dump(Named { store, name }) => {
            let store = store_args.options()?.open(store)?;
            let dumped = store.space(&name)?.dump()?;
            out.put(&Written { logs: dumped.logs, entries: dumped.entries, bytes: dumped.bytes })?;
            Ok(store.close()?)
        }
        Command::Remove(Named { store, name }) => {
            let store = store_args.options()?.open(store)?;
            store.remove_space(&name)?;
            store.close()?;
            out.put(&Removed { name, removed: true })
        }
    }
}

/// Returns why a list of the spaces may lack some: the table of spaces cannot be read, or a damaged
/// block of the ring may have changed the table.
fn lacks_some(store: &Store) -> Option<Failure> {
    let of_table = store.spaces_error().map(Failure::from);
    let of_ring = || {
        let damage = store.damage().into_iter().find(|damage| damage.place.starts_with("the ring"))?;
        Some(Failure::new(Kind::Damaged, damage.to_string()))
    };
    of_table.or_else(of_ring)
}

/// Says that an import could not count its logs in their spaces.
pub fn note_uncounted() {
    eprintln!(
        "note: some spaces do not count the new logs, or gave them no limits: configure these spaces again, by \
         `brooklet space set`; a space that limits its logs first with other limits"
    );
}

/// Prints a space as it is now.
fn show(store: &Store, name: &str, out: &mut Output) -> Result<(), Failure> {
    out.put(&Row::of(&store.space(name)?.info()?))?;
    Ok(store.close()?)
}

#[derive(Serialize)]
struct Removed {
    name: String,
    removed: bool,
}

impl fmt::Display for Removed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: removed", self.name)
    }
}

/// The result of a dump.
#[derive(Serialize)]
struct Written {
    logs: u64,
    entries: u64,
    bytes: u64,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { logs: 0, .. } => write!(f, "nothing has changed since the last dump"),
            Self { logs, entries, bytes } => {
                let (logs, entries) = (counted(*logs, "log"), counted(*entries, "entry"));
                write!(f, "{logs}, {entries}, in {}", counted(*bytes, "byte"))
            }
        }
    }
}

#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    class: &'static str,
    within_ms: Option<u64>,
    memory_bytes: Option<u64>,
    drops_oldest: Option<bool>,
    dump_every_ms: Option<u64>,
    logs: Option<u64>,
    max_logs: Option<u64>,
    bytes: Option<u64>,
    max_bytes: Option<u64>,
    #[serde(flatten)]
    limits: Limits,
    rules: Vec<RuleRow<'a>>,
}

impl<'a> Row<'a> {
    fn of(info: &'a SpaceInfo) -> Self {
        let SpaceConfig { class, max_logs, max_bytes, retention, ref rules, .. } = info.config;
        let memory = class.memory();
        let (class, within) = match class {
            Class::Deferred(bound) => ("deferred", Some(bound)),
            Class::Memory(_) => ("memory", None),
            _ => ("durable", None),
        };
        let ms = |time: Duration| time.as_millis() as u64;
        Self {
            name: &info.name,
            class,
            within_ms: within.map(ms),
            memory_bytes: memory.map(|memory| memory.bytes),
            drops_oldest: memory.map(|memory| memory.when_full == WhenFull::DropOldest),
            dump_every_ms: memory.and_then(|memory| memory.dump_every).map(ms),
            logs: info.logs,
            max_logs,
            bytes: info.bytes,
            max_bytes,
            limits: Limits::of(retention),
            rules: rules.iter().map(RuleRow::of).collect(),
        }
    }
}

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.class)?;
        if let Some(within) = self.within_ms {
            write!(f, " within {}", Span::millis(within))?;
        }
        if let Some(bytes) = self.memory_bytes {
            let full = if self.drops_oldest == Some(true) { ", then drops the oldest logs" } else { "" };
            write!(f, " of {bytes} bytes{full}")?;
        }
        if let Some(every) = self.dump_every_ms {
            write!(f, ", dumped every {}", Span::millis(every))?;
        }
        for (what, used, most) in [("log", self.logs, self.max_logs), ("byte", self.bytes, self.max_bytes)] {
            match (used, most) {
                (Some(used), Some(most)) => write!(f, ", {used} of {}", counted(most, what))?,
                (Some(used), None) => write!(f, ", {}", counted(used, what))?,
                (None, Some(most)) => write!(f, ", at most {} (not counted yet)", counted(most, what))?,
                (None, None) => {}
            }
        }
        if self.limits.are_set() {
            write!(f, "; a log keeps {}", self.limits)?;
        }
        self.rules.iter().try_for_each(|rule| write!(f, "; {rule}"))?;
        Ok(())
    }
}
