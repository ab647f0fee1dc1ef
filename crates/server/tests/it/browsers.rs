//! Web pages in browsers, and passwords over HTTP: which requests are let through.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use brooklet::Store;
use brooklet_server::Config;

use crate::redis::client::Server;

const EVIL: (&str, &str) = ("origin", "http://evil.example");
const APP: (&str, &str) = ("origin", "https://app.example");
const CROSS: (&str, &str) = ("sec-fetch-site", "cross-site");
const TEXT: (&str, &str) = ("content-type", "text/plain");
/// The user `default` with the password `pw`.
const BASIC: (&str, &str) = ("authorization", "Basic ZGVmYXVsdDpwdw==");

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(known, _)| known.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }
}

fn server(config: Config) -> Server {
    let http = vec!["127.0.0.1:0".parse().unwrap()];
    Server::with(Store::in_memory(1).unwrap(), Config { http, ..config })
}

/// Sends one request; `headers` may replace the host.
fn ask(server: &Server, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut stream = TcpStream::connect(&server.http).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let host = [("host", server.http.as_str())];
    let host = if headers.iter().any(|(name, _)| *name == "host") { &[][..] } else { &host };
    let fields = host.iter().chain(headers).map(|(name, value)| format!("{name}: {value}\r\n"));
    let fields: String = fields.collect();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\n{fields}connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.into(), body: body.into() }
}

fn status(server: &Server, method: &str, path: &str, headers: &[(&str, &str)]) -> u16 {
    ask(server, method, path, headers, "").status
}

#[test]
fn pages_of_other_origins_neither_see_nor_change_anything() {
    let server = server(Config::default());
    assert_eq!(ask(&server, "PUT", "/v1/stream/s", &[TEXT], "mine").status, 201);
    for who in
        [&[EVIL][..], &[CROSS], &[EVIL, CROSS], &[("origin", "null")], &[("sec-fetch-site", "same-site")]]
    {
        for (method, path) in [
            ("POST", "/v1/stream/s"),
            ("PUT", "/v1/stream/new"),
            ("DELETE", "/v1/stream/s"),
            ("GET", "/v1/stream/s"),
            ("HEAD", "/v1/stream/s"),
            ("GET", "/v1/stream/s?offset=-1&live=sse"),
            ("PUT", "/v1/documents/d"),
            ("PATCH", "/v1/documents/d"),
            ("GET", "/v1/documents/d"),
            ("DELETE", "/v1/documents/d"),
            ("GET", "/api/live"),
            ("GET", "/api/logs"),
            ("GET", "/api/log?key=0/x"),
            ("GET", "/metrics"),
        ] {
            let headers: Vec<_> = who.iter().copied().chain([TEXT]).collect();
            let answer = ask(&server, method, path, &headers, if method == "POST" { "theirs" } else { "" });
            assert_eq!(answer.status, 403, "{method} {path} {who:?}");
            assert_eq!(answer.header("access-control-allow-origin"), "");
        }
        // They hold no data, and people follow links to them.
        for path in ["/", "/page/main.js", "/healthz", "/readyz"] {
            assert_eq!(status(&server, "GET", path, who), 200, "{path} {who:?}");
        }
    }
    assert_eq!(ask(&server, "GET", "/v1/stream/s", &[], "").body, "mine");
    assert_eq!(status(&server, "GET", "/v1/stream/new", &[]), 404);
    let own = format!("http://{}", server.http);
    for who in [("origin", own.as_str()), ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "none")] {
        assert_eq!(status(&server, "GET", "/api/logs", &[who]), 200, "{who:?}");
    }
}

#[test]
fn a_name_that_somebody_points_here_reads_nothing() {
    let server = server(Config::default());
    for host in ["evil.example", "evil.example:80", "[::1].evil.example", "localhost@evil.example"] {
        for path in ["/", "/api/logs", "/v1/stream/s", "/v1/documents/d"] {
            assert_eq!(status(&server, "GET", path, &[("host", host)]), 403, "{host} {path}");
        }
    }
    assert_eq!(status(&server, "GET", "/api/logs", &[("host", "localhost:1")]), 200);
    assert_eq!(status(&server, "GET", "http://evil.example/api/logs", &[]), 403);
}

