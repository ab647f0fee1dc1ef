//! Parses requests: arrays of bulk strings, or lines of words.
//!
//! ```text
//! *<n>\r\n  then n times  $<length>\r\n<bytes>\r\n
//! word "another word"\r\n
//! ```
//!
//! [`Parser::next`] takes whole requests from the front of the input, without copying an argument.
//! The parser stores its progress in an incomplete request, so that it does not parse a large
//! request again with each packet.

use bytes::{Buf, Bytes, BytesMut};

use super::cross_protocol::{is_foreign, is_foreign_name};

/// Longest line, of words or of a number, in bytes.
const MAX_LINE: usize = 64 << 10;
/// Most arguments of a request.
const MAX_ARGS: usize = 1 << 20;
/// Most arguments of a request of a client that has not logged in.
const MAX_ARGS_UNKNOWN: usize = 10;
/// Most bytes of the arguments of a request of a client that has not logged in.
const MAX_BULK_UNKNOWN: usize = 16 << 10;

/// The words of a request.
pub type Args = Vec<Bytes>;

/// Returns the memory of a request, in bytes.
pub fn size_of_args(request: &[Bytes]) -> usize {
    size_of::<Args>() + request.iter().map(|arg| size_of::<Bytes>() + arg.len()).sum::<usize>()
}

/// The limits of a request.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest argument, in bytes.
    pub bulk: usize,
    /// Most bytes of all arguments together.
    pub request: usize,
    /// Whether the client has logged in, or need not log in.
    pub is_known: bool,
}

/// The reason why bytes are no request. The bytes that follow cannot be parsed.
#[derive(Debug, PartialEq, Eq)]
pub enum Invalid {
    /// The error message, as Redis words it.
    Syntax(String),
    /// A line of another protocol. The client gets no reply.
    Foreign,
}

impl<T: Into<String>> From<T> for Invalid {
    fn from(message: T) -> Self {
        Self::Syntax(message.into())
    }
}

/// A parser that finds requests in bytes.
#[derive(Debug, Default)]
pub struct Parser {
    /// Arguments of the current request, and number of missing arguments.
    args: Args,
    missing: usize,
    /// Length of the current argument, in bytes.
    bulk: Option<usize>,
    /// Size of the arguments so far, in bytes.
    taken: usize,
}

impl Parser {
    /// Takes the next request from `input`; returns `None` if the request is incomplete.
    ///
    /// # Errors
    /// The bytes are no request.
    pub fn next(&mut self, input: &mut BytesMut, limits: Limits) -> Result<Option<Args>, Invalid> {
        loop {
            if self.missing == 0 {
                let Some(&first) = input.first() else { return Ok(None) };
                if first != b'*' {
                    return words(input, limits);
                }
                let Some(n) = number(input, "multibulk length")? else { return Ok(None) };
                let most = if limits.is_known { MAX_ARGS } else { MAX_ARGS_UNKNOWN };
                if n > MAX_ARGS as i64 {
                    return Err("invalid multibulk length".into());
                }
                if n > most as i64 {
                    return Err("unauthenticated multibulk length".into());
                }
                if n <= 0 {
                    continue;
                }
                self.missing = n as usize;
                self.taken = 0;
                self.args = Args::with_capacity(self.missing.min(16));
            }
            while self.missing > 0 {
                if !self.argument(input, limits)? {
                    return Ok(None);
                }
            }
            let args = std::mem::take(&mut self.args);
            return if is_foreign_name(&args[0]) { Err(Invalid::Foreign) } else { Ok(Some(args)) };
        }
    }

