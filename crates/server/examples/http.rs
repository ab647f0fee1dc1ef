//! Serves the streams of a store:
//! `cargo run -p brooklet-server --example http -- STORE ADDR [LONG-POLL-SECONDS]`.

use std::time::Duration;

use axum::serve::ListenerExt;
use brooklet_server::http::{Config, Http, serve};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(store), Some(address)) = (arguments.next(), arguments.next()) else {
        return Err("give a store and an address: STORE ADDR [LONG-POLL-SECONDS]".into());
    };
    let mut config = Config::default();
    if let Some(seconds) = arguments.next() {
        config.long_poll = Duration::from_secs(seconds.parse()?);
    }
    let store = brooklet::Store::open(store)?;
    let stop = CancellationToken::new();
    let http = Http::new(store.clone(), config.clone(), stop.clone())?;
    let listener = TcpListener::bind(address).await?;
    println!("http://{}{}", listener.local_addr()?, config.prefix);
    tokio::spawn(http.clone().keep());
    let on_interrupt = stop.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            on_interrupt.cancel();
        }
    });
    // Events are small, and must not wait for the next.
    let listener = listener.tap_io(|connection| drop(connection.set_nodelay(true)));
    serve(listener, http.router(), &config, stop).await;
    store.close()?;
    Ok(())
}
