//! Encodes replies, in either version of the protocol.

use bytes::{BufMut, BytesMut};

/// The versions of the protocol that a client may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// RESP2, which every client knows.
    Two,
    /// RESP3: maps, sets, doubles and nulls of their own.
    Three,
}

/// Where replies are written.
#[derive(Debug)]
pub struct Reply {
    pub(super) bytes: BytesMut,
    /// The version that the client chose.
    pub version: Version,
}

impl Reply {
    /// Nothing yet, in RESP2.
    pub fn new() -> Self {
        Self { bytes: BytesMut::new(), version: Version::Two }
    }

    fn line(&mut self, sign: u8, text: &[u8]) {
        self.bytes.reserve(text.len() + 3);
        self.bytes.put_u8(sign);
        self.bytes.put_slice(text);
        self.bytes.put_slice(b"\r\n");
    }

    fn counted(&mut self, sign: u8, n: i64) {
        // Most numbers are short, and this is on the way of every reply.
        let mut digits = [0; 24];
        let mut at = digits.len();
        let mut rest = n.unsigned_abs();
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if n < 0 {
            at -= 1;
            digits[at] = b'-';
        }
        self.line(sign, &digits[at..]);
    }

    fn is_three(&self) -> bool {
        self.version == Version::Three
    }

    /// A word.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// The word that says that all is well.
    pub fn ok(&mut self) {
        self.simple("OK");
    }

    /// An error; its first word is its kind.
    pub fn error(&mut self, text: &str) {
        let line: Vec<u8> = text.bytes().map(|b| if b == b'\r' || b == b'\n' { b' ' } else { b }).collect();
        self.line(b'-', &line);
    }

    /// A number.
    pub fn int(&mut self, n: i64) {
        self.counted(b':', n);
    }

    /// A count.
    pub fn count(&mut self, n: usize) {
        self.int(n as i64);
    }

    /// Yes or no, as a number.
    pub fn flag(&mut self, is_so: bool) {
        self.int(i64::from(is_so));
    }

    /// Bytes.
    pub fn bulk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.counted(b'$', bytes.len() as i64);
        self.bytes.reserve(bytes.len() + 2);
        self.bytes.put_slice(bytes);
        self.bytes.put_slice(b"\r\n");
    }

    /// Bytes, or nothing.
    pub fn bulk_or_null(&mut self, bytes: Option<impl AsRef<[u8]>>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// Text for people, which clients show as it is.
    pub fn verbatim(&mut self, text: &str) {
        if !self.is_three() {
            return self.bulk(text);
        }
        self.counted(b'=', text.len() as i64 + 4);
        self.bytes.put_slice(b"txt:");
        self.bytes.put_slice(text.as_bytes());
        self.bytes.put_slice(b"\r\n");
    }

    /// A number with a fraction.
    pub fn double(&mut self, n: f64) {
        if self.is_three() { self.line(b',', n.to_string().as_bytes()) } else { self.bulk(n.to_string()) }
    }

    /// Nothing, where bytes could be.
    pub fn null(&mut self) {
        self.bytes.put_slice(if self.is_three() { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// Nothing, where an array could be.
    pub fn null_array(&mut self) {
        self.bytes.put_slice(if self.is_three() { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// The head of an array; `n` replies follow.
    pub fn array(&mut self, n: usize) {
        self.counted(b'*', n as i64);
    }

    /// The head of a map; `n` pairs of replies follow.
    pub fn map(&mut self, n: usize) {
        if self.is_three() { self.counted(b'%', n as i64) } else { self.array(2 * n) }
    }

    /// The head of a set; `n` replies follow.
    pub fn set(&mut self, n: usize) {
        self.counted(if self.is_three() { b'~' } else { b'*' }, n as i64);
    }

    /// An array of bytes.
    pub fn bulks<T: AsRef<[u8]>>(&mut self, all: &[T]) {
        self.array(all.len());
        all.iter().for_each(|bytes| self.bulk(bytes));
    }
}

impl Default for Reply {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(version: Version, write: impl FnOnce(&mut Reply)) -> String {
        let mut reply = Reply::new();
        reply.version = version;
        write(&mut reply);
        String::from_utf8(reply.bytes.to_vec()).unwrap()
    }

    #[test]
    fn each_kind_of_reply_is_written_in_both_versions() {
        type Write = fn(&mut Reply);
        let cases: [(Write, &str, &str); 11] = [
            (|r| r.ok(), "+OK\r\n", "+OK\r\n"),
            (|r| r.error("ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n"),
            (|r| r.int(i64::MIN), ":-9223372036854775808\r\n", ":-9223372036854775808\r\n"),
            (|r| r.int(0), ":0\r\n", ":0\r\n"),
            (|r| r.bulk("a\r\n"), "$3\r\na\r\n\r\n", "$3\r\na\r\n\r\n"),
            (|r| r.null(), "$-1\r\n", "_\r\n"),
            (|r| r.null_array(), "*-1\r\n", "_\r\n"),
            (|r| r.map(2), "*4\r\n", "%2\r\n"),
            (|r| r.set(2), "*2\r\n", "~2\r\n"),
            (|r| r.double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n"),
            (|r| r.verbatim("hi"), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"),
        ];
        for (write, two, three) in cases {
            assert_eq!((written(Version::Two, write).as_str()), two);
            assert_eq!((written(Version::Three, write).as_str()), three);
        }
    }
}
