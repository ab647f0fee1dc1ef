//! Access over HTTP: with a password, clients that know the password; without one, only programs of
//! this machine. Web pages of other origins have access only where the configuration allows them.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::body::discard;
use super::origin::{Origin, Page, is_preflight, preflight};
use super::strangers::Caller;

/// Longest time in which the body of a request that is refused is taken in.
const PATIENCE: Duration = Duration::from_secs(30);

/// Decides who may do everything. The answers may change while the server runs.
pub trait Access: Send + Sync {
    /// Returns whether clients need no password.
    fn is_open(&self) -> bool;

    /// Returns whether a name and a password permit everything.
    fn accepts(&self, name: &str, password: &[u8]) -> bool;

    /// Notes that the client at an address gave a name and a password that are not accepted. Does
    /// nothing by default.
    fn note_wrong(&self, name: &str, address: &str) {
        let _ = (name, address);
    }
}

/// Returns whether probes may ask without a password: the reply says only whether the server is
/// well.
fn is_probe(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz")
}

/// Returns whether a request is for the files of the page, which are the same for all stores:
/// other sites may link to it.
fn is_page(request: &Request) -> bool {
    let path = request.uri().path();
    matches!(*request.method(), Method::GET | Method::HEAD) && (path == "/" || path.starts_with("/page/"))
}

/// Lets requests through that `access` and the allowed origins permit. Takes in the body of a
/// request that it refuses, up to a point: many clients read the reply only once they have sent the
/// body, and some send the password only after such a reply.
pub fn guard(router: axum::Router, access: Arc<dyn Access>, allowed: Vec<Origin>) -> axum::Router {
    let allowed: Arc<[Origin]> = allowed.into();
    router.layer(from_fn(move |mut request: Request, next: Next| {
        let (access, allowed) = (access.clone(), allowed.clone());
        async move {
            let page = Page::of(request.headers(), &allowed);
            let is_open = access.is_open();
            let mut response = if is_preflight(&request) {
                preflight()
            } else {
                match refusal(&request, &page, is_open, &*access) {
                    Some(refusal) => {
                        let (head, body) = request.into_parts();
                        discard(&head, body, PATIENCE).await;
                        refusal
                    }
                    None => {
                        if !is_open && is_probe(request.uri().path()) {
                            // Who only probes has given no password, and remains a stranger.
                            request.extensions_mut().remove::<Caller>();
                        }
                        next.run(request).await
                    }
                }
            };
            if !is_open {
                keep_private(&mut response);
            }
            page.mark(&mut response, &allowed);
            response
        }
    }))
}

fn refusal(request: &Request, page: &Page, is_open: bool, access: &dyn Access) -> Option<Response<Body>> {
    let headers = request.headers();
    if is_probe(request.uri().path()) {
        return None;
    }
    if *page == Page::Foreign && !is_page(request) {
        let why = "the server accepts no requests of web pages of other origins: \
                   allow the origin of the page with --allow-origin\n";
        return Some(refuse(StatusCode::FORBIDDEN, why));
    }
    if is_open {
        let why = "without a password, the server accepts only requests that name the server by its address, or as localhost\n";
        return (!is_of_this_machine(request)).then(|| refuse(StatusCode::FORBIDDEN, why));
    }
    if let Some((name, password)) = given(headers) {
        if access.accepts(&name, &password) {
            return None;
        }
        let address = request.extensions().get::<Caller>().map_or("?", Caller::address);
        access.note_wrong(&name, address);
    }
    let why = "send a name and its password as Basic authorization\n";
    let mut refusal = refuse(StatusCode::UNAUTHORIZED, why);
    let ask = HeaderValue::from_static("Basic realm=\"brooklet\"");
    refusal.headers_mut().insert(header::WWW_AUTHENTICATE, ask);
    Some(refusal)
}

