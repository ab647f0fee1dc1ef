//! Operations in flight on an io_uring.
//!
//! Invariants:
//! - `slots[i]` is full exactly while the kernel may know the entry with user data `i`: from before its push until
//!   its completion is taken from the ring. Meanwhile the slot owns the entry's memory and nobody touches it. The slot
//!   may move, the memory it points to does not.
//! - The ring has an entry for every slot, so a push finds room and completions never overflow.
//! - `free` names the empty slots. `ready` holds what is finished and not reaped.
//! - Once `broken` is set the ring is not entered again; every slot is empty, and the memory of what was in flight is
//!   leaked, because the kernel may still use it.

use std::io;
use std::mem;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use io_uring::{IoUring, Probe, opcode, types};
use rustix::io::{Errno, ReadWriteFlags};

use crate::file::inner::{FileInner, copy, is_refusal};
use crate::{Completion, Op, Persist, Queue};

/// More than this in one operation comes back short, as it does from the kernel; a multiple of the sector size.
const MAX_TRANSFER: usize = 1 << 30;

pub(crate) struct UringQueue {
    ring: IoUring,
    file: Arc<FileInner>,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    ready: Vec<Completion>,
    broken: Option<io::Error>,
}

struct Slot {
    token: u64,
    op: Op,
    /// How the write asked for durability, if it did.
    sync: SyncBy,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SyncBy {
    No,
    /// The entry carries `RWF_DSYNC`.
    Flag,
    /// An fdatasync follows the write.
    After,
}

impl UringQueue {
    /// Whether the kernel lets this process use a ring for reads and writes, and why not.
    pub(crate) fn probe() -> io::Result<()> {
        let ring = IoUring::new(2)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if probe.is_supported(opcode::Read::CODE) && probe.is_supported(opcode::Write::CODE) {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel's rings have no read and write"))
    }

    pub(crate) fn new(file: Arc<FileInner>, depth: usize) -> io::Result<Self> {
        Ok(Self {
            ring: IoUring::new(depth as u32)?,
            file,
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            ready: Vec::new(),
            broken: None,
        })
    }

    /// What must hold before the kernel may see the operation.
    fn admit(&self, op: &Op) -> io::Result<()> {
        if let Some(e) = &self.broken {
            return Err(copy(e));
        }
        match op {
            Op::Read { .. } => Ok(()),
            Op::Write { offset, data, .. } => self.file.check_write(*offset, data.len()),
        }
    }

    /// Hands the kernel what was pushed and waits for `want` completions. May return early; callers look again.
    fn enter(&self, want: usize) -> io::Result<()> {
        match self.ring.submit_and_wait(want) {
            // Busy: the kernel is short of memory for now. What it did not take stays in the ring.
            Err(e) if !matches!(Errno::from_io_error(&e), Some(Errno::INTR | Errno::AGAIN | Errno::BUSY)) => {
                Err(e)
            }
            _ => Ok(()),
        }
    }

    /// Ends everything in flight with `e`, after an error that leaves no way to learn how it really ended.
    fn fail(&mut self, e: io::Error) {
        tracing::error!(in_flight = self.in_flight(), "io_uring broke down: {e}");
        for slot in self.slots.iter_mut().filter_map(Option::take) {
            self.ready.push(Completion { token: slot.token, result: Err(copy(&e)), buf: None });
            mem::forget(slot.op);
        }
        self.free = (0..self.slots.len()).collect();
        self.broken = Some(e);
    }

    /// Takes the completions that are there.
    fn collect(&mut self) {
        if self.broken.is_some() {
            return; // what completes now was given up before
        }
        let Self { ring, file, slots, free, ready, .. } = self;
        let mut unsynced = Vec::new();
        for entry in ring.completion() {
            let index = entry.user_data() as usize;
            let Slot { token, mut op, sync } = slots[index].take().expect("a completion has its slot");
            free.push(index);
            let mut result = match entry.result() {
                n if n >= 0 => Ok(n as usize),
                errno => Err(io::Error::from_raw_os_error(-errno)),
            };
            if result.as_ref().is_err_and(|e| was_not_tried(e) || sync == SyncBy::Flag && is_refusal(e)) {
                result = file.perform(&mut op);
            } else {
                file.count(&op, &result, sync == SyncBy::Flag);
            }
            if sync == SyncBy::After && result.is_ok() {
                unsynced.push(ready.len());
            }
            ready.push(op.complete(token, result));
        }
        // One sync covers all of them: their writes are complete.
        if !unsynced.is_empty()
            && let Err(e) = file.sync()
        {
            for index in unsynced {
                ready[index].result = Err(copy(&e));
            }
        }
    }
}

impl Queue for UringQueue {
    fn submit(&mut self, token: u64, mut op: Op) {
        assert!(self.in_flight() < self.slots.len(), "more than {} operations in flight", self.slots.len());
        op.prepare();
        if let Err(e) = self.admit(&op) {
            self.ready.push(op.complete(token, Err(e)));
            return;
        }
        let sync = match &op {
            Op::Write { persist: Persist::Durable, .. } if self.file.dsync() => SyncBy::Flag,
            Op::Write { persist: Persist::Durable, .. } => SyncBy::After,
            _ => SyncBy::No,
        };
        let fd = types::Fd(self.file.file.as_raw_fd());
        let entry = match &mut op {
            Op::Read { offset, buf } => {
                opcode::Read::new(fd, buf.as_mut_ptr(), buf.len().min(MAX_TRANSFER) as u32)
                    .offset(*offset)
                    .build()
            }
            Op::Write { offset, data, .. } => {
                let flags =
                    if sync == SyncBy::Flag { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
                opcode::Write::new(fd, data.as_ptr(), data.len().min(MAX_TRANSFER) as u32)
                    .offset(*offset)
                    .rw_flags(flags.bits() as i32)
                    .build()
            }
        };
        let index = self.free.pop().expect("fewer in flight than slots");
        self.slots[index] = Some(Slot { token, op, sync });
        // SAFETY: the entry points to `len` bytes that the slot owns until the completion is taken (or leaks, in
        // `fail`). An `AlignedBuf` and a `Bytes` keep their bytes in place when they move. A read's memory is reached
        // through nothing else meanwhile, a write's is only read. `drop` waits for completions before the ring, the
        // file and the slots go.
        unsafe { self.ring.submission().push(&entry.user_data(index as u64)) }
            .expect("the ring has an entry for every slot");
        if let Err(e) = self.enter(0) {
            self.fail(e);
        }
    }

    fn reap(&mut self, wait: bool, out: &mut Vec<Completion>) {
        loop {
            self.collect();
            let must_wait = wait && self.ready.is_empty() && self.in_flight() > 0;
            // An entry that the kernel would not take at submission is offered again.
            let unsubmitted = self.broken.is_none() && !self.ring.submission().is_empty();
            if (must_wait || unsubmitted)
                && let Err(e) = self.enter(must_wait.into())
            {
                self.fail(e);
            }
            if !must_wait {
                break;
            }
        }
        out.append(&mut self.ready);
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len() + self.ready.len()
    }
}

impl Drop for UringQueue {
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.in_flight() > 0 {
            self.reap(true, &mut done);
        }
    }
}

/// Whether the kernel gave the operation back without having carried it out, as when the thread that submitted it
/// ends first.
fn was_not_tried(e: &io::Error) -> bool {
    matches!(Errno::from_io_error(e), Some(Errno::INTR | Errno::AGAIN | Errno::CANCELED))
}
