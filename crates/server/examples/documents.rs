//! A page in which several windows edit one document, on a store in a temporary folder:
//! `cargo run -p brooklet-server --example documents [PORT]`.
//!
//! It says where it is, and serves until its standard input ends. Open the address in two windows.

use std::error::Error;
use std::io::{Read, stdin};

use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::serve::ListenerExt;
use brooklet::Options;
use brooklet_server::http::{Config, Http, serve, welcome};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The page asks nobody but this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'";

/// Serves a file of the page.
fn file(kind: &'static str, text: &'static str) -> axum::routing::MethodRouter {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    get(move || async move { (headers, text).into_response() })
}

fn page() -> Router {
    Router::new()
        .route("/", file("text/html; charset=utf-8", include_str!("documents/index.html")))
        .route("/main.js", file("text/javascript; charset=utf-8", include_str!("documents/main.js")))
        .route("/replica.js", file("text/javascript; charset=utf-8", include_str!("documents/replica.js")))
        .route("/style.css", file("text/css; charset=utf-8", include_str!("documents/style.css")))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port = std::env::args().nth(1).map_or(Ok(0), |port| port.parse::<u16>())?;
    let folder = tempfile::tempdir()?;
    let store = Options::new().ring_size(16 << 20).open(folder.path().join("documents.brooklet"))?;
    let (config, stop) = (Config::default(), CancellationToken::new());
    let http = Http::new(store.clone(), config.clone(), stop.clone())?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("http://{}/", listener.local_addr()?);
    let until = stop.clone();
    tokio::task::spawn_blocking(move || {
        // The end of the input is the end of the program.
        drop(stdin().read_to_end(&mut Vec::new()));
        until.cancel();
    });
    // Events are small, and must not wait for the next.
    let listener = listener.tap_io(|connection| drop(connection.set_nodelay(true)));
    serve(listener, http.router().merge(welcome(page())), &config, stop).await;
    drop(http);
    store.close()?;
    Ok(())
}