#[test]
fn pages_of_allowed_origins_may_use_the_streams() {
    for password in [None, Some("pw".to_owned())] {
        let needs_password = password.is_some();
        let mut config = Config { password, ..Config::default() };
        config.streams.allow_origins = vec!["https://app.example".parse().unwrap()];
        let server = server(config);
        // A browser asks before it sends the password.
        let asks = [APP, CROSS, ("access-control-request-method", "PUT")];
        let answer = ask(&server, "OPTIONS", "/v1/stream/s", &asks, "");
        assert_eq!((answer.status, answer.header("access-control-allow-origin")), (204, APP.1));
        assert!(answer.header("access-control-allow-methods").contains("PUT"));
        for name in ["Authorization", "Content-Type", "Producer-Id", "If-None-Match"] {
            assert!(answer.header("access-control-allow-headers").contains(name), "{name}");
        }
        assert_eq!(answer.header("vary"), "Origin");
        let answer = ask(&server, "OPTIONS", "/v1/documents/d", &asks, "");
        assert!(answer.header("access-control-allow-methods").contains("PATCH"));
        for name in ["If-Match", "Idempotency-Key", "Last-Event-ID", "Document-Author"] {
            assert!(answer.header("access-control-allow-headers").contains(name), "{name}");
        }
        let made = [APP, CROSS, BASIC, ("if-none-match", "*"), ("content-type", "application/json")];
        let made = ask(&server, "PUT", "/v1/documents/d", &made, "1");
        assert_eq!((made.status, made.header("access-control-allow-origin")), (201, APP.1));
        // In an earlier state a page that was asked to come again later could not read when.
        for name in ["ETag", "Retry-After", "Allow"] {
            let mut exposed = made.header("access-control-expose-headers").split(", ");
            assert!(exposed.any(|exposed| exposed == name), "{name}");
        }
        let refused = status(&server, "GET", "/v1/documents/d", &[APP, CROSS]);
        assert_eq!(refused, if needs_password { 401 } else { 200 });
        let asks = [EVIL, CROSS, ("access-control-request-method", "PUT")];
        let answer = ask(&server, "OPTIONS", "/v1/stream/s", &asks, "");
        assert_eq!(answer.header("access-control-allow-origin"), "");

        let made = ask(&server, "PUT", "/v1/stream/s", &[APP, CROSS, TEXT, BASIC], "theirs");
        assert_eq!((made.status, made.header("access-control-allow-origin")), (201, APP.1));
        assert!(made.header("access-control-expose-headers").contains("Stream-Next-Offset"));
        // The page learns of refusals, too.
        let refused = ask(&server, "GET", "/v1/stream/s", &[APP, CROSS], "");
        assert_eq!(
            (refused.status == 401, refused.header("access-control-allow-origin")),
            (needs_password, APP.1)
        );
        // A browser sends a password that it knows with requests of any page.
        assert_eq!(status(&server, "POST", "/v1/stream/s", &[EVIL, CROSS, TEXT, BASIC]), 403);
        assert_eq!(ask(&server, "GET", "/v1/stream/s", &[BASIC], "").body, "theirs");
    }
}

#[test]
fn bodies_do_not_run_as_pages_of_the_server() {
    let server = server(Config::default());
    let html = [("content-type", "text/html")];
    let made = ask(&server, "PUT", "/v1/stream/s", &html, "<script>document.title = 'ran'</script>");
    let read = ask(&server, "GET", "/v1/stream/s", &[], "");
    let missing = ask(&server, "GET", "/v1/stream/missing", &[], "");
    let document = ask(&server, "PUT", "/v1/documents/d", &[("if-none-match", "*")], "\"<script>\"");
    let got = ask(&server, "GET", "/v1/documents/d", &[], "");
    let absent = ask(&server, "GET", "/v1/documents/none", &[], "");
    for answer in [made, read, missing, document, got, absent] {
        assert_eq!(answer.header("content-security-policy"), "sandbox", "{answer:?}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{answer:?}");
        assert_eq!(answer.header("cross-origin-resource-policy"), "same-origin", "{answer:?}");
    }
}

#[test]
fn shared_caches_keep_nothing_that_needs_a_password() {
    let server = server(Config { password: Some("pw".into()), ..Config::default() });
    assert_eq!(ask(&server, "PUT", "/v1/stream/s", &[TEXT, BASIC], "mine").status, 201);
    let read = ask(&server, "GET", "/v1/stream/s", &[BASIC], "");
    assert!(read.header("cache-control").starts_with("private, max-age="), "{read:?}");
    let known = [BASIC, ("if-none-match", read.header("etag"))];
    let unchanged = ask(&server, "GET", "/v1/stream/s", &known, "");
    assert_eq!(unchanged.status, 304);
    assert!(unchanged.header("cache-control").starts_with("private, "), "{unchanged:?}");
    assert_eq!(ask(&server, "GET", "/v1/stream/s", &[], "").header("cache-control"), "no-store");
}

/// Changes of users by Redis clients hold at once on HTTP.
#[test]
fn changed_users_are_changed_on_http() {
    let server = server(Config::default());
    let mut admin = server.client();
    let is_let_in = |headers: &[(&str, &str)]| match status(&server, "GET", "/api/logs", headers) {
        200 => true,
        401 => false,
        other => panic!("{other}"),
    };
    assert!(is_let_in(&[]));
    assert_eq!(admin.say("ACL SETUSER default resetpass >pw"), "OK");
    assert!(!is_let_in(&[]) && is_let_in(&[BASIC]));
    assert_eq!(status(&server, "PUT", "/v1/stream/s", &[TEXT]), 401);
    assert_eq!(status(&server, "GET", "/", &[]), 401);
    assert_eq!(admin.say("ACL SETUSER default nopass"), "OK");
    assert!(is_let_in(&[]));
    // A user with fewer rights is no user for HTTP, which has no rights per key.
    assert_eq!(admin.say("ACL SETUSER ada on >ada ~* +@all"), "OK");
    assert_eq!(admin.say("ACL SETUSER default -flushall"), "OK");
    let ada = ("authorization", "Basic YWRhOmFkYQ==");
    assert!(!is_let_in(&[]) && is_let_in(&[ada]));
    let mut second = server.client();
    assert_eq!(second.say("AUTH ada ada"), "OK");
    assert_eq!(second.say("ACL SETUSER default on nopass +@all"), "OK");
    assert!(is_let_in(&[]));
    assert_eq!(second.say("ACL SETUSER default off"), "OK");
    assert!(!is_let_in(&[]) && is_let_in(&[ada]));
    assert_eq!(second.say("ACL SETUSER ada resetpass >other"), "OK");
    assert!(!is_let_in(&[ada]));
}
