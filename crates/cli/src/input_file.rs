//! Inputs that are read bit by bit: a file, a pipe, or the standard input. A command that waits for
//! such an input stops once it is asked to.

use std::fs::File;
use std::io::{self, BufReader, Read, stdin};
use std::os::fd::AsFd;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::payload::is_stdin;
use crate::signals;

/// Longest time until a command that waits sees that it is to stop. A signal may interrupt another
/// thread.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Bytes of a read from which on more are likely to follow at once. A pipe has 64 KiB at most, and
/// a writer that has filled it fills it again.
const BULK: usize = 32 << 10;
/// Longest time that a read of many bytes waits for more of them.
const SOON: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// Most times that a read waits so: a writer that always brings a few bytes just in time does not
/// hold up what was read before.
const TIMES: usize = 64;

/// An input; its reads fail once the command was asked to stop. A read of many bytes goes on while
/// more of them come soon: a command that waits for the store after each read waits less often.
pub struct InputFile {
    file: File,
    /// An error behind the bytes of the last read. A socket reports it once, and then its end.
    failure: Option<io::Error>,
}

impl InputFile {
    /// Opens a file, or for `-` the standard input, with so many bytes of buffer.
    pub fn open(path: &Path, buffer: usize) -> io::Result<BufReader<Self>> {
        let file = match is_stdin(path.as_os_str()) {
            true => File::from(stdin().as_fd().try_clone_to_owned()?),
            false => File::open(path)?,
        };
        Ok(BufReader::with_capacity(buffer, Self::of(file)))
    }

    fn of(file: File) -> Self {
        Self { file, failure: None }
    }

    /// Waits for bytes, and reads those that are there.
    fn read_some(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while !signals::asked() {
            match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&TICK)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            match self.file.read(into) {
                Err(error) if is_to_come(&error) => {}
                read => return read,
            }
        }
        Err(io::Error::other("stopped on request"))
    }

    /// Returns whether more bytes, or the end, come soon.
    fn has_more(&self) -> bool {
        let polled = poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&SOON));
        !signals::asked() && polled.is_ok_and(|ready| ready > 0)
    }
}

/// Returns whether a read may succeed later. Another process may have read the bytes that were
/// there, and may have set that reads do not wait.
fn is_to_come(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

impl Read for InputFile {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let (mut len, mut times) = (self.read_some(into)?, 0);
        while len >= BULK && len < into.len() && times < TIMES && self.has_more() {
            times += 1;
            match self.file.read(&mut into[len..]) {
                // The next read returns the end again.
                Ok(0) => break,
                Ok(more) => len += more,
                Err(error) if is_to_come(&error) => {}
                Err(error) => {
                    self.failure = Some(error);
                    break;
                }
            }
        }
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, Write};
    use std::os::fd::OwnedFd;
    #[cfg(target_os = "linux")]
    use std::os::unix::net::UnixStream;

    use super::*;

    /// However a writer cuts its bytes, all of them are read, and the end comes once.
    #[test]
    fn a_pipe_is_read_whole() {
        for size in [1_000, 40_000, 300_000] {
            let (reader, mut writer) = io::pipe().unwrap();
            let mut input =
                BufReader::with_capacity(1 << 20, InputFile::of(File::from(OwnedFd::from(reader))));
            let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
            let read = std::thread::scope(|scope| {
                let bytes = &bytes;
                scope.spawn(move || bytes.chunks(size).for_each(|part| writer.write_all(part).unwrap()));
                let mut read = Vec::new();
                while input.fill_buf().is_ok_and(|part| !part.is_empty()) {
                    read.extend_from_slice(input.buffer());
                    let len = input.buffer().len();
                    input.consume(len);
                }
                read
            });
            assert!(read == bytes, "{size}: {} bytes", read.len());
        }
    }

    /// A socket reports once that its peer broke off. In an earlier state that was taken for the
    /// end, if many bytes came before.
    #[test]
    #[cfg(target_os = "linux")]
    fn an_input_that_breaks_off_has_no_end() {
        let (mut reader, mut writer) = UnixStream::pair().unwrap();
        writer.write_all(&vec![b'x'; 2 * BULK]).unwrap();
        // A peer that closes with bytes that it has not read breaks off.
        reader.write_all(b"x").unwrap();
        drop(writer);
        let mut input = InputFile::of(File::from(OwnedFd::from(reader)));
        let (mut into, mut len) = (vec![0; 1 << 20], 0);
        let end = loop {
            match input.read(&mut into) {
                Ok(0) => break None,
                Ok(more) => len += more,
                Err(error) => break Some(error.kind()),
            }
        };
        assert_eq!((end, len), (Some(io::ErrorKind::ConnectionReset), 2 * BULK));
    }
}
