//! Group commit at its plainest: what gathers is written with one durable write to a file that was
//! written before.
//!
//! Nothing can be read back; it shows what the device and the wake-ups leave to a store.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use brooklet::io::{AlignedBuf, Persist, write_all_at};

use super::device::{self, BYTES};
use crate::batch::Batched;
use crate::outcome::{Done, Result};
use crate::peer::{Op, Peer, Transactions};

pub const SETTING: &str = "waiting threads share a buffer, a lock and a condition, and whoever finds no write going on \
    writes for all; callbacks and bulk by the bench's batches; uncompressed, and nothing is indexed";

pub struct Plain {
    file: Arc<File>,
    state: Mutex<State>,
    done: Condvar,
    batched: Box<Batched<Arc<File>>>,
}

struct State {
    buf: AlignedBuf,
    writing: bool,
    /// Number of the batch that fills, and of the last that is durable.
    filling: u64,
    durable: u64,
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
        let state = State { buf: AlignedBuf::new(1 << 20), writing: false, filling: 1, durable: 0 };
        let batched = Box::new(Batched::new(file.clone()));
        Ok(Self { file, state: Mutex::new(state), done: Condvar::new(), batched })
    }
}

impl Peer for Plain {
    fn wait(&self, op: Op) -> Result<()> {
        let mut state = self.state.lock().expect("no panics");
        put(&mut state.buf, &op);
        let mine = state.filling;
        while state.durable < mine {
            if state.writing {
                state = self.done.wait(state).expect("no panics");
                continue;
            }
            state.writing = true;
            let batch = state.filling;
            state.filling += 1;
            let mut buf = std::mem::replace(&mut state.buf, AlignedBuf::new(1 << 20));
            drop(state);
            self.file.write(&mut buf)?;
            state = self.state.lock().expect("no panics");
            state.writing = false;
            state.durable = batch;
            self.done.notify_all();
        }
        Ok(())
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
