//! Access over HTTP: with a password, clients that know the password; without one, only programs of
//! this machine, and no web page in a browser.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// What tells whether a name and a password are good for everything.
pub type Accepts = Arc<dyn Fn(&str, &[u8]) -> bool + Send + Sync>;

/// Whether probes may ask for it without a password: it says only whether the server is well.
fn is_probe(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz")
}

/// Lets through who may ask.
pub fn guard(router: axum::Router, password: Option<Accepts>) -> axum::Router {
    router.layer(from_fn(move |request: Request, next: Next| {
        let password = password.clone();
        async move {
            match refusal(&request, password.as_ref()) {
                Some(refusal) => refusal,
                None => next.run(request).await,
            }
        }
    }))
}

fn refusal(request: &Request, password: Option<&Accepts>) -> Option<Response> {
    match password {
        _ if is_probe(request.uri().path()) => None,
        Some(accepts) if gives_password(request.headers(), accepts) => None,
        Some(_) => {
            let ask = [(header::WWW_AUTHENTICATE, "Basic realm=\"brooklet\"")];
            Some(
                (StatusCode::UNAUTHORIZED, ask, "send a name and its password as Basic authorization\n")
                    .into_response(),
            )
        }
        None if is_of_this_machine(request.headers()) => None,
        None => {
            let why = "without a password, the server accepts only requests that name the server by its address, or as localhost\n";
            Some((StatusCode::FORBIDDEN, why).into_response())
        }
    }
}

fn gives_password(headers: &HeaderMap, accepts: &Accepts) -> bool {
    let given = || {
        let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, rest) = text.split_once(' ')?;
        if scheme.eq_ignore_ascii_case("bearer") {
            return Some(accepts("default", rest.trim().as_bytes()));
        }
        let decoded = scheme.eq_ignore_ascii_case("basic").then(|| STANDARD.decode(rest.trim()).ok())??;
        let colon = decoded.iter().position(|&b| b == b':')?;
        let name = std::str::from_utf8(&decoded[..colon]).ok()?;
        Some(accepts(if name.is_empty() { "default" } else { name }, &decoded[colon + 1..]))
    };
    given().unwrap_or(false)
}

/// Whether the server is named by an address or as this machine: a page of some other name, which
/// its owner points here, is not to read what lies here by the browser of somebody who sits here.
fn is_of_this_machine(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST) else { return true };
    let Ok(host) = host.to_str() else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: header::HeaderName, value: &str) -> HeaderMap {
        [(name, value.parse().unwrap())].into_iter().collect()
    }

    #[test]
    fn this_machine_is_known_by_its_addresses() {
        for good in ["localhost", "localhost:8379", "127.0.0.1:8379", "[::1]:8379", "10.0.0.7"] {
            assert!(is_of_this_machine(&headers(header::HOST, good)), "{good}");
        }
        for bad in ["evil.example", "localhost.evil.example:8379", "127.0.0.1.evil.example", ""] {
            assert!(!is_of_this_machine(&headers(header::HOST, bad)), "{bad}");
        }
    }

    #[test]
    fn passwords_come_in_either_form() {
        let accepts: Accepts = Arc::new(|name, password| name == "default" && password == b"a:b");
        let given = |value: &str| gives_password(&headers(header::AUTHORIZATION, value), &accepts);
        assert!(given("Bearer a:b") && given(&format!("basic {}", STANDARD.encode("default:a:b"))));
        assert!(given(&format!("Basic {}", STANDARD.encode(":a:b"))));
        for bad in ["Bearer a", "Basic a:b", "Basic", "", &format!("Basic {}", STANDARD.encode("eve:a:b"))] {
            assert!(!given(bad), "{bad}");
        }
    }
}