    /// Takes the next argument; returns whether the argument is complete.
    fn argument(&mut self, input: &mut BytesMut, limits: Limits) -> Result<bool, Invalid> {
        let length = match self.bulk {
            Some(length) => length,
            None => {
                match input.first() {
                    None => return Ok(false),
                    Some(b'$') => {}
                    Some(&other) => return Err(format!("expected '$', got '{}'", char::from(other)).into()),
                }
                let Some(n) = number(input, "bulk length")? else { return Ok(false) };
                let length = usize::try_from(n).map_err(|_| "invalid bulk length")?;
                if length > limits.bulk || self.taken.saturating_add(length) > limits.request {
                    return Err("invalid bulk length".into());
                }
                if !limits.is_known && self.taken + length > MAX_BULK_UNKNOWN {
                    return Err("unauthenticated bulk length".into());
                }
                self.taken += length;
                *self.bulk.insert(length)
            }
        };
        if input.len() < length + 2 {
            return Ok(false);
        }
        self.args.push(input.split_to(length).freeze());
        input.advance(2);
        self.bulk = None;
        self.missing -= 1;
        Ok(true)
    }

    /// Copies the incomplete request, and what is left of the input. Otherwise they keep the memory
    /// of earlier requests of the same buffer, however short they are.
    pub fn release(&mut self, input: &mut BytesMut) {
        *input = BytesMut::from(&input[..]);
        self.args.iter_mut().for_each(|arg| *arg = Bytes::copy_from_slice(arg));
    }

    /// Returns the memory of the incomplete request, in bytes, without the bytes of the input.
    pub fn memory(&self) -> usize {
        if self.missing == 0 {
            return 0;
        }
        let awaited = self.bulk.unwrap_or(0);
        self.taken.saturating_sub(awaited) + self.args.len() * size_of::<Bytes>()
    }

    /// Returns the number of bytes that the current argument still needs, beyond `input`.
    pub fn wanted(&self, input: &BytesMut) -> usize {
        self.bulk.map_or(0, |length| (length + 2).saturating_sub(input.len()))
    }
}

/// Takes a line with a sign character and a number.
fn number(input: &mut BytesMut, what: &str) -> Result<Option<i64>, String> {
    // A number has at most 20 digits.
    let looked_at = &input[..input.len().min(32)];
    let Some(end) = looked_at.iter().position(|&b| b == b'\r') else {
        let too_long = input.len() >= 32;
        return if too_long { Err(format!("invalid {what}")) } else { Ok(None) };
    };
    if input.len() < end + 2 {
        return Ok(None);
    }
    let value = integer(&input[1..end]).ok_or_else(|| format!("invalid {what}"))?;
    input.advance(end + 2);
    Ok(Some(value))
}

/// Parses a number as Redis writes it: digits, after an optional minus sign, and no other
/// characters.
pub fn integer(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, text),
    };
    let leads_with_zero = digits.first() == Some(&b'0');
    if digits.is_empty() || digits.len() > 19 || (leads_with_zero && (digits.len() > 1 || is_negative)) {
        return None;
    }
    let mut value = 0_i64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        let digit = i64::from(digit - b'0');
        let grown = value.checked_mul(10)?;
        value = if is_negative { grown.checked_sub(digit)? } else { grown.checked_add(digit)? };
    }
    Some(value)
}

/// Takes a line of words, some of them quoted.
fn words(input: &mut BytesMut, limits: Limits) -> Result<Option<Args>, Invalid> {
    let (longest, most) = match limits.is_known {
        true => (MAX_LINE, MAX_ARGS),
        false => (MAX_BULK_UNKNOWN, MAX_ARGS_UNKNOWN),
    };
    let end = input.iter().position(|&b| b == b'\n');
    // A line that is there as a whole need not be refused, except from a stranger.
    if end.map_or(input.len() > longest, |end| !limits.is_known && end > longest) {
        return Err("too big inline request".into());
    }
    let Some(end) = end else { return Ok(None) };
    let mut line = input.split_to(end + 1);
    line.truncate(end - usize::from(end > 0 && line[end - 1] == b'\r'));
    match split(&line) {
        Some(words) if is_foreign(&words) => Err(Invalid::Foreign),
        Some(words) if words.len() > most => Err("unauthenticated multibulk length".into()),
        Some(words) => Ok(Some(words)),
        None => Err("unbalanced quotes in request".into()),
    }
}

