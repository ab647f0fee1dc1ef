//! Spaces and retention: groups of logs with a durability class, a quota and limits on what each
//! log keeps.
//!
//! ```sh
//! cargo run -p brooklet --example spaces -- STORE     # spaces.brooklet if left out
//! ```

use std::path::Path;
use std::time::Duration;

use brooklet::{Class, Error, Retention, SpaceConfig, Store};

/// Makes a space on the first run, and fills one of its logs beyond its limits. Returns the entries
/// that are left.
pub fn run(path: &Path) -> Result<usize, Error> {
    let store = Store::open(path)?;

    // All logs whose keys begin with `metrics/`. An append is acknowledged at once, and durable 50
    // ms later at most.
    let config = SpaceConfig::new()
        .class(Class::Deferred(Duration::from_millis(50)))
        .max_logs(10_000)
        .retention(Retention::new().entries(100).age(Duration::from_secs(24 * 3600)));
    let metrics = match store.space("metrics") {
        Ok(space) => space,
        Err(Error::UnknownSpace { .. }) => store.create_space("metrics", config)?,
        Err(error) => return Err(error),
    };

    // The space adds its name to the key: this log is `metrics/cpu` for the store.
    for n in 0..250 {
        metrics.append("cpu", format!("{n} %"))?.wait()?;
    }
    let left = store.read("metrics/cpu", ..)?.count();
    println!("{left} entries are left of 250");

    let info = metrics.info()?;
    // Counted where the space has a quota.
    println!("{:?} logs, {:?} bytes", info.logs, info.bytes);
    store.close()?;
    Ok(left)
}

fn main() -> Result<(), Error> {
    run(Path::new(std::env::args().nth(1).as_deref().unwrap_or("spaces.brooklet"))).map(drop)
}
