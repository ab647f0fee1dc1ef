//! Numbers of JSON text that would not be kept: a value in memory has 64 bits of integer or a
//! binary double.

use crate::refusal::{Refusal, RefusalKind};

/// Refuses text with a number that would change: an integer of more than 64 bits, or one that is
/// too large or too small for a double. A fraction is rounded to the nearest double, as in all
/// common parsers.
pub(super) fn check(text: &[u8]) -> Result<(), Refusal> {
    let mut at = 0;
    while at < text.len() {
        match text[at] {
            b'"' => at = string_end(text, at + 1),
            b'-' | b'0'..=b'9' => {
                let len = text[at..].iter().take_while(|byte| is_part(**byte)).count();
                check_one(&text[at..at + len])?;
                at += len;
            }
            _ => at += 1,
        }
    }
    Ok(())
}

fn is_part(byte: u8) -> bool {
    matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')
}

/// Returns the place behind a string that began before `at`.
pub(super) fn string_end(text: &[u8], mut at: usize) -> usize {
    while at < text.len() {
        match text[at] {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    at
}

fn check_one(number: &[u8]) -> Result<(), Refusal> {
    // Bytes that are no number are left to the parser.
    let Ok(text) = std::str::from_utf8(number) else { return Ok(()) };
    let is_integer = text.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit());
    let is_kept = if is_integer {
        text.parse::<u64>().is_ok()
            || text.parse::<i64>().is_ok()
            || !text.ends_with(|c: char| c.is_ascii_digit())
    } else {
        let digits = text.split(['e', 'E']).next().unwrap_or_default();
        let is_zero = !digits.bytes().any(|byte| (b'1'..=b'9').contains(&byte));
        text.parse::<f64>().map_or(true, |value| value.is_finite() && (value != 0.0 || is_zero))
    };
    match is_kept {
        true => Ok(()),
        false => {
            let shown: String = text.chars().take(40).collect();
            let what = format!("the number {shown} would not be kept as it is: send it as a string");
            Err(Refusal::new(RefusalKind::NumberNotKept, what))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_would_change_are_refused() {
        let is_refused =
            |text: &str| check(text.as_bytes()).is_err_and(|r| r.kind() == RefusalKind::NumberNotKept);
        for text in [
            "18446744073709551616",
            "[-9223372036854775809]",
            "1e400",
            "-1e400",
            "{\"a\":1e-400}",
            "0.1e-999",
        ] {
            assert!(is_refused(text), "{text}");
        }
        for text in [
            "18446744073709551615",
            "-9223372036854775808",
            "0.1",
            "1e308",
            "0e-999",
            "-0",
            "-0.0",
            "1.5e-300",
            "\"1e999 \\\" 99999999999999999999\"",
            "[]",
            "\"",
            "-",
        ] {
            assert!(!is_refused(text), "{text}");
        }
    }
}
