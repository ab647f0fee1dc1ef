//! Sums of numbers with a fraction, for `INCRBYFLOAT` and `HINCRBYFLOAT`.
//!
//! Redis adds numbers of 64 binary digits, and returns 17 decimal places: 0.1 and 0.2 are 0.3. The
//! sum in an `f64`, with 53 binary digits, is 0.30000000000000004. So sums that 38 decimal digits
//! can hold are computed in decimal places, without an error; all other sums are those of an `f64`.

use super::super::fail::Fail;

/// Decimal places of a sum.
const PLACES: usize = 17;
/// Most digits of an exponent that is looked at; a number with a longer one is an `f64`.
const EXPONENT: usize = 4;

/// Returns a number with a fraction, as Redis takes it.
pub fn float(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok().filter(|text| !text.starts_with(char::is_whitespace))?;
    text.parse().ok().filter(|n: &f64| !n.is_nan())
}

/// Returns the sum of two such numbers, as it is told. A missing number is 0.
///
/// # Errors
/// A text is no number, or the sum is infinite.
pub fn float_sum(old: Option<&[u8]>, by: &[u8]) -> Result<String, Fail> {
    let wrong = || Fail::err("value is not a valid float");
    let old = old.unwrap_or(b"0");
    let sum = float(old).ok_or_else(wrong)? + float(by).ok_or_else(wrong)?;
    if !sum.is_finite() {
        return Err(Fail::err("increment would produce NaN or Infinity"));
    }
    let exact = scaled(old).zip(scaled(by)).and_then(|(old, by)| old.checked_add(by));
    Ok(exact.map_or_else(|| sum.to_string(), told))
}

/// Returns a number times 10 to the power of [`PLACES`], rounded; `None` if it is no decimal
/// number, or too large.
fn scaled(text: &[u8]) -> Option<i128> {
    let (sign, text) = match text {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        text => (1, text),
    };
    let (mantissa, exponent) = match text.iter().position(|byte| byte.eq_ignore_ascii_case(&b'e')) {
        Some(at) => (&text[..at], exponent(&text[at + 1..])?),
        None => (text, 0),
    };
    let point = mantissa.iter().position(|byte| *byte == b'.').unwrap_or(mantissa.len());
    let digits = mantissa.iter().filter(|byte| **byte != b'.');
    // The place of the last digit that counts, from the first digit on.
    let last = i64::try_from(point + PLACES).ok()? + exponent;
    let (mut number, mut places) = (0_i128, 0);
    for (at, digit) in (0..).zip(digits) {
        let value = i128::from(digit.checked_sub(b'0').filter(|value| *value <= 9)?);
        if at < last {
            number = number.checked_mul(10)?.checked_add(value)?;
        } else if at == last && value >= 5 {
            number += 1;
        }
        places = at + 1;
    }
    for _ in places..if number == 0 { places } else { last } {
        number = number.checked_mul(10)?;
    }
    Some(sign * number)
}

/// Returns the number behind an `e`.
fn exponent(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    text.parse().ok().filter(|_| text.trim_start_matches(['+', '-']).len() <= EXPONENT)
}

/// Returns the text of a scaled number.
fn told(scaled: i128) -> String {
    let one = 10_u128.pow(PLACES as u32);
    let (whole, rest) = (scaled.unsigned_abs() / one, scaled.unsigned_abs() % one);
    let sign = if scaled < 0 { "-" } else { "" };
    let all = format!("{sign}{whole}.{rest:0PLACES$}");
    all.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(old: &str, by: &str) -> String {
        float_sum(Some(old.as_bytes()), by.as_bytes()).unwrap()
    }

    #[test]
    fn sums_have_no_digits_of_an_error() {
        let sums = [
            ("0.1", "0.2", "0.3"),
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "200", "5200"),
            ("3", "-3", "0"),
            ("1", "-1.1", "-0.1"),
            ("-0.0", "0", "0"),
            (".5", "5.", "5.5"),
            ("+1E-2", "1e+1", "10.01"),
            ("1e-17", "0", "0.00000000000000001"),
            ("4e-18", "0", "0"),
            ("5e-18", "0", "0.00000000000000001"),
            ("0.000000000000000005", "-1", "-0.99999999999999999"),
            ("17179869184", "1.5", "17179869185.5"),
            ("0e9999", "7", "7"),
            ("12345678901234567890.25", "0.25", "12345678901234567890.5"),
        ];
        for (old, by, told) in sums {
            assert_eq!(sum(old, by), told, "{old} and {by}");
        }
        let many = (0..1_000).fold("0".to_owned(), |old, _| sum(&old, "0.1"));
        assert_eq!(many, "100");
        assert_eq!(float_sum(None, b"1.5").unwrap(), "1.5");
    }

    #[test]
    fn large_numbers_are_those_of_an_f64() {
        assert_eq!(sum("1e300", "1"), 1e300_f64.to_string());
        assert_eq!(sum("1e22", "1.5"), 1e22_f64.to_string());
        assert_eq!(sum("1e-00017", "0"), 1e-17_f64.to_string());
    }

    #[test]
    fn texts_that_are_no_numbers_are_refused() {
        for text in ["", " 1", "1 ", "1e", "e1", "1.2.3", "nan", "--1", "0x10", "1_0", "."] {
            assert!(float_sum(Some(b"1"), text.as_bytes()).is_err(), "{text}");
            assert!(float_sum(Some(text.as_bytes()), b"1").is_err(), "{text}");
        }
        for text in ["inf", "-inf", "1e999"] {
            assert!(float_sum(Some(b"1"), text.as_bytes()).is_err(), "{text}");
        }
    }
}
