//! Numbers of bytes and of logs on the command line.

/// Parses a number of bytes: digits, and K, M or G for 2^10, 2^20, 2^30.
pub fn size(text: &str) -> Result<u64, String> {
    let shift = match text.bytes().last().map(|b| b.to_ascii_uppercase()) {
        Some(b'K') => 10,
        Some(b'M') => 20,
        Some(b'G') => 30,
        _ => 0,
    };
    let digits = if shift > 0 { &text[..text.len() - 1] } else { text };
    let number: u64 =
        digits.parse().map_err(|_| "use digits, optionally followed by K, M or G".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "the number is too large".to_owned())
}

/// Parses a number of logs: also as 1e6.
pub fn count(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|n: &f64| (1.0..=1e8).contains(n) && n.fract() == 0.0);
    number.map(|n| n as u64).ok_or_else(|| "use 1 to 1e8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_may_have_exponents() {
        assert_eq!((count("1e3"), count("100000000")), (Ok(1000), Ok(100_000_000)));
        assert!(["0", "1e9", "-1", "1.5", "x", "nan"].iter().all(|wrong| count(wrong).is_err()));
    }

    #[test]
    fn sizes_know_their_suffixes() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("64k"), Ok(64 << 10));
        assert_eq!(size("2G"), Ok(2 << 30));
        assert!(size("").is_err() && size("M").is_err() && size("1T").is_err());
        assert!(size("99999999999G").is_err());
    }
}
