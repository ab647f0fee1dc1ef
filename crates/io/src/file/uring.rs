//! A queue of operations on an io_uring.
//!
//! Invariants:
//! - `slots[i]` is full exactly while the kernel may know the entry with user data `i`: from before
//!   the entry is pushed until its completion is taken from the ring. Meanwhile the slot owns the
//!   entry's memory, and nobody touches that memory. The slot may move; the memory that it points
//!   to does not.
//! - The ring has an entry for every slot and one for the bell, so a push finds room and
//!   completions never overflow.
//! - `bell_watched` is true while the kernel has an entry that completes when the bell is rung.
//! - `free` holds the numbers of the empty slots. `ready` holds completions that are not reaped
//!   yet.
//! - Once `broken` is set, the ring is not entered again. All slots are empty then, and the memory
//!   of the operations that were in flight is leaked, because the kernel may still use it.

use std::fs::File;
use std::io;
use std::mem::{self, ManuallyDrop};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::io::{Errno, ReadWriteFlags};

use super::inner::{FileInner, copy, is_refusal, retry};
use crate::seeded::bug;
use crate::{AlignedBuf, Completion, Op, Persist, Queue, SECTOR};

/// Most bytes of one operation; a longer operation comes back short, as from the kernel. A multiple
/// of the sector size.
const MAX_TRANSFER: usize = 1 << 30;

pub(crate) struct UringQueue {
    ring: IoUring,
    file: Arc<FileInner>,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    ready: Vec<Completion>,
    bell: Arc<Bell>,
    bell_watched: bool,
    /// Whether the bell was rung, and no wait has ended by that ring yet.
    rung: bool,
    broken: Option<io::Error>,
}

/// An event that the ring watches; it ends a wait for completions.
struct Bell(OwnedFd);

/// A wait of this time or longer has no time limit: the kernel treats a too large time as a time in
/// the past.
const ENDLESS: Duration = Duration::from_secs(1 << 30);

/// User data of the bell's entry; no slot has this number.
const BELL: u64 = u64::MAX;

impl Bell {
    /// Resets the bell.
    fn still(&self) {
        // The descriptor is non-blocking; a failed read means that the bell was not rung.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The write fails only if the counter is full: then the bell is already rung.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

struct Slot {
    token: u64,
    op: Op,
    /// Method of durability of the write, if it is durable.
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
    /// Checks that the kernel lets this process use a ring for reads and writes of `file`;
    /// otherwise returns the reason. A filter of system calls may allow the setup of a ring and
    /// forbid its use. So the check also carries out a read.
    pub(crate) fn probe(file: &File) -> io::Result<()> {
        let mut ring = IoUring::new(2)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::PollAdd::CODE];
        let lacks = if !needed.into_iter().all(|code| probe.is_supported(code)) {
            "the kernel's rings have no read and write"
        } else if !ring.params().is_feature_ext_arg() {
            "the kernel's rings cannot wait for a given time"
        } else {
            return try_out(&mut ring, file);
        };
        Err(io::Error::new(io::ErrorKind::Unsupported, lacks))
    }

    pub(crate) fn new(file: Arc<FileInner>, depth: usize) -> io::Result<Self> {
        Ok(Self {
            ring: IoUring::new(depth as u32 + 1)?,
            file,
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            ready: Vec::new(),
            bell: Arc::new(Bell(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)),
            bell_watched: false,
            rung: false,
            broken: None,
        })
    }

    /// Checks the operation before the kernel may see it.
    fn admit(&self, op: &Op) -> io::Result<()> {
        if let Some(e) = &self.broken {
            return Err(copy(e));
        }
        match op {
            Op::Read { .. } => Ok(()),
            Op::Write { offset, data, .. } => {
                self.file.check_write(*offset, data.len())?;
                self.file.watch()
            }
        }
    }

    /// Submits the pushed entries and waits for a completion, up to `patience` if given. May return
    /// early; callers check again.
    fn enter(&mut self, patience: Option<Duration>) {
        let submitter = self.ring.submitter();
        let entered = match patience {
            None => submitter.submit(),
            Some(patience) if patience < ENDLESS => {
                let time = types::Timespec::from(patience);
                submitter.submit_with_args(1, &types::SubmitArgs::new().timespec(&time))
            }
            Some(_) => submitter.submit_and_wait(1),
        };
        // Busy: the kernel is short of memory now. Entries that the kernel did not take stay in the
        // ring.
        let passing = [Errno::INTR, Errno::AGAIN, Errno::BUSY, Errno::TIME];
        if let Err(e) = entered
            && !Errno::from_io_error(&e).is_some_and(|errno| passing.contains(&errno))
        {
            self.fail(e);
        }
    }

    /// Puts an entry into the ring, for the next [`enter`](Self::enter).
    ///
    /// # Safety
    /// The memory that the entry points to must stay in place, and nobody may touch it, until the
    /// entry's completion is taken.
    unsafe fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: as the caller promises.
        unsafe { self.ring.submission().push(entry) }.expect("the ring has room for every slot and the bell");
    }

    /// Makes the ring watch the bell. A ring of the bell before this call counts as well.
    fn watch_bell(&mut self) {
        if !self.bell_watched {
            let bell = types::Fd(self.bell.0.as_raw_fd());
            let poll = opcode::PollAdd::new(bell, PollFlags::IN.bits() as u32).build();
            // SAFETY: the entry points to no memory.
            unsafe { self.push(&poll.user_data(BELL)) };
            self.bell_watched = true;
        }
    }

