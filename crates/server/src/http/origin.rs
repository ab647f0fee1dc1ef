//! Web pages in browsers: which origins may use the server, and how browsers learn of it.
//!
//! A browser sends requests of any page to any address. For pages of other origins, the server
//! relies on two headers that a page cannot forge: `Sec-Fetch-Site`, and `Origin`.

use std::str::FromStr;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, Response, StatusCode};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
pub const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
/// Headers of replies that allowed pages may read.
const EXPOSED: &str = "ETag, Location, Stream-Next-Offset, Stream-Cursor, Stream-Up-To-Date, Stream-Closed, Stream-TTL, \
                       Stream-Expires-At, Stream-SSE-Data-Encoding, Producer-Epoch, Producer-Seq, \
                       Producer-Expected-Seq, Producer-Received-Seq, Accept-Patch, Idempotency-Replayed, \
                       Retry-After, Allow";
/// Headers of requests that allowed pages may send.
const ACCEPTED: &str = "Authorization, Content-Type, If-Match, If-None-Match, Idempotency-Key, Last-Event-ID, \
                        Document-Author, Stream-Seq, Stream-TTL, Stream-Expires-At, \
                        Stream-Closed, Stream-Forked-From, Stream-Fork-Offset, Stream-Fork-Sub-Offset, Producer-Id, \
                        Producer-Epoch, Producer-Seq";
/// Seconds for which a browser may remember the reply to a preflight.
const MAX_AGE: &str = "86400";

/// An origin whose pages may use the server: `https://app.example`, or `*` for all origins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Every origin.
    Any,
    /// One origin, as browsers write it.
    One(String),
}

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let lower = text.to_ascii_lowercase();
        let (scheme, authority) = lower.split_once("://").unwrap_or(("", ""));
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
        if scheme.is_empty() || authority.is_empty() || !authority.bytes().all(is_host) {
            return Err(format!("{text} is not an origin: use SCHEME://HOST, SCHEME://HOST:PORT, or *"));
        }
        let default_port = match scheme {
            "http" => ":80",
            "https" => ":443",
            _ => "",
        };
        let authority = authority.strip_suffix(default_port).unwrap_or(authority);
        Ok(Self::One(format!("{scheme}://{authority}")))
    }
}

/// The page that a request comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Page {
    /// A page of the server, or a program that is no browser.
    Own,
    /// A page of an allowed origin.
    Allowed(HeaderValue),
    /// A page of another origin.
    Foreign,
}

impl Page {
    /// Returns the page that sent these headers.
    pub fn of(headers: &HeaderMap, allowed: &[Origin]) -> Self {
        let origin = headers.get(header::ORIGIN);
        let is_allowed = |origin: &HeaderValue| {
            allowed.iter().any(|allowed| match allowed {
                Origin::Any => true,
                Origin::One(one) => origin.as_bytes() == one.as_bytes(),
            })
        };
        let site = headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes);
        match (origin, site) {
            (Some(origin), _) if is_allowed(origin) => Self::Allowed(origin.clone()),
            (None, Some(_)) if allowed.contains(&Origin::Any) => Self::Own,
            (_, Some(b"same-origin" | b"none")) | (None, None) => Self::Own,
            (_, Some(_)) => Self::Foreign,
            (Some(origin), None) if is_of_host(origin, headers) => Self::Own,
            (Some(_), None) => Self::Foreign,
        }
    }

    /// Adds what a browser needs to hand the reply to an allowed page.
    pub fn mark(&self, response: &mut Response<Body>, allowed: &[Origin]) {
        if allowed.is_empty() {
            return;
        }
        let headers = response.headers_mut();
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
        if let Self::Allowed(origin) = self {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
            headers.insert(RESOURCE_POLICY, HeaderValue::from_static("cross-origin"));
        }
    }
}

/// Returns whether an origin is the host that the request names: browsers without `Sec-Fetch-Site`
/// send `Origin` from pages of the server, too.
fn is_of_host(origin: &HeaderValue, headers: &HeaderMap) -> bool {
    let text = |value: &HeaderValue| value.to_str().ok().map(str::to_ascii_lowercase);
    let (Some(origin), Some(host)) = (text(origin), headers.get(header::HOST).and_then(text)) else {
        return false;
    };
    ["http://", "https://"].iter().any(|scheme| origin.strip_prefix(scheme) == Some(&host))
}

