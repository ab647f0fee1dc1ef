//! Patterns of Lua 5.1, with a bound for the time: the matcher in C cannot be stopped.

/// Most captures of a pattern.
const CAPTURES: usize = 32;
/// Most nested steps of a match: the matcher uses the stack.
const DEPTH: usize = 200;
/// Steps between two looks at the clock.
const CHECK: u32 = 4096;

/// The reason why a match failed.
#[derive(Debug, PartialEq, Eq)]
pub enum Fault {
    /// The pattern is wrong.
    Bad(String),
    /// The time is over.
    Stopped,
}

type Matched<T> = Result<T, Fault>;

fn bad<T>(why: &str) -> Matched<T> {
    Err(Fault::Bad(why.into()))
}

/// A capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Capture {
    Open(usize),
    Closed(usize, usize),
    Position(usize),
}

/// A captured value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Captured<'a> {
    /// A text.
    Text(&'a [u8]),
    /// A position, counted from 1.
    Position(usize),
}

/// A matcher of one pattern in one text.
pub struct Matcher<'a, F> {
    text: &'a [u8],
    pattern: &'a [u8],
    captures: Vec<Capture>,
    depth: usize,
    steps: u32,
    goes_on: F,
}

impl<'a, F: Fn() -> bool> Matcher<'a, F> {
    /// Creates a matcher, which asks `goes_on` from time to time.
    pub fn new(text: &'a [u8], pattern: &'a [u8], goes_on: F) -> Self {
        Self { text, pattern, captures: Vec::new(), depth: 0, steps: 0, goes_on }
    }

    /// Returns the end of the match that begins at `at`, if there is one.
    pub fn match_at(&mut self, at: usize) -> Matched<Option<usize>> {
        self.captures.clear();
        self.depth = 0;
        self.step(at, 0)
    }

    /// Returns the number of captures of the last match.
    pub fn count(&self) -> usize {
        self.captures.len()
    }

