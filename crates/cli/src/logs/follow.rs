//! `read --follow`: the entries that another process appends, as they become durable there.

use brooklet::Store;

use super::{Read, notes};
use crate::beside::{Reader, Stop};
use crate::failure::Failure;
use crate::output::Output;
use crate::signals;
use crate::store_args::StoreArgs;

/// The entries that are still to be printed.
struct Rest {
    /// Number of the next entry; `None` before the log was found.
    next: Option<u64>,
    /// Whether the log had all entries before the next one at some time. Before that, the log only
    /// has to grow: it lost nothing.
    reached: bool,
    left: usize,
}

/// Prints the entries of a log, and goes on with those that follow.
pub fn follow(args: &Read, store_args: &StoreArgs, out: &mut Output) -> Result<(), Failure> {
    signals::listen_quietly()?;
    let mut rest = Rest { next: args.from, reached: false, left: args.limit.unwrap_or(usize::MAX) };
    let mut reader = Reader::open_beside(&args.log.store, store_args)?;
    while rest.left > 0 && !signals::asked() {
        match print(args, reader.store(), &mut rest, out) {
            Ok(()) => {
                out.flush()?;
                if rest.left > 0 && !reader.wait()? {
                    return Ok(());
                }
            }
            Err(Stop::Replaced(_)) => {}
            Err(Stop::Failure(failure)) => return Err(failure),
        }
        let cut = reader.reopen_log(args.log.key())?;
        if let (Some(cut), Some(next)) = (cut, rest.next)
            && rest.reached
            && cut < next
        {
            notes::cut(cut);
            rest.next = Some(cut);
        }
    }
    out.flush()
}

/// Prints the entries that the store shows from the next one on.
fn print(args: &Read, store: &Store, rest: &mut Rest, out: &mut Output) -> Result<(), Stop> {
    let key = args.log.key();
    let from = rest.next.unwrap_or(0);
    let entries = store.read_available(key, from..)?;
    let first = entries.range().start;
    if first > from && rest.next.is_some() {
        notes::trimmed(from..first);
    }
    if store.get_bounds(key)?.is_some() {
        if first < from && rest.reached {
            notes::cut(first);
        }
        if first >= from || rest.reached {
            (rest.next, rest.reached) = (Some(first), true);
        }
    }
    for entry in entries.take(rest.left) {
        let entry = entry?;
        args.print(&entry, out)?;
        (rest.next, rest.left) = (Some(entry.seq + 1), rest.left - 1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::Log;

    /// The log has lost nothing: it only has to grow.
    #[test]
    fn an_entry_that_is_to_come_is_awaited() {
        let store = Store::in_memory(1).unwrap();
        let log = Log { store: "unused".into(), log: "log".into() };
        let args =
            Read { log, from: Some(3), to: None, reverse: false, limit: Some(0), raw: true, follow: true };
        let (mut rest, mut out) =
            (Rest { next: args.from, reached: false, left: 0 }, Output::new(false, false));
        let mut place = || {
            assert!(print(&args, &store, &mut rest, &mut out).is_ok());
            (rest.next, rest.reached)
        };
        assert_eq!(place(), (Some(3), false), "there is no log");
        store.append_many("log", ["a", "b"]).unwrap().wait().unwrap();
        assert_eq!(place(), (Some(3), false), "the log has two entries");
        store.append_many("log", ["c", "d"]).unwrap().wait().unwrap();
        assert_eq!(place(), (Some(3), true), "the log has the entry");
        store.truncate("log", 1).unwrap().wait().unwrap();
        assert_eq!(place(), (Some(1), true), "the log lost the entry");
    }
}
