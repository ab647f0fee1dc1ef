//! Converts panics of foreign code, and of our own, into errors: the caller then stops using the
//! state that a panic left behind.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `run`; returns an error that names the panic, if it panics. The caller then stops using the
/// state of `run`.
///
/// # Errors
/// The panic's message, after `doing`.
pub fn caught<T>(doing: &str, run: impl FnOnce() -> T) -> io::Result<T> {
    catch_unwind(AssertUnwindSafe(run))
        .map_err(|panic| io::Error::other(format!("{doing} panicked: {}", message(&*panic))))
}

/// Returns the message of a panic.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_that_names_it() {
        assert_eq!(caught("counting", || 7).unwrap(), 7);
        let number = 8;
        let of_text = caught("counting", || panic!("a fixed text")).map(|()| 0);
        let of_string = caught("counting", || panic!("{number} is one too many")).map(|()| 0);
        let of_thing = caught("counting", || std::panic::panic_any(number)).map(|()| 0);
        let told = [of_text, of_string, of_thing].map(|result| result.unwrap_err().to_string());
        assert_eq!(told[0], "counting panicked: a fixed text");
        assert_eq!(told[1], "counting panicked: 8 is one too many");
        assert_eq!(told[2], "counting panicked: no message");
    }
}
