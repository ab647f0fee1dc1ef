//! The keys that end the display. Meanwhile, the terminal passes each key on at once, and does not
//! show it.

use std::io::{IsTerminal, stdin};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::read;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// The byte that the key Esc sends. Other keys send it with more bytes behind it.
const ESCAPE: u8 = 0x1b;

/// The keyboard of a terminal; dropping it restores the terminal.
pub struct Keys {
    before: Termios,
}

impl Keys {
    /// Returns the keyboard; `None` if the standard input is not a terminal.
    pub fn new() -> Option<Self> {
        let input = stdin();
        let before = input.is_terminal().then(|| tcgetattr(&input).ok()).flatten()?;
        let mut each = before.clone();
        each.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        tcsetattr(&input, OptionalActions::Now, &each).ok()?;
        Some(Self { before })
    }

    /// Waits for a key, for `time` at most. Returns whether the display should end: by q or Esc, or
    /// because the terminal is gone.
    pub fn end_within(&self, time: Duration) -> bool {
        let input = stdin();
        let mut wanted = [PollFd::new(&input, PollFlags::IN)];
        let time = Timespec::try_from(time).expect("a short time");
        // A signal ends the wait with an error.
        if !poll(&mut wanted, Some(&time)).is_ok_and(|ready| ready > 0) {
            return false;
        }
        let mut keys = [0; 64];
        match read(&input, &mut keys) {
            Ok(0) | Err(_) => true,
            Ok(len) => ends(&keys[..len]),
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _the_terminal_may_be_gone = tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}

fn ends(keys: &[u8]) -> bool {
    keys == [ESCAPE] || keys.iter().any(|key| key.eq_ignore_ascii_case(&b'q'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_and_escape_end_the_display_and_arrows_do_not() {
        for (keys, end) in
            [(&b"q"[..], true), (b"Q", true), (b"\x1b", true), (b"\x1b[A", false), (b"x", false)]
        {
            assert_eq!(ends(keys), end, "{keys:?}");
        }
    }
}