    /// Returns a part of the text.
    pub fn text(&self, (from, to): (usize, usize)) -> &'a [u8] {
        &self.text[from..to]
    }

    /// Returns a capture of the last match; the first one of a pattern without captures is the
    /// whole match.
    pub fn get(&self, n: usize, whole: (usize, usize)) -> Matched<Captured<'a>> {
        match self.captures.get(n) {
            None if n == 0 => Ok(Captured::Text(&self.text[whole.0..whole.1])),
            None => bad("invalid capture index"),
            Some(Capture::Open(_)) => bad("unfinished capture"),
            Some(Capture::Closed(from, to)) => Ok(Captured::Text(&self.text[*from..*to])),
            Some(Capture::Position(at)) => Ok(Captured::Position(at + 1)),
        }
    }

    fn tick(&mut self) -> Matched<()> {
        self.steps += 1;
        if self.steps.is_multiple_of(CHECK) && !(self.goes_on)() {
            return Err(Fault::Stopped);
        }
        Ok(())
    }

    fn step(&mut self, at: usize, pattern: usize) -> Matched<Option<usize>> {
        self.depth += 1;
        if self.depth > DEPTH {
            return bad("pattern too complex");
        }
        let ended = self.match_rest(at, pattern);
        self.depth -= 1;
        ended
    }

    /// Matches the rest of the pattern from `p` at `at`.
    fn match_rest(&mut self, mut at: usize, mut p: usize) -> Matched<Option<usize>> {
        loop {
            self.tick()?;
            match self.pattern.get(p) {
                None => return Ok(Some(at)),
                Some(b'(') if self.pattern.get(p + 1) == Some(&b')') => {
                    return self.open(at, p + 2, Capture::Position(at));
                }
                Some(b'(') => return self.open(at, p + 1, Capture::Open(at)),
                Some(b')') => return self.close(at, p + 1),
                Some(b'$') if p + 1 == self.pattern.len() => {
                    return Ok((at == self.text.len()).then_some(at));
                }
                Some(b'%') => match self.pattern.get(p + 1) {
                    Some(b'b') => match self.balanced(at, p + 2)? {
                        Some(end) => {
                            (at, p) = (end, p + 4);
                            continue;
                        }
                        None => return Ok(None),
                    },
                    Some(b'f') => match self.frontier(at, p + 2)? {
                        Some(next) => {
                            p = next;
                            continue;
                        }
                        None => return Ok(None),
                    },
                    Some(digit) if digit.is_ascii_digit() => match self.back_reference(at, *digit)? {
                        Some(end) => {
                            (at, p) = (end, p + 2);
                            continue;
                        }
                        None => return Ok(None),
                    },
                    _ => {}
                },
                _ => {}
            }
            let end = self.class_end(p)?;
            let is_one = at < self.text.len() && self.is_single(self.text[at], p, end);
            match self.pattern.get(end) {
                Some(b'?') => {
                    if is_one && let Some(found) = self.step(at + 1, end + 1)? {
                        return Ok(Some(found));
                    }
                    p = end + 1;
                }
                Some(b'*') => return self.expand(at, p, end),
                Some(b'+') => return if is_one { self.expand(at + 1, p, end) } else { Ok(None) },
                Some(b'-') => return self.expand_least(at, p, end),
                _ if !is_one => return Ok(None),
                _ => (at, p) = (at + 1, end),
            }
        }
    }

    fn expand(&mut self, at: usize, p: usize, end: usize) -> Matched<Option<usize>> {
        let mut n = 0;
        while at + n < self.text.len() && self.is_single(self.text[at + n], p, end) {
            self.tick()?;
            n += 1;
        }
        loop {
            if let Some(found) = self.step(at + n, end + 1)? {
                return Ok(Some(found));
            }
            if n == 0 {
                return Ok(None);
            }
            n -= 1;
        }
    }

    fn expand_least(&mut self, mut at: usize, p: usize, end: usize) -> Matched<Option<usize>> {
        loop {
            if let Some(found) = self.step(at, end + 1)? {
                return Ok(Some(found));
            }
            if at >= self.text.len() || !self.is_single(self.text[at], p, end) {
                return Ok(None);
            }
            at += 1;
        }
    }

    fn open(&mut self, at: usize, p: usize, capture: Capture) -> Matched<Option<usize>> {
        if self.captures.len() >= CAPTURES {
            return bad("too many captures");
        }
        let before = self.captures.len();
        self.captures.push(capture);
        let found = self.step(at, p)?;
        if found.is_none() {
            self.captures.truncate(before);
        }
        Ok(found)
    }

    fn close(&mut self, at: usize, p: usize) -> Matched<Option<usize>> {
        let is_open = |capture: &Capture| matches!(capture, Capture::Open(_));
        let Some(open) = self.captures.iter().rposition(is_open) else {
            return bad("invalid pattern capture");
        };
        let Capture::Open(from) = self.captures[open] else { return bad("invalid pattern capture") };
        self.captures[open] = Capture::Closed(from, at);
        let found = self.step(at, p)?;
        if found.is_none() {
            self.captures[open] = Capture::Open(from);
        }
        Ok(found)
    }

    fn balanced(&mut self, at: usize, p: usize) -> Matched<Option<usize>> {
        let (Some(&open), Some(&close)) = (self.pattern.get(p), self.pattern.get(p + 1)) else {
            return bad("unbalanced pattern");
        };
        if self.text.get(at) != Some(&open) {
            return Ok(None);
        }
        let mut nested = 1;
        for i in at + 1..self.text.len() {
            self.tick()?;
            let byte = self.text[i];
            if byte == close {
                nested -= 1;
                if nested == 0 {
                    return Ok(Some(i + 1));
                }
            } else if byte == open {
                nested += 1;
            }
        }
        Ok(None)
    }

    /// Returns the rest of the pattern if `%f[set]` matches.
    fn frontier(&mut self, at: usize, p: usize) -> Matched<Option<usize>> {
        if self.pattern.get(p) != Some(&b'[') {
            return bad("missing '[' after '%f' in pattern");
        }
        let end = self.class_end(p)?;
        let before = if at == 0 { 0 } else { self.text[at - 1] };
        let here = self.text.get(at).copied().unwrap_or(0);
        Ok((!self.is_in_set(before, p, end - 1) && self.is_in_set(here, p, end - 1)).then_some(end))
    }

    fn back_reference(&mut self, at: usize, digit: u8) -> Matched<Option<usize>> {
        let n = usize::from(digit).wrapping_sub(usize::from(b'1'));
        let (from, to) = match self.captures.get(n) {
            Some(Capture::Closed(from, to)) => (from, to),
            // As in Lua, a position is never there again.
            Some(Capture::Position(_)) => return Ok(None),
            Some(Capture::Open(_)) | None => return bad("invalid capture index"),
        };
        let text = self.text;
        self.steps = self.steps.wrapping_add((to - from) as u32 / 16);
        Ok(text[at..].starts_with(&text[*from..*to]).then(|| at + to - from))
    }

    fn class_end(&self, p: usize) -> Matched<usize> {
        match self.pattern[p] {
            b'%' if p + 1 >= self.pattern.len() => bad("malformed pattern (ends with '%')"),
            b'%' => Ok(p + 2),
            b'[' => {
                let mut at = p + 1;
                if self.pattern.get(at) == Some(&b'^') {
                    at += 1;
                }
                loop {
                    // The first character may be a bracket that is meant.
                    match self.pattern.get(at) {
                        None => return bad("malformed pattern (missing ']')"),
                        Some(b'%') => at += 2,
                        Some(_) => at += 1,
                    }
                    if self.pattern.get(at) == Some(&b']') {
                        return Ok(at + 1);
                    }
                }
            }
            _ => Ok(p + 1),
        }
    }

    fn is_single(&self, byte: u8, p: usize, end: usize) -> bool {
        match self.pattern[p] {
            b'.' => true,
            b'%' => is_of_class(byte, self.pattern[p + 1]),
            b'[' => self.is_in_set(byte, p, end - 1),
            own => own == byte,
        }
    }

    /// Returns whether the set between the brackets at `p` and `end` has a byte.
    fn is_in_set(&self, byte: u8, p: usize, end: usize) -> bool {
        let mut at = p + 1;
        let is_in = self.pattern[at] != b'^';
        if !is_in {
            at += 1;
        }
        while at < end {
            if self.pattern[at] == b'%' {
                if is_of_class(byte, self.pattern[at + 1]) {
                    return is_in;
                }
                at += 2;
            } else if self.pattern[at + 1] == b'-' && at + 2 < end {
                if (self.pattern[at]..=self.pattern[at + 2]).contains(&byte) {
                    return is_in;
                }
                at += 3;
            } else {
                if self.pattern[at] == byte {
                    return is_in;
                }
                at += 1;
            }
        }
        !is_in
    }
}

