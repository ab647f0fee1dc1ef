//! Async with tokio: a thousand tasks append, await room and durability, and share the writes of
//! the disk.
//!
//! Opening, closing and long reads wait for the disk, so they belong on a thread for blocking work.
//!
//! ```sh
//! cargo run -p brooklet --example async_tokio -- STORE     # async_tokio.brooklet if left out
//! ```

use std::path::Path;

use brooklet::{Error, Store};

/// Appends from a thousand tasks at once, and reads one log back. Returns the number of
/// acknowledged appends.
pub async fn run(path: &Path) -> Result<usize, Error> {
    let path = path.to_owned();
    let store = blocking(move || Store::open(path)).await?;
    let tasks: Vec<_> = (0..1000)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move {
                store.append_async(format!("user/{}", n % 100), format!("event {n}")).await
            })
        })
        .collect();
    let mut acknowledged = 0;
    for task in tasks {
        task.await.expect("no panics")?;
        acknowledged += 1;
    }
    let reader = store.clone();
    let events = blocking(move || reader.read("user/7", ..)?.collect::<Result<Vec<_>, _>>()).await?;
    println!("{acknowledged} appends are durable; user 7 has {} events", events.len());
    blocking(move || store.close()).await?;
    Ok(acknowledged)
}

/// Runs calls that may wait for the disk on a thread for such calls.
async fn blocking<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(call).await.expect("no panics")
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    run(Path::new(std::env::args().nth(1).as_deref().unwrap_or("async_tokio.brooklet"))).await.map(drop)
}