fn refuse(status: StatusCode, why: &'static str) -> Response<Body> {
    let headers = [(header::CACHE_CONTROL, "no-store"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (status, headers, why).into_response()
}

/// Forbids shared caches to keep a reply: they would hand it to clients without a password.
fn keep_private(response: &mut Response<Body>) {
    let caching = response.headers().get(header::CACHE_CONTROL).and_then(|value| value.to_str().ok());
    let Some(rest) = caching.and_then(|value| value.strip_prefix("public")) else { return };
    if let Ok(caching) = HeaderValue::try_from(format!("private{rest}")) {
        response.headers_mut().insert(header::CACHE_CONTROL, caching);
    }
}

/// Returns the name and the password of a request.
fn given(headers: &HeaderMap) -> Option<(String, Vec<u8>)> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, rest) = text.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(("default".into(), rest.trim().into()));
    }
    let decoded = scheme.eq_ignore_ascii_case("basic").then(|| STANDARD.decode(rest.trim()).ok())??;
    let colon = decoded.iter().position(|&b| b == b':')?;
    let name = std::str::from_utf8(&decoded[..colon]).ok()?;
    Some((if name.is_empty() { "default" } else { name }.into(), decoded[colon + 1..].into()))
}

/// Returns whether a request names the server by an address or as this machine. A page of another
/// name, whose owner points the name here, could read the store by the browser of a person here.
fn is_of_this_machine(request: &Request) -> bool {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (None, _) => true,
        (Some(host), None) => is_local(host.as_bytes()),
        (Some(_), Some(_)) => false,
    };
    host && request.uri().authority().is_none_or(|authority| is_local(authority.as_str().as_bytes()))
}

/// Returns whether `HOST` or `HOST:PORT` is an address, or localhost.
fn is_local(host: &[u8]) -> bool {
    let Ok(authority) = Authority::try_from(host) else { return false };
    let (text, name) = (authority.as_str(), authority.host());
    let has_good_end =
        text.strip_prefix(name).is_some_and(|end| end.is_empty() || authority.port_u16().is_some());
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    has_good_end && (name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: header::HeaderName, value: &str) -> HeaderMap {
        [(name, value.parse().unwrap())].into_iter().collect()
    }

    #[test]
    fn this_machine_is_known_by_its_addresses() {
        for good in ["localhost", "LOCALHOST:8379", "127.0.0.1:8379", "[::1]:8379", "[::1]", "10.0.0.7"] {
            assert!(is_local(good.as_bytes()), "{good}");
        }
        for bad in [
            "evil.example",
            "localhost.evil.example:8379",
            "127.0.0.1.evil.example",
            "[::1].evil.example",
            "[::1",
            "localhost:evil",
            "127.0.0.1@evil.example",
            "user@localhost",
            "localhost/evil",
            "2130706433",
            " ",
            "",
        ] {
            assert!(!is_local(bad.as_bytes()), "{bad}");
        }
        let request = |uri: &str, hosts: &[&str]| {
            let mut request = Request::builder().uri(uri);
            for host in hosts {
                request = request.header(header::HOST, *host);
            }
            request.body(Body::empty()).unwrap()
        };
        assert!(is_of_this_machine(&request("/", &[])) && is_of_this_machine(&request("/", &["localhost"])));
        assert!(!is_of_this_machine(&request("/", &["localhost", "evil.example"])));
        assert!(!is_of_this_machine(&request("http://evil.example/", &["localhost"])));
    }

    #[test]
    fn passwords_come_in_either_form() {
        let given = |value: &str| given(&headers(header::AUTHORIZATION, value));
        let basic = |text: &str| given(&format!("basic {}", STANDARD.encode(text)));
        let of = |name: &str| Some((name.to_owned(), b"a:b".to_vec()));
        assert_eq!(given("Bearer a:b"), of("default"));
        assert_eq!((basic("default:a:b"), basic(":a:b")), (of("default"), of("default")));
        assert_eq!(basic("eve:a:b"), of("eve"));
        for bad in ["Basic a:b", "Basic", "", "Digest a:b"] {
            assert_eq!(given(bad), None, "{bad}");
        }
    }
}