    /// Ends everything in flight with `e`, after an error that hides the real results.
    fn fail(&mut self, e: io::Error) {
        tracing::error!(in_flight = self.in_flight(), "io_uring failed: {e}");
        for slot in self.slots.iter_mut().filter_map(Option::take) {
            self.ready.push(Completion { token: slot.token, result: Err(copy(&e)), buf: None });
            mem::forget(slot.op);
        }
        self.free = (0..self.slots.len()).collect();
        self.broken = Some(e);
    }

    /// Takes the completions from the ring.
    fn collect(&mut self) {
        if self.broken.is_some() {
            return; // what completes now was given up before
        }
        let Self { ring, file, slots, free, ready, bell, bell_watched, rung, .. } = self;
        let (mut unsynced, mut durable) = (Vec::new(), Vec::new());
        for entry in ring.completion() {
            if entry.user_data() == BELL {
                // The bell is reset before it is watched again, so that a later ring completes the
                // new entry.
                bell.still();
                (*bell_watched, *rung) = (false, true);
                continue;
            }
            let index = entry.user_data() as usize;
            let Slot { token, mut op, sync } = slots[index].take().expect("a completion has its slot");
            free.push(index);
            let mut result = match entry.result() {
                n if n >= 0 => Ok(n as usize),
                _ if bug("ring-error-is-dropped") => Ok(op.wanted()),
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
            if sync != SyncBy::No && result.is_ok() {
                durable.push(ready.len());
            }
            ready.push(op.complete(token, result));
        }
        // One sync covers all these writes, because they are complete.
        let mut fail = |indices: &[usize], e: io::Error| {
            indices.iter().for_each(|index| ready[*index].result = Err(copy(&e)));
        };
        if !unsynced.is_empty()
            && !bug("ring-needs-no-sync")
            && let Err(e) = file.sync()
        {
            fail(&unsynced, e);
        }
        if !durable.is_empty()
            && let Err(e) = file.watch()
        {
            fail(&durable, e);
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
        // SAFETY: the entry points to `len` bytes that the slot owns until the completion is taken
        // (or that leak, in `fail`). An `AlignedBuf` and a `Bytes` keep their bytes in place when
        // they move. Meanwhile nothing else reaches the memory of a read, and the memory of a write
        // is only read. `drop` waits for the completions before the ring, the file and the slots
        // are dropped.
        unsafe { self.push(&entry.user_data(index as u64)) };
        self.enter(None);
    }

    fn reap(&mut self, wait: bool, out: &mut Vec<Completion>) {
        loop {
            self.collect();
            let must_wait = wait && self.ready.is_empty() && self.in_flight() > 0;
            // Offers an entry again that the kernel did not take at its submission.
            let unsubmitted = self.broken.is_none() && !self.ring.submission().is_empty();
            if must_wait || unsubmitted {
                self.enter(must_wait.then_some(Duration::MAX));
            }
            if !must_wait {
                break;
            }
        }
        out.append(&mut self.ready);
    }

    fn wait(&mut self, patience: Duration) {
        self.collect();
        if self.ready.is_empty() && self.in_flight() > 0 && !self.rung {
            self.watch_bell();
            self.enter(Some(patience));
            self.collect();
        }
        self.rung = false;
    }

    fn waker(&self) -> Waker {
        self.bell.clone().into()
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

/// Reads the first sector of `file`, if it has one, through the ring.
fn try_out(ring: &mut IoUring, file: &File) -> io::Result<()> {
    let mut sector = ManuallyDrop::new(AlignedBuf::zeroed(SECTOR));
    let read = opcode::Read::new(types::Fd(file.as_raw_fd()), sector.as_mut_ptr(), SECTOR as u32).build();
    // SAFETY: the entry points to `sector`, which nobody else touches. `sector` is freed only after
    // the kernel has completed the entry; otherwise it leaks.
    unsafe { ring.submission().push(&read) }.expect("an empty ring has room");
    retry(|| ring.submit_and_wait(1))?;
    let Some(entry) = ring.completion().next() else {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel's ring completes nothing"));
    };
    drop(ManuallyDrop::into_inner(sector));
    if entry.result() < 0 {
        return Err(io::Error::from_raw_os_error(-entry.result()));
    }
    Ok(())
}

/// Returns whether the kernel returned the operation without carrying it out, for example because
/// the thread that submitted it ended first.
fn was_not_tried(e: &io::Error) -> bool {
    matches!(Errno::from_io_error(e), Some(Errno::INTR | Errno::AGAIN | Errno::CANCELED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::tests::{a_file, a_wait_ends_by_time_and_by_its_waker};

    #[test]
    fn waits_end() {
        let (file, _dir) = a_file();
        if let Err(e) = UringQueue::probe(&file.inner.file) {
            return println!("skipped: {e}");
        }
        // Never dropped: it would wait for what does not end.
        let mut queue = ManuallyDrop::new(UringQueue::new(file.inner.clone(), 1).unwrap());
        queue.free.clear();
        a_wait_ends_by_time_and_by_its_waker(&mut *queue);
    }
}
