//! Events for the log. The engine and the keys only note them, because their lock is held then: one
//! task writes them to the log, without the lock.
//!
//! Clients without a password can cause most of these events. So the task writes few lines in a
//! second, counts the rest, and the text of clients is escaped and cut.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// Most events that are written at once; more are counted.
const MOST: usize = 16;
/// Pause after events were written.
const PAUSE: Duration = Duration::from_secs(1);
/// Most characters of a text that a client chose.
const SHOWN: usize = 64;

/// An event.
#[derive(Debug, PartialEq, Eq)]
pub enum Notice {
    /// A client sent a wrong name or password.
    WrongPassword {
        /// The name, as the client sent it.
        user: String,
        /// Address of the client.
        address: String,
    },
    /// The server disconnects a client.
    Dismissed {
        /// Address of the client.
        address: String,
        /// The reason.
        why: &'static str,
    },
    /// A client spoke HTTP or TLS to the port for Redis clients.
    Foreign {
        /// Address of the client.
        address: String,
    },
    /// A script wrote a message.
    Script {
        /// The level, of 0 to 3: debug, verbose, notice, warning.
        level: u8,
        /// The message.
        text: String,
    },
    /// The store refused a change that no client asked for.
    Trouble {
        /// The consequence.
        what: &'static str,
        /// The error of the store.
        error: String,
    },
}

impl Notice {
    /// Writes the event to the log.
    fn write(&self) {
        match self {
            Self::WrongPassword { user, address } => {
                tracing::warn!(user = shown(user), address, "a wrong name or password");
            }
            Self::Dismissed { address, why } => {
                tracing::info!(address, why, "the server disconnects a client");
            }
            Self::Foreign { address } => tracing::warn!(
                address,
                "a client spoke HTTP or TLS to the port for Redis clients, and the server disconnected it: \
                 a web page may have tried to run commands"
            ),
            Self::Script { level, text } => {
                let text = shown(text);
                match level {
                    0 | 1 => tracing::debug!(text, "a script writes to the log"),
                    2 => tracing::info!(text, "a script writes to the log"),
                    _ => tracing::warn!(text, "a script writes to the log"),
                }
            }
            Self::Trouble { what, error } => tracing::warn!(error, "{what}"),
        }
    }
}

/// Returns a text of a client for the log: escaped, and cut.
fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

/// Events that wait for the task which writes them.
#[derive(Debug, Default)]
pub struct Notices {
    waiting: Mutex<Waiting>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    notices: Vec<Notice>,
    /// Number of events that came while too many waited.
    left_out: u64,
}

impl Notices {
    /// Notes an event.
    pub fn push(&self, notice: Notice) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.notices.len() < MOST {
            waiting.notices.push(notice);
        } else {
            waiting.left_out += 1;
        }
        drop(waiting);
        self.news.notify_one();
    }

    fn take(&self) -> Waiting {
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes the events that wait.
    pub fn write(&self) {
        let Waiting { notices, left_out } = self.take();
        notices.iter().for_each(Notice::write);
        if left_out > 0 {
            tracing::warn!(left_out, "more events happened, and the log leaves them out");
        }
    }

    /// Writes events as they happen, at most some in a second.
    pub async fn keep_writing(&self) {
        loop {
            self.news.notified().await;
            self.write();
            tokio::time::sleep(PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_of_events_is_counted_and_texts_are_escaped_and_cut() {
        let notices = Notices::default();
        for _ in 0..1000 {
            notices.push(Notice::Dismissed { address: "a".into(), why: "w" });
        }
        let Waiting { notices: waiting, left_out } = notices.take();
        assert_eq!((waiting.len(), left_out), (MOST, 1000 - MOST as u64));
        assert_eq!(shown("a\n\x1b[2J\""), "a\\n\\u{1b}[2J\\\"");
        assert_eq!(shown(&"é".repeat(16_000)), "é".repeat(SHOWN) + "…");
    }
}
