//! The page itself: a few files in the program, so that it needs no other server and no network.

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Nothing runs or is asked for but what this server gives, and no other page shows this one.
pub(super) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

const PARTS: [(&str, &str, &str); 8] = [
    ("style.css", CSS, include_str!("page/style.css")),
    ("main.js", SCRIPT, include_str!("page/main.js")),
    ("show.js", SCRIPT, include_str!("page/show.js")),
    ("chart.js", SCRIPT, include_str!("page/chart.js")),
    ("browse.js", SCRIPT, include_str!("page/browse.js")),
    ("make.js", SCRIPT, include_str!("page/make.js")),
    ("units.js", SCRIPT, include_str!("page/units.js")),
    ("icon.svg", SVG, include_str!("page/icon.svg")),
];

pub(super) async fn index() -> Response {
    given(HTML, include_str!("page/index.html"))
}

pub(super) async fn part(Path(name): Path<String>) -> Response {
    match PARTS.iter().find(|(part, ..)| *part == name) {
        Some((_, kind, text)) => given(kind, text),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// A new version of the server has a new page.
fn given(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")], text).into_response()
}
