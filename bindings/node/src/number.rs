//! Numbers: those of JavaScript are whole up to 2^53 - 1.

use crate::failure::Failure;

const MOST: u64 = (1 << 53) - 1;

/// Returns a number of the store as one of JavaScript.
pub fn number(value: u64) -> Result<f64, Failure> {
    if value > MOST {
        let message = format!("the number {value} is above 2^53 - 1, and JavaScript cannot represent it");
        return Err(Failure::unsafe_number(message));
    }
    Ok(value as f64)
}

/// Returns a number that the part in JavaScript has found to be whole and not negative.
pub fn whole(value: f64) -> u64 {
    value as u64
}