/// Splits a line into words as a shell does: `"…"` supports escapes such as `
/// ` and `\xff`, `'…'` only `\'`.
pub fn split(line: &[u8]) -> Option<Args> {
    let mut words = Args::new();
    let mut at = 0;
    loop {
        while line.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        if at == line.len() {
            return Some(words);
        }
        let mut word = Vec::new();
        while let Some(&byte) = line.get(at).filter(|b| !b.is_ascii_whitespace()) {
            if byte == b'"' || byte == b'\'' {
                at = quoted(line, at, &mut word)?;
                if line.get(at).is_some_and(|b| !b.is_ascii_whitespace()) {
                    return None;
                }
                break;
            }
            word.push(byte);
            at += 1;
        }
        words.push(word.into());
    }
}

/// Appends the quoted text that begins at `start` to `word`; returns the position behind it.
fn quoted(line: &[u8], start: usize, word: &mut Vec<u8>) -> Option<usize> {
    let quote = line[start];
    let mut at = start + 1;
    loop {
        match *line.get(at)? {
            byte if byte == quote => return Some(at + 1),
            b'\\' if quote == b'"' => at = escaped(line, at + 1, word)?,
            b'\\' if line.get(at + 1) == Some(&b'\'') => {
                word.push(b'\'');
                at += 2;
            }
            byte => {
                word.push(byte);
                at += 1;
            }
        }
    }
}

