//! Writing a file front to back, in large aligned pieces, past the page cache if the system allows
//! it.
//!
//! Copying to the page cache takes as much time as all of packing. So the bytes are gathered in
//! buffers, which a thread writes directly. If the system refuses, the thread writes through the
//! cache, and sends the written bytes on to the medium early, so that little is left to wait for at
//! the end.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::mem;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use tempfile::NamedTempFile;

/// Bytes of a buffer, and what direct writes are aligned to.
const BUFFER: usize = if cfg!(test) { 16 << 10 } else { 4 << 20 };
const ALIGN: usize = 4096;
/// Buffers that wait to be written: one more is being written, and one more is being filled.
const WAITING: usize = 1;
/// Bytes written through the cache before they are sent on to the medium.
const SEND: u64 = 32 << 20;

/// A file without its final name, and the bytes written to it.
pub(crate) struct Writer {
    file: NamedTempFile,
    buffer: Buffer,
    /// Offset of the buffer in the file.
    base: u64,
    thread: Option<Thread>,
}

struct Thread {
    to_write: SyncSender<(u64, Buffer)>,
    /// Written buffers, for reuse.
    spare: Arc<Mutex<Vec<Buffer>>>,
    handle: JoinHandle<io::Result<()>>,
}

impl Writer {
    pub fn new(file: NamedTempFile) -> Self {
        Writer { file, buffer: Buffer::default(), base: 0, thread: None }
    }

    pub fn file(&self) -> &File {
        self.file.as_file()
    }

    /// Returns the bytes written so far.
    pub fn written(&self) -> u64 {
        self.base + self.buffer.len as u64
    }

    /// Makes all bytes readable from the file.
    pub fn settle(&mut self) -> io::Result<()> {
        if let Some(Thread { to_write, handle, .. }) = self.thread.take() {
            drop(to_write);
            handle.join().expect("writing does not panic")?;
        }
        self.file().write_all_at(self.buffer.filled(), self.base)
    }

    /// Makes all bytes durable, and returns the file.
    pub fn finish(mut self) -> io::Result<NamedTempFile> {
        self.settle()?;
        self.file().sync_all()?;
        Ok(self.file)
    }

    /// Passes the full buffer to the thread.
    fn hand_over(&mut self) -> io::Result<()> {
        let thread = match &mut self.thread {
            Some(thread) => thread,
            none => none.insert(Thread::start(self.file.as_file(), self.file.path())?),
        };
        let mut next = thread.spare.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        next.len = 0;
        let full = mem::replace(&mut self.buffer, next);
        let base = self.base;
        self.base += full.len as u64;
        if thread.to_write.send((base, full)).is_ok() {
            return Ok(());
        }
        // The thread has ended, which happens only after a failed write.
        let Thread { handle, .. } = self.thread.take().expect("it was just there");
        Err(handle.join().expect("writing does not panic").expect_err("it ends by an error"))
    }
}

impl Write for Writer {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.buffer.len == BUFFER {
            self.hand_over()?;
        }
        Ok(self.buffer.take(data))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Thread {
    fn start(file: &File, path: &Path) -> io::Result<Self> {
        let (to_write, writes) = sync_channel::<(u64, Buffer)>(WAITING);
        let spare = Arc::new(Mutex::new(Vec::new()));
        let written = spare.clone();
        let (cached, mut direct) = (file.try_clone()?, open_directly(path));
        let write = move || {
            let mut sent = 0;
            for (base, buffer) in writes {
                match direct.as_ref().map(|direct| direct.write_all_at(buffer.filled(), base)) {
                    Some(Ok(())) => {}
                    Some(Err(error)) if error.kind() != io::ErrorKind::InvalidInput => return Err(error),
                    _ => {
                        direct = None;
                        cached.write_all_at(buffer.filled(), base)?;
                        if base + buffer.len as u64 - sent >= SEND {
                            cached.sync_data()?;
                            sent = base + buffer.len as u64;
                        }
                    }
                }
                written.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
            }
            Ok(())
        };
        let handle = thread::Builder::new().name("codex-write".into()).spawn(write)?;
        Ok(Thread { to_write, spare, handle })
    }
}

/// Opens the same file for writing past the page cache; `None` if the system or the file system
/// does not support that.
fn open_directly(path: &Path) -> Option<File> {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
        OpenOptions::new().write(true).custom_flags(flags).open(path).ok()
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = path;
        None
    }
}

/// Memory with an aligned start.
#[derive(Default)]
struct Buffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    fn filled(&self) -> &[u8] {
        &self.memory[self.start..][..self.len]
    }

    /// Takes as many bytes as fit, and returns their number.
    fn take(&mut self, data: &[u8]) -> usize {
        if self.memory.is_empty() {
            self.memory = vec![0; BUFFER + ALIGN];
            self.start = self.memory.as_ptr().align_offset(ALIGN).min(ALIGN);
        }
        let taken = data.len().min(BUFFER - self.len);
        self.memory[self.start + self.len..][..taken].copy_from_slice(&data[..taken]);
        self.len += taken;
        taken
    }
}
