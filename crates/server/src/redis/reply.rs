//! Encodes replies, in either version of the protocol.

use bytes::{BufMut, BytesMut};

use super::scripts::shortest;

/// The versions of the protocol that a client may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// RESP2, which every client knows.
    Two,
    /// RESP3: maps, sets, doubles and nulls of their own.
    Three,
}

/// Longest head of an array, in bytes.
const GAP: usize = 24;
/// Longest line of a number, in bytes: a sign, a minus, 19 digits, and the end.
const HEAD: usize = 1 + 1 + 19 + 2;

/// A buffer of replies.
#[derive(Debug)]
pub struct Reply {
    pub(super) bytes: BytesMut,
    /// Most bytes of the buffer.
    limit: usize,
    /// Whether a reply did not fit.
    is_full: bool,
    /// The version that the client chose.
    pub version: Version,
}

impl Reply {
    /// Creates an empty buffer, for RESP2.
    pub fn new() -> Self {
        Self { bytes: BytesMut::new(), limit: usize::MAX, is_full: false, version: Version::Two }
    }

    /// Begins the reply to a command, with a limit for all bytes of the buffer.
    pub fn begin(&mut self, limit: usize) {
        (self.limit, self.is_full) = (limit, false);
    }

    /// Ends the reply to a command: what follows has no limit.
    pub fn end(&mut self) {
        self.limit = usize::MAX;
    }

    /// Returns whether the reply did not fit. The rest of it is left out, so a command may stop
    /// early.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Marks the reply as one that does not fit.
    pub fn fill(&mut self) {
        self.is_full = true;
    }

