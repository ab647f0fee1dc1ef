//! Brooklet, with its defaults.

use std::path::Path;

use brooklet::Store;

use crate::outcome::{Awaited, Done, Result};
use crate::peer::{Op, Peer};

pub const SETTING: &str = "defaults; threads wait for a ticket, tasks await it, callbacks are left on it; a snapshot is one operation";

pub struct Brooklet {
    store: Store,
}

impl Brooklet {
    pub fn open(dir: &Path) -> Result<Self> {
        Ok(Self { store: Store::open(dir.join("store"))? })
    }

    fn write(&self, op: &Op) -> Result<brooklet::Ticket> {
        let key = op.log.to_be_bytes();
        let ticket = match op.is_snapshot() {
            true => self.store.snapshot(key, op.payload)?,
            false => self.store.append(key, op.payload)?,
        };
        match ticket.seq() == op.seq {
            true => Ok(ticket),
            false => Err(format!("log {}: {} was given for {}", op.log, ticket.seq(), op.seq).into()),
        }
    }
}

impl Peer for Brooklet {
    fn wait(&self, op: Op) -> Result<()> {
        Ok(self.write(&op)?.wait()?)
    }

    fn submit(&self, op: Op, done: Done) -> Result<()> {
        let ticket = self.write(&op)?;
        ticket.on_done(|outcome| done(outcome.map_err(|error| error.to_string().into())));
        Ok(())
    }

    fn begin(&self, op: Op) -> Result<Awaited> {
        let ticket = self.write(&op)?;
        Ok(Box::pin(async { Ok(ticket.await?) }))
    }

    fn all(&self, ops: &[Op]) -> Result<()> {
        let mut last = None;
        for op in ops {
            last = Some(self.write(op)?);
        }
        // Acknowledgements come in order.
        Ok(last.map_or(Ok(()), |ticket| ticket.wait())?)
    }

    fn read(&self, log: u64, visit: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        for entry in self.store.read(log.to_be_bytes(), ..)? {
            let entry = entry?;
            visit(entry.seq, &entry.payload);
        }
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(self.store.checkpoint()?)
    }

    fn compact(&self) -> Result<()> {
        self.settle()?;
        Ok(self.store.compact()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.store.close()?)
    }
}
