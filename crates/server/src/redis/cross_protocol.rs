//! Requests of other protocols at the port of Redis clients.
//!
//! A web page can make a browser send a POST to any address of the machine. The parser would skip
//! the lines of the head as unknown commands, and run the lines of the body. So the first line that
//! only another protocol sends ends the connection, as in Redis.

use bytes::Bytes;

/// First byte of a TLS connection. A server of a page's choice puts bytes of its choice, lines
/// among them, into the first message of a browser.
const TLS_HANDSHAKE: u8 = 0x16;

/// Returns whether a request in RESP has the name of an attack. Redis ends the connection here,
/// too, although no browser sends this form.
pub fn is_foreign_name(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"POST") || name.eq_ignore_ascii_case(b"Host:")
}

/// Returns whether the words are a line of an HTTP request, or the beginning of a TLS connection.
///
/// No command of Redis begins with such a word.
pub fn is_foreign(words: &[Bytes]) -> bool {
    let [first, rest @ ..] = words else { return false };
    // A header is a name and a colon; `Host:` comes first in most requests.
    let is_header = first.contains(&b':');
    first.first() == Some(&TLS_HANDSHAKE)
        || is_header
        || is_foreign_name(first)
        || is_request_line(first, rest)
}

/// Returns whether the words are `METHOD TARGET HTTP/1.1`.
fn is_request_line(method: &[u8], rest: &[Bytes]) -> bool {
    let [target, .., version] = rest else { return false };
    let names_target = matches!(target.first(), Some(b'/' | b'*'))
        || target.windows(3).any(|part| part == b"://")
        || method.eq_ignore_ascii_case(b"CONNECT");
    let names_version = match **version {
        [b'H' | b'h', b'T' | b't', b'T' | b't', b'P' | b'p', b'/', major, b'.', minor] => {
            major.is_ascii_digit() && minor.is_ascii_digit()
        }
        _ => false,
    };
    names_target && names_version
}

#[cfg(test)]
mod tests {
    use super::super::proto::split;
    use super::*;

    #[test]
    fn lines_of_http_are_told_from_commands() {
        for foreign in [
            "POST / HTTP/1.1",
            "post",
            "Host: 127.0.0.1:6379",
            "Host:127.0.0.1:6379",
            "Content-Type: text/plain",
            "GET / HTTP/1.1",
            "get /a b http/1.0",
            "SET /key HTTP/1.1",
            "OPTIONS * HTTP/1.1",
            "GET http://127.0.0.1:6379/ HTTP/1.1",
            "CONNECT 127.0.0.1:6379 HTTP/1.1",
            "PRI * HTTP/2.0",
            "\u{16}\u{3}\u{1}",
        ] {
            assert!(is_foreign(&split(foreign.as_bytes()).unwrap()), "{foreign}");
        }
        for command in [
            "",
            "GET a",
            "GET /a",
            "SET /a b",
            "SET a HTTP/1.1",
            "SET /a HTTP/1.1x",
            "RPUSH POST Host: x",
            "SET a:b http://x/",
        ] {
            assert!(!is_foreign(&split(command.as_bytes()).unwrap()), "{command}");
        }
    }
}