    /// Returns the number of bytes that fit.
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.bytes.len())
    }

    /// Returns whether so many bytes fit.
    fn fits(&mut self, len: usize) -> bool {
        self.is_full |= len > self.limit - self.bytes.len().min(self.limit);
        !self.is_full
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Takes the bytes behind the first `at` off, as a buffer with the room that is left for them.
    pub fn split_off(&mut self, at: usize) -> Self {
        let limit = self.limit.saturating_sub(at);
        Self { bytes: self.bytes.split_off(at), limit, is_full: self.is_full, version: self.version }
    }

    /// Appends the bytes of another buffer.
    pub fn take_in(&mut self, other: Self) {
        if self.fits(other.bytes.len()) {
            self.bytes.unsplit(other.bytes);
        }
    }

    fn line(&mut self, sign: u8, text: &[u8]) {
        if !self.fits(text.len() + 3) {
            return;
        }
        self.bytes.reserve(text.len() + 3);
        self.bytes.put_u8(sign);
        self.bytes.put_slice(text);
        self.bytes.put_slice(b"\r\n");
    }

    fn counted(&mut self, sign: u8, n: i64) {
        let mut room = [0; HEAD];
        let head = head(&mut room, sign, n);
        if self.fits(head.len()) {
            self.bytes.extend_from_slice(head);
        }
    }

    fn is_three(&self) -> bool {
        self.version == Version::Three
    }

    /// Appends a simple string.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// Appends `OK`.
    pub fn ok(&mut self) {
        self.simple("OK");
    }

    /// Appends an error; its first word is its kind.
    pub fn error(&mut self, text: &str) {
        let line: Vec<u8> = text.bytes().map(|b| if b == b'\r' || b == b'\n' { b' ' } else { b }).collect();
        self.line(b'-', &line);
    }

    /// Appends a number.
    pub fn int(&mut self, n: i64) {
        self.counted(b':', n);
    }

    /// Appends a count.
    pub fn count(&mut self, n: usize) {
        self.int(n as i64);
    }

    /// Appends 1 or 0.
    pub fn flag(&mut self, is_so: bool) {
        self.int(i64::from(is_so));
    }

    /// Appends a bulk string.
    pub fn bulk(&mut self, bytes: impl AsRef<[u8]>) {
        let (bytes, mut room) = (bytes.as_ref(), [0; HEAD]);
        let head = head(&mut room, b'$', bytes.len() as i64);
        // Most replies are made of these: one check, and one look for room.
        let len = head.len() + bytes.len() + 2;
        if self.fits(len) {
            self.bytes.reserve(len);
            self.bytes.extend_from_slice(head);
            self.bytes.extend_from_slice(bytes);
            self.bytes.extend_from_slice(b"\r\n");
        }
    }

    /// Appends a bulk string, or a null.
    pub fn bulk_or_null(&mut self, bytes: Option<impl AsRef<[u8]>>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// Appends a truth value, which RESP3 has.
    pub fn boolean(&mut self, is_so: bool) {
        if self.is_three() { self.line(b'#', if is_so { b"t" } else { b"f" }) } else { self.flag(is_so) }
    }

    /// Appends a number of any length, which consists of digits.
    pub fn big_number(&mut self, digits: &str) {
        let digits = digits.replace(['\r', '\n'], " ");
        if self.is_three() { self.line(b'(', digits.as_bytes()) } else { self.bulk(digits) }
    }

    /// Appends text for people in a format of three letters.
    pub fn verbatim_as(&mut self, format: &str, text: &[u8]) {
        if !self.is_three() {
            return self.bulk(text);
        }
        let format: String = format.chars().filter(char::is_ascii).chain("   ".chars()).take(3).collect();
        self.counted(b'=', text.len() as i64 + 4);
        if self.fits(text.len() + 6) {
            self.bytes.put_slice(format.as_bytes());
            self.bytes.put_u8(b':');
            self.bytes.put_slice(text);
            self.bytes.put_slice(b"\r\n");
        }
    }

    /// Appends text for people, which clients show unchanged.
    pub fn verbatim(&mut self, text: &str) {
        if !self.is_three() {
            return self.bulk(text);
        }
        self.counted(b'=', text.len() as i64 + 4);
        if !self.fits(text.len() + 6) {
            return;
        }
        self.bytes.put_slice(b"txt:");
        self.bytes.put_slice(text.as_bytes());
        self.bytes.put_slice(b"\r\n");
    }

    /// Appends a floating-point number, with as many digits as Redis writes.
    pub fn double(&mut self, n: f64) {
        let text = shortest(n, 17);
        if self.is_three() { self.line(b',', text.as_bytes()) } else { self.bulk(text) }
    }

    /// Appends a null in place of a bulk string.
    pub fn null(&mut self) {
        if self.is_three() { self.line(b'_', b"") } else { self.line(b'$', b"-1") }
    }

    /// Appends a null in place of an array.
    pub fn null_array(&mut self) {
        if self.is_three() { self.line(b'_', b"") } else { self.line(b'*', b"-1") }
    }

    /// Appends the head of an array; `n` replies follow.
    pub fn array(&mut self, n: usize) {
        self.counted(b'*', n as i64);
    }

    /// Appends the head of a map; `n` pairs of replies follow.
    pub fn map(&mut self, n: usize) {
        if self.is_three() { self.counted(b'%', n as i64) } else { self.array(2 * n) }
    }

    /// Appends the head of a push, which answers no request; `n` replies follow.
    pub fn push(&mut self, n: usize) {
        self.counted(if self.is_three() { b'>' } else { b'*' }, n as i64);
    }

    /// Appends the head of a set; `n` replies follow.
    pub fn set(&mut self, n: usize) {
        self.counted(if self.is_three() { b'~' } else { b'*' }, n as i64);
    }

    /// Begins an array whose length is known at its end.
    pub fn begin_array(&mut self) -> usize {
        let start = self.bytes.len();
        if self.fits(GAP) {
            self.bytes.put_bytes(0, GAP);
        }
        start
    }

    /// Ends an array of `n` replies that began at `start`: its head moves into the gap before them.
    pub fn end_array(&mut self, start: usize, n: usize) {
        if self.is_full {
            return;
        }
        let head = format!("*{n}\r\n");
        self.bytes[start..start + head.len()].copy_from_slice(head.as_bytes());
        self.bytes.copy_within(start + GAP.., start + head.len());
        self.bytes.truncate(self.bytes.len() - (GAP - head.len()));
    }

    /// Appends an array of bulk strings.
    pub fn bulks<T: AsRef<[u8]>>(&mut self, all: &[T]) {
        self.array(all.len());
        all.iter().for_each(|bytes| self.bulk(bytes));
    }
}

/// Writes the sign, the number and the end of the line into `room`, and returns them. Most numbers
/// are short, and every reply has one.
fn head(room: &mut [u8; HEAD], sign: u8, n: i64) -> &[u8] {
    let mut at = HEAD - 2;
    room[at..].copy_from_slice(b"\r\n");
    let mut rest = n.unsigned_abs();
    loop {
        at -= 1;
        room[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if n < 0 {
        at -= 1;
        room[at] = b'-';
    }
    at -= 1;
    room[at] = sign;
    &room[at..]
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
        let cases: [(Write, &str, &str); 12] = [
            (|r| r.ok(), "+OK\r\n", "+OK\r\n"),
            (|r| r.error("ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n"),
            (|r| r.int(i64::MIN), ":-9223372036854775808\r\n", ":-9223372036854775808\r\n"),
            (|r| r.int(0), ":0\r\n", ":0\r\n"),
            (|r| r.bulk("a\r\n"), "$3\r\na\r\n\r\n", "$3\r\na\r\n\r\n"),
            (|r| r.null(), "$-1\r\n", "_\r\n"),
            (|r| r.null_array(), "*-1\r\n", "_\r\n"),
            (|r| r.map(2), "*4\r\n", "%2\r\n"),
            (|r| r.set(2), "*2\r\n", "~2\r\n"),
            (|r| r.push(2), "*2\r\n", ">2\r\n"),
            (|r| r.double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n"),
            (|r| r.verbatim("hi"), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"),
        ];
        for (write, two, three) in cases {
            assert_eq!((written(Version::Two, write).as_str()), two);
            assert_eq!((written(Version::Three, write).as_str()), three);
        }
    }
}
