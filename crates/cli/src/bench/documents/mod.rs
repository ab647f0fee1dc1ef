//! `bench documents`: documents of JSON under the load of a collaborative service, and what
//! documents cost beside bare appends and bare reads.
//!
//! `offered` is the steady load, `idle` the memory of documents at rest, and `costs` are the other
//! measurements.

mod costs;
mod idle;
mod offered;

use std::path::PathBuf;
use std::time::Duration;

use brooklet::Store;
use brooklet::io::Rng;
use brooklet_documents::{Documents, Json, JsonChange, Options};
use serde_json::{Map, Value};

use super::row::Table;
use crate::failure::Failure;
use crate::output::Output;
use crate::size::count;
use crate::time;

/// Arguments of `brooklet bench documents`.
#[derive(clap::Args)]
pub struct Args {
    /// The folder of the stores, which are removed at the end
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Number of documents that are patched; also as 1e4
    #[arg(long, default_value = "1e4", value_parser = count)]
    documents: u64,
    /// Patches per second of the steady load
    #[arg(long, default_value_t = 19_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// Time of the steady load, in seconds or with a unit (ms, s, m)
    #[arg(long, value_name = "TIME", default_value = "60", value_parser = seconds)]
    seconds: Duration,
    /// Rounds of the other measurements; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Number of idle documents, whose memory is measured; also as 1e7
    #[arg(long, default_value = "1e6", value_parser = count)]
    idle: u64,
    /// Used by the command itself: measure the memory that the store at this path takes
    #[arg(long, hide = true)]
    gauge: Option<PathBuf>,
    /// Used by the command itself: how long that store rests before
    #[arg(long, hide = true, default_value = "1", value_parser = seconds)]
    rest: Duration,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(100)..=Duration::from_secs(3600);
    time::seconds(text, range).ok_or_else(|| "use 0.1 to 3600".to_owned())
}

/// Where the documents are in the store.
const PREFIX: &str = "docs/";
/// Updates between two snapshots.
const SNAPSHOT: u64 = 100;

/// Measures, and prints the table.
pub fn run(args: Args, out: &mut Output) -> Result<(), Failure> {
    if let Some(path) = &args.gauge {
        return out.document(&idle::gauge(path, args.idle, args.rest)?);
    }
    let dir = tempfile::Builder::new().prefix("brooklet-bench-").tempdir_in(&args.dir)?;
    let documents = args.documents.max(64);
    let mut rows = offered::rows(dir.path(), documents, args.rate, args.seconds)?;
    rows.push(costs::waiting(&dir.path().join("waiting"), documents, args.rounds)?);
    rows.push(costs::processor(&dir.path().join("processor"), documents, args.rounds)?);
    rows.push(costs::loads(&dir.path().join("loads"), documents, args.rounds)?);
    rows.push(idle::memory(dir.path(), args.idle, args.seconds)?);
    let patches = u64::from(args.rate) * args.seconds.as_secs();
    out.put(&Table::new(patches, args.rounds, 0, rows))
}

/// Opens the documents of a store.
fn open(store: &Store, cache: usize) -> Result<Documents<Json>, Failure> {
    let options = Options::new(PREFIX).snapshot_updates(SNAPSHOT).cache_budget(cache);
    Ok(Documents::open(store, Json::new(), options)?)
}

/// The name of document number `n`.
fn name(n: u64) -> String {
    format!("plan-{n:08}")
}

/// A document as it begins: some fields, as those of a form or of a shape on a board.
fn first(rng: &mut Rng) -> Value {
    let field = |n: u64, rng: &mut Rng| (format!("field{n}"), Value::from(rng.below(100_000)));
    Value::Object((0..12).map(|n| field(n, rng)).collect())
}

/// A change of one or two fields, some with a text: 40 to 120 bytes.
fn delta(rng: &mut Rng) -> JsonChange {
    let mut fields = Map::new();
    fields.insert(format!("field{}", rng.below(12)), rng.below(100_000).into());
    if rng.below(3) == 0 {
        let text: String = (0..20 + rng.below(60)).map(|_| (b'a' + rng.below(26) as u8) as char).collect();
        fields.insert(format!("text{}", rng.below(4)), text.into());
    }
    JsonChange::merge(Value::Object(fields))
}