fn is_of_class(byte: u8, class: u8) -> bool {
    let is = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is == class.is_ascii_lowercase()
}

/// Returns whether a pattern is a plain text.
pub fn is_plain(pattern: &[u8]) -> bool {
    !pattern.iter().any(|byte| b"^$*+?.([%-".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str, pattern: &str) -> Option<Vec<String>> {
        let mut matcher = Matcher::new(text.as_bytes(), pattern.as_bytes(), || true);
        let found = (0..=text.len()).find_map(|at| Some((at, matcher.match_at(at).unwrap()?)));
        let (from, to) = found?;
        let value = |n| match matcher.get(n, (from, to)).unwrap() {
            Captured::Text(text) => String::from_utf8_lossy(text).into_owned(),
            Captured::Position(at) => at.to_string(),
        };
        Some((0..matcher.count().max(1)).map(value).collect())
    }

    #[test]
    fn patterns_match_as_in_lua() {
        let cases: [(&str, &str, Option<&[&str]>); 16] = [
            ("hello world", "o w", Some(&["o w"])),
            ("key = value", "(%w+)%s*=%s*(%w+)", Some(&["key", "value"])),
            ("a(b(c)d)e", "%b()", Some(&["(b(c)d)"])),
            ("THE (quick) fox", "%f[%a]%a+", Some(&["THE"])),
            ("abcabc", "(abc)%1", Some(&["abc"])),
            ("hello", "()ll()", Some(&["3", "5"])),
            ("x]y", "[]]", Some(&["]"])),
            ("x-y", "[a%-]", Some(&["-"])),
            ("aXb", "%u", Some(&["X"])),
            ("aaa", "a-$", Some(&["aaa"])),
            ("aab", "a-b", Some(&["aab"])),
            ("ab", "a?ab", Some(&["ab"])),
            ("abc", "[^a-b]", Some(&["c"])),
            ("abc", "%d", None),
            ("", ".*", Some(&[""])),
            ("a\0b", "%z", Some(&["\0"])),
        ];
        for (text, pattern, expected) in cases {
            let expected = expected.map(|all| all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
            assert_eq!(all(text, pattern), expected, "{text} {pattern}");
        }
    }

    #[test]
    fn wrong_patterns_are_errors_and_long_matches_stop() {
        let fault = |pattern: &str| Matcher::new(b"xx", pattern.as_bytes(), || true).match_at(0).unwrap_err();
        for (pattern, why) in [
            ("[a", "malformed pattern (missing ']')"),
            ("%", "malformed pattern (ends with '%')"),
            ("x)", "invalid pattern capture"),
            ("%b(", "unbalanced pattern"),
            ("%f", "missing '[' after '%f' in pattern"),
            ("%1", "invalid capture index"),
            ("(x%1)", "invalid capture index"),
            ("[%", "malformed pattern (missing ']')"),
        ] {
            assert_eq!(fault(pattern), Fault::Bad(why.into()), "{pattern}");
        }
        let captures = "()".repeat(40);
        assert_eq!(fault(&captures), Fault::Bad("too many captures".into()));
        assert_eq!(fault(&"x*".repeat(1_000_000)), Fault::Bad("pattern too complex".into()));
        let text = [b'a'; 200];
        let pattern = [&b"a?".repeat(90)[..], &b"a".repeat(300)].concat();
        assert_eq!(Matcher::new(&text, &pattern, || false).match_at(0), Err(Fault::Stopped));
    }
}
