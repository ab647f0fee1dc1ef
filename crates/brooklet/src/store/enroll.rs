//! Enrolls the logs of a space that exist already: the space counts them, or sets its limits on
//! them.

use crate::error::Error;
use crate::model::commit::{Action, EnrollScope, Op};
use crate::read::scan::LogInfo;
use crate::store::space::Space;
use crate::store::ticket::Ticket;

/// The number of logs that one commit enrolls.
const AT_ONCE: usize = 64;

/// The number of logs that are listed before they are enrolled.
const LISTED: usize = 64 << 10;

impl Space {
    /// Enrolls all logs that are not counted yet. Enrolls the listed logs after the listing: a
    /// listing keeps the room of merged runs, and the commits may wait for that room.
    pub(super) fn enroll(&self, gives: EnrollScope) -> Result<(), Error> {
        let (mut from, mut last, mut damage) = (self.key(""), None, None);
        loop {
            let (mut logs, mut listed) = (Vec::new(), Ok(()));
            let mut listing = self.store.scan_from(self.key(""), &from)?;
            for log in listing.by_ref().take(LISTED) {
                match log {
                    Ok(log) => logs.push(log),
                    Err(error) => listed = Err(error),
                }
            }
            // The next listing begins behind this damage.
            damage = damage.or_else(|| listing.take_damage());
            drop(listing);
            for some in logs.chunks(AT_ONCE) {
                last = self.enroll_some(some, gives)?.or(last);
            }
            listed?;
            match logs.last() {
                Some(log) if logs.len() == LISTED => from = [&log.key[..], b"\0"].concat(),
                _ => break,
            }
        }
        last.map_or(Ok(()), |ticket| ticket.wait_durable())?;
        damage.map_or(Ok(()), Err)
    }

    /// Enrolls some logs by one commit, or by several if the ring or the room is too small for one.
    fn enroll_some(&self, logs: &[LogInfo], gives: EnrollScope) -> Result<Option<Ticket>, Error> {
        let ops: Vec<Op<'_>> =
            logs.iter().map(|log| Op { key: &log.key, action: Action::Enroll(gives) }).collect();
        match self.store.write(&ops, None, true) {
            Ok(ticket) => Ok(Some(ticket)),
            // All of these logs are enrolled already, or are deleted.
            Err(Error::EmptyCommit) => Ok(None),
            // A full store takes small commits of this kind.
            Err(Error::CommitTooLarge { .. } | Error::Full { .. }) if logs.len() > 1 => {
                let (some, others) = logs.split_at(logs.len() / 2);
                let first = self.enroll_some(some, gives)?;
                Ok(self.enroll_some(others, gives)?.or(first))
            }
            Err(error) => Err(error),
        }
    }
}