fn escaped(line: &[u8], at: usize, word: &mut Vec<u8>) -> Option<usize> {
    let hex = |i: usize| line.get(i).and_then(|&b| char::from(b).to_digit(16));
    let byte = *line.get(at)?;
    if let (b'x', Some(high), Some(low)) = (byte, hex(at + 1), hex(at + 2)) {
        word.push((high * 16 + low) as u8);
        return Some(at + 3);
    }
    word.push(match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    });
    Some(at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Limits = Limits { bulk: 1 << 20, request: 1 << 21, is_known: true };

    fn all(input: &[u8], step: usize, limits: Limits) -> Result<Vec<Args>, Invalid> {
        let (mut parser, mut buffer, mut requests) = (Parser::default(), BytesMut::new(), Vec::new());
        for packet in input.chunks(step) {
            buffer.extend_from_slice(packet);
            while let Some(args) = parser.next(&mut buffer, limits)? {
                requests.push(args);
            }
        }
        assert!(buffer.is_empty(), "left over: {buffer:?}");
        Ok(requests)
    }

    #[test]
    fn requests_are_the_same_wherever_they_are_cut() {
        let input = b"*2\r\n$4\r\nLLEN\r\n$3\r\na\r\n\r\nPING\r\n*0\r\n*1\r\n$0\r\n\r\nset \"a b\\x41\\n\" 'it\\'s'\n";
        let whole = all(input, input.len(), OPEN).unwrap();
        let expected: Vec<Vec<&[u8]>> =
            vec![vec![b"LLEN", b"a\r\n"], vec![b"PING"], vec![b""], vec![b"set", b"a bA\n", b"it's"]];
        assert_eq!(whole, expected);
        for step in 1..input.len() {
            assert_eq!(all(input, step, OPEN).unwrap(), whole, "cut every {step} bytes");
        }
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        let unknown = Limits { is_known: false, ..OPEN };
        let cases: [(&[u8], Limits, &str); 10] = [
            (b"*x\r\n", OPEN, "invalid multibulk length"),
            (b"*2000000\r\n", OPEN, "invalid multibulk length"),
            (b"*1\r\n!3\r\n", OPEN, "expected '$', got '!'"),
            (b"*1\r\n$-1\r\n", OPEN, "invalid bulk length"),
            (b"*1\r\n$1048577\r\n", OPEN, "invalid bulk length"),
            (b"*1\r\n$00000000000000000000000000000001\r\n", OPEN, "invalid bulk length"),
            (b"*11\r\n", unknown, "unauthenticated multibulk length"),
            (b"*1\r\n$20000\r\n", unknown, "unauthenticated bulk length"),
            (b"set \"a\n", OPEN, "unbalanced quotes in request"),
            (b"set \"a\"b\n", OPEN, "unbalanced quotes in request"),
        ];
        for (input, limits, error) in cases {
            assert_eq!(all(input, input.len(), limits).unwrap_err(), error.into(), "{input:?}");
        }
        let endless = vec![b'a'; MAX_LINE + 1];
        assert_eq!(all(&endless, endless.len(), OPEN).unwrap_err(), "too big inline request".into());
        let words = b"a b c d e f g h i j k\r\n";
        assert_eq!(all(words, words.len(), OPEN).unwrap()[0].len(), 11);
        assert_eq!(all(words, 1, unknown).unwrap_err(), "unauthenticated multibulk length".into());
        let long = [&vec![b'a'; MAX_BULK_UNKNOWN + 1][..], b"\r\n"].concat();
        assert_eq!(all(&long, long.len(), OPEN).unwrap().len(), 1);
        for part in [&long[..], &long[..long.len() - 2]] {
            assert_eq!(all(part, part.len(), unknown).unwrap_err(), "too big inline request".into());
        }
        let three = b"*3\r\n$1048576\r\n".to_vec();
        let mut input = three.clone();
        input.extend(vec![b'x'; 1 << 20]);
        input.extend_from_slice(b"\r\n$1048576\r\n");
        input.extend(vec![b'x'; 1 << 20]);
        input.extend_from_slice(b"\r\n$1\r\n");
        assert_eq!(all(&input, 4096, OPEN).unwrap_err(), "invalid bulk length".into());
        for foreign in
            ["PING\r\nPOST / HTTP/1.1\r\n", "*1\r\n$4\r\npost\r\n", "*2\r\n$5\r\nHOST:\r\n$1\r\nx\r\n"]
        {
            assert_eq!(all(foreign.as_bytes(), 3, OPEN).unwrap_err(), Invalid::Foreign);
        }
    }

    #[test]
    fn what_is_left_of_a_packet_does_not_keep_it() {
        let value = "x".repeat(1000);
        for rest in ["*", "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$9\r\nabc"] {
            let request = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000\r\n{value}\r\n{rest}");
            let (mut parser, mut input) = (Parser::default(), BytesMut::from(request.as_bytes()));
            let mut args = parser.next(&mut input, OPEN).unwrap().unwrap();
            assert_eq!(parser.next(&mut input, OPEN).unwrap(), None);
            let value = args.pop().unwrap();
            drop(args);
            assert!(!value.is_unique());
            parser.release(&mut input);
            assert!(value.is_unique(), "{rest}");
            assert!(input.capacity() < 100);
        }
        let (mut parser, mut input) = (Parser::default(), BytesMut::from(&b"*2\r\n$3\r\nGET\r\n$3\r\na"[..]));
        assert_eq!(parser.next(&mut input, OPEN).unwrap(), None);
        parser.release(&mut input);
        input.extend_from_slice(b"bc\r\n");
        assert_eq!(parser.next(&mut input, OPEN).unwrap().unwrap(), ["GET", "abc"]);
    }

    #[test]
    fn numbers_are_read_as_redis_reads_them() {
        let good =
            [("0", 0), ("-1", -1), ("9223372036854775807", i64::MAX), ("-9223372036854775808", i64::MIN)];
        for (text, value) in good {
            assert_eq!(integer(text.as_bytes()), Some(value));
        }
        for text in
            ["", "-", "-0", "01", "+1", " 1", "1 ", "9223372036854775808", "1.0", "99999999999999999999"]
        {
            assert_eq!(integer(text.as_bytes()), None, "{text}");
        }
    }
}
