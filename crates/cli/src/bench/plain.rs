//! What the log is compared with: group commit at its plainest.

use std::path::Path;
use std::sync::{Condvar, Mutex};

use brooklet::io::{AlignedBuf, FileVolume, Persist, write_all_at};

use crate::device::Device;
use crate::failure::Failure;

/// Bytes of the plain file.
pub const DEVICE_BYTES: u64 = 64 << 20;

/// Group commit at its plainest: a buffer, a lock, a condition; whoever finds no write going on
/// writes for all.
pub struct PlainGroupCommit {
    volume: FileVolume,
    state: Mutex<PlainState>,
    done: Condvar,
}

struct PlainState {
    buf: AlignedBuf,
    offset: u64,
    writing: bool,
    /// Number of the batch that fills, and of the last that is durable.
    filling: u64,
    durable: u64,
}

impl PlainGroupCommit {
    pub fn new(path: &Path) -> Result<Self, Failure> {
        let volume = Device::new(path, DEVICE_BYTES)?.volume;
        let state =
            PlainState { buf: AlignedBuf::new(1 << 20), offset: 0, writing: false, filling: 1, durable: 0 };
        Ok(Self { volume, state: Mutex::new(state), done: Condvar::new() })
    }

    pub fn append(&self, payload: &[u8]) -> Result<(), Failure> {
        let mut state = self.state.lock().expect("no panics");
        state.buf.extend(&(payload.len() as u32).to_le_bytes());
        state.buf.extend(payload);
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
            buf.pad();
            let offset = state.offset;
            state.offset = (offset + buf.len() as u64) % (DEVICE_BYTES / 2);
            drop(state);
            write_all_at(&self.volume, offset, &buf, Persist::Durable)?;
            state = self.state.lock().expect("no panics");
            state.writing = false;
            state.durable = batch;
            self.done.notify_all();
        }
        Ok(())
    }

    /// The volume it writes to.
    pub fn volume(&self) -> &FileVolume {
        &self.volume
    }
}
