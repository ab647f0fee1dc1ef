//! Group commit at its plainest: what gathers is written with one durable write to a file that was
//! written before.
//!
//! Nothing can be read back; it shows what the device and the wake-ups leave to a store.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use brooklet::io::{AlignedBuf, Persist, write_all_at};

use super::device::{self, BYTES};
use crate::batch::Batched;
use crate::outcome::{Done, Result};
use crate::peer::{Op, Peer, Transactions};
use crate::word::Word;

pub const SETTING: &str = "two buffers, and one thread that writes what has gathered; whoever waits sleeps on the word of \
    its batch, and takes no lock after waking; callbacks and bulk by the bench's batches; uncompressed, and nothing is \
    indexed";

pub struct Plain {
    group: Group,
    batched: Box<Batched<Arc<File>>>,
}

/// Group commit for waiting threads. Dropping it ends its thread.
struct Group {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

struct Shared {
    file: Arc<File>,
    open: Mutex<Open>,
    /// Set while something waits to be written.
    work: Word,
}

/// The batch that fills, and the word of those who wait for it.
struct Open {
    buf: AlignedBuf,
    result: Arc<Word>,
    closing: bool,
}

const DURABLE: u32 = 1;
const FAILED: u32 = 2;

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().expect("no panics")
    }

    fn run(&self) {
        let mut spare = AlignedBuf::new(1 << 20);
        loop {
            self.work.wait();
            self.work.reset();
            let mut open = self.lock();
            if open.buf.is_empty() {
                if open.closing {
                    return;
                }
                continue;
            }
            let mut buf = std::mem::replace(&mut open.buf, spare);
            let result = std::mem::take(&mut open.result);
            drop(open);
            let written = self.file.write(&mut buf);
            result.set(if written.is_ok() { DURABLE } else { FAILED });
            buf.clear();
            spare = buf;
        }
    }
}

/// The file, written from its start to its middle and again.
struct File {
    volume: brooklet::io::FileVolume,
    offset: AtomicU64,
}

impl File {
    fn write(&self, buf: &mut AlignedBuf) -> Result<()> {
        buf.pad();
        for piece in buf.chunks(1 << 20) {
            // The writers take turns, so that this is no race.
            let offset = self.offset.load(Ordering::Relaxed);
            self.offset.store((offset + piece.len() as u64) % (BYTES / 2), Ordering::Relaxed);
            write_all_at(&self.volume, offset, piece, Persist::Durable)?;
        }
        Ok(())
    }
}

/// Bytes before a payload.
const HEADER: usize = 12;

fn put(buf: &mut AlignedBuf, op: &Op) {
    buf.extend(&op.log.to_le_bytes());
    buf.extend(&(op.payload.len() as u32).to_le_bytes());
    buf.extend(op.payload);
}

impl Plain {
    pub fn open(dir: &Path) -> Result<Self> {
        let file = Arc::new(File { volume: device::file(&dir.join("plain"))?, offset: AtomicU64::new(0) });
        let open = Open { buf: AlignedBuf::new(1 << 20), result: Arc::default(), closing: false };
        let batched = Box::new(Batched::new(file.clone()));
        let shared = Arc::new(Shared { file, open: Mutex::new(open), work: Word::default() });
        let writer = shared.clone();
        let writer = thread::Builder::new().name("plain-writer".into()).spawn(move || writer.run())?;
        Ok(Self { group: Group { shared, writer: Some(writer) }, batched })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.work.set(1);
        let _ = self.writer.take().map(JoinHandle::join);
    }
}

impl Peer for Plain {
    fn wait(&self, op: Op) -> Result<()> {
        let (result, is_first) = {
            let mut open = self.group.shared.lock();
            let is_first = open.buf.is_empty();
            put(&mut open.buf, &op);
            (open.result.clone(), is_first)
        };
        if is_first {
            self.group.shared.work.set(1);
        }
        if result.wait() == DURABLE { Ok(()) } else { Err("the plain group commit could not write".into()) }
    }

    fn submit(&self, op: Op, done: Done) -> Result<()> {
        self.batched.submit(op, done)
    }

    fn all(&self, ops: &[Op]) -> Result<()> {
        self.batched.all(ops)
    }

    fn read(&self, _: u64, _: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        Err("nothing can be read back".into())
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.batched.close()
    }
}

impl Transactions for Arc<File> {
    fn commit(&self, ops: &[Op]) -> Result<()> {
        let bytes: usize = ops.iter().map(|op| HEADER + op.payload.len()).sum();
        let mut buf = AlignedBuf::new(bytes);
        ops.iter().for_each(|op| put(&mut buf, op));
        self.write(&mut buf)
    }

    fn read(&self, _: u64, _: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        Err("nothing can be read back".into())
    }
}