/// Returns whether a browser asks if a page may send a request.
///
/// The reply shows no data, so that it needs no password: browsers send none with this question.
pub fn is_preflight(request: &Request) -> bool {
    let headers = request.headers();
    request.method() == Method::OPTIONS
        && headers.contains_key(header::ORIGIN)
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Answers a preflight. [`Page::mark`] adds the permission; without it, the browser refuses.
pub fn preflight() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    for (name, value) in [
        (header::ALLOW, METHODS),
        (header::ACCESS_CONTROL_ALLOW_METHODS, METHODS),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, ACCEPTED),
        (header::ACCESS_CONTROL_MAX_AGE, MAX_AGE),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(pairs: &[(&'static str, &'static str)], allowed: &[&str]) -> Page {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let allowed: Vec<Origin> = allowed.iter().map(|origin| origin.parse().unwrap()).collect();
        Page::of(&pairs.iter().map(pair).collect(), &allowed)
    }

    #[test]
    fn origins_are_written_as_browsers_send_them() {
        for (text, origin) in [
            ("https://App.example", "https://app.example"),
            ("https://app.example:443", "https://app.example"),
            ("http://localhost:80", "http://localhost"),
            ("http://localhost:5173", "http://localhost:5173"),
            ("http://[::1]:5173", "http://[::1]:5173"),
            ("tauri://localhost", "tauri://localhost"),
        ] {
            assert_eq!(text.parse::<Origin>().unwrap(), Origin::One(origin.into()));
        }
        assert_eq!("*".parse::<Origin>().unwrap(), Origin::Any);
        for bad in ["", "null", "app.example", "https://", "https://a/", "https://a/b", "https://*.a", "a b"]
        {
            assert!(bad.parse::<Origin>().is_err(), "{bad}");
        }
    }

    #[test]
    fn pages_of_other_origins_are_foreign() {
        let host = ("host", "127.0.0.1:8379");
        for own in [
            &[host][..],
            &[host, ("sec-fetch-site", "none")],
            &[host, ("sec-fetch-site", "same-origin"), ("origin", "http://127.0.0.1:8379")],
            &[host, ("origin", "http://127.0.0.1:8379")],
            // A proxy in front of the server may change the host, and the browser knows better.
            &[host, ("sec-fetch-site", "same-origin"), ("origin", "https://store.example")],
        ] {
            assert_eq!(page(own, &["https://app.example"]), Page::Own, "{own:?}");
        }
        for foreign in [
            &[host, ("sec-fetch-site", "cross-site")][..],
            &[host, ("sec-fetch-site", "same-site")],
            &[host, ("sec-fetch-site", "anything")],
            &[host, ("sec-fetch-site", "cross-site"), ("origin", "http://127.0.0.1:8379")],
            &[host, ("origin", "http://evil.example")],
            &[host, ("origin", "http://127.0.0.1")],
            &[host, ("origin", "null")],
            &[("origin", "http://127.0.0.1:8379")],
            &[host, ("origin", "https://app.example.evil.example")],
        ] {
            assert_eq!(page(foreign, &["https://app.example"]), Page::Foreign, "{foreign:?}");
        }
    }

    #[test]
    fn allowed_pages_are_known_by_their_origin() {
        let app = [("origin", "https://app.example"), ("sec-fetch-site", "cross-site")];
        let known = Page::Allowed(HeaderValue::from_static("https://app.example"));
        assert_eq!(page(&app, &["https://x.example", "https://app.example"]), known);
        assert_eq!(page(&app, &["*"]), known);
        assert_eq!(page(&app, &[]), Page::Foreign);
        // Requests of images and scripts do not name their page.
        assert_eq!(page(&app[1..], &["https://app.example"]), Page::Foreign);
        assert_eq!(page(&app[1..], &["*"]), Page::Own);
    }
}
