//! The log of a server: a thread of its own writes the lines, so a log that nobody reads delays
//! nothing else. Lines that find no room are left out and counted.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Most bytes of lines that wait for the thread.
const MOST: usize = 1 << 20;

/// The lines on their way to the log. Clones are handles to the same lines.
#[derive(Clone)]
pub struct LogWriter {
    shared: Arc<Shared>,
}

struct Shared {
    lines: Mutex<Lines>,
    changed: Condvar,
    most: usize,
}

#[derive(Default)]
struct Lines {
    waiting: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Number of lines that found no room.
    lost: u64,
    /// Whether the thread writes a line now.
    is_busy: bool,
}

impl LogWriter {
    /// Starts the thread, which writes to `out`.
    ///
    /// # Errors
    /// The system provides no thread.
    pub fn start(out: impl Write + Send + 'static) -> io::Result<Self> {
        Self::with(out, MOST)
    }

    fn with(mut out: impl Write + Send + 'static, most: usize) -> io::Result<Self> {
        let shared = Shared { lines: Mutex::default(), changed: Condvar::new(), most };
        let log = Self { shared: Arc::new(shared) };
        let writer = log.clone();
        Builder::new().name("log".into()).spawn(move || writer.keep_writing(&mut out))?;
        Ok(log)
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.shared.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep_writing(&self, out: &mut impl Write) {
        let mut lines = self.lines();
        loop {
            let Some(line) = lines.waiting.pop_front() else {
                let lost = std::mem::take(&mut lines.lost);
                if lost > 0 {
                    drop(lines);
                    tracing::warn!(lost, "the log was not read in time, and leaves out lines");
                    lines = self.lines();
                    continue;
                }
                lines.is_busy = false;
                self.shared.changed.notify_all();
                lines = self.shared.changed.wait(lines).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            lines.bytes -= line.len();
            lines.is_busy = true;
            drop(lines);
            // A log that is closed takes no lines, and the server goes on.
            let _ = out.write_all(&line).and_then(|()| out.flush());
            lines = self.lines();
        }
    }

    /// Waits until all lines are written, but not longer than `patience`; returns whether they are.
    pub fn finish(&self, patience: Duration) -> bool {
        let is_left = |lines: &mut Lines| lines.is_busy || !lines.waiting.is_empty();
        let waited = self.shared.changed.wait_timeout_while(self.lines(), patience, is_left);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl Write for LogWriter {
    /// Takes a whole line, or leaves it out.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut lines = self.lines();
        if lines.bytes + line.len() > self.shared.most {
            lines.lost += 1;
        } else {
            lines.bytes += line.len();
            lines.waiting.push_back(line.to_vec());
            self.shared.changed.notify_all();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for LogWriter {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A log that takes a line for each permission.
    struct Stalled {
        permissions: Receiver<()>,
        written: Sender<Vec<u8>>,
    }

    impl Write for Stalled {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.permissions.recv().map_err(io::Error::other)?;
            self.written.send(line.to_vec()).map_err(io::Error::other)?;
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stalled_log_holds_up_nobody_and_lines_without_room_are_counted() {
        let ((permit, permissions), (written, lines)) = (channel(), channel());
        let mut log = LogWriter::with(Stalled { permissions, written }, 1000).unwrap();
        for n in 0..1000 {
            log.write_all(format!("{n:>9}\n").as_bytes()).unwrap();
        }
        assert!(!log.finish(Duration::from_millis(10)), "nobody reads it");
        let lost = log.lines().lost;
        assert!((899..=900).contains(&lost), "{lost}");
        (0..2000).for_each(|_| permit.send(()).unwrap());
        assert!(log.finish(Duration::from_secs(60)));
        assert_eq!(log.lines().lost, 0, "the loss is reported");
        let text: Vec<u8> = lines.try_iter().flatten().collect();
        assert!(text.starts_with(b"        0\n        1\n"), "{}", text.escape_ascii());
    }
}
