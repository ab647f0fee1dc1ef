//! `read --follow`: the entries that another process appends, as they become durable there.

use brooklet::Store;

use super::{Read, notes};
use crate::beside::{Reader, Stop};
use crate::failure::Failure;
use crate::output::Output;
use crate::signals;
use crate::store_args::StoreArgs;

/// Prints the entries of a log, and goes on with those that follow.
pub fn follow(args: &Read, store_args: &StoreArgs, out: &mut Output) -> Result<(), Failure> {
    signals::listen_quietly()?;
    let (mut next, mut left) = (args.from, args.limit.unwrap_or(usize::MAX));
    let mut reader = Reader::open_beside(&args.log.store, store_args)?;
    while left > 0 && !signals::asked() {
        match print(args, reader.store(), &mut next, &mut left, out) {
            Ok(()) => {
                out.flush()?;
                if left > 0 && !reader.wait()? {
                    return Ok(());
                }
            }
            Err(Stop::Replaced(_)) => {}
            Err(Stop::Failure(failure)) => return Err(failure),
        }
        let cut = reader.reopen_log(args.log.key())?;
        if let (Some(cut), Some(printed)) = (cut, next)
            && cut < printed
        {
            notes::cut(cut);
            next = Some(cut);
        }
    }
    out.flush()
}

/// Prints the entries that the store shows from `next` on.
fn print(
    args: &Read,
    store: &Store,
    next: &mut Option<u64>,
    left: &mut usize,
    out: &mut Output,
) -> Result<(), Stop> {
    let key = args.log.key();
    let from = next.unwrap_or(0);
    let entries = store.read_available(key, from..)?;
    let first = entries.range().start;
    if first > from && next.is_some() {
        notes::trimmed(from..first);
    }
    if first < from && store.get_bounds(key)?.is_some() {
        notes::cut(first);
    }
    if store.get_bounds(key)?.is_some() {
        *next = Some(first);
    }
    for entry in entries.take(*left) {
        let entry = entry?;
        args.print(&entry, out)?;
        (*next, *left) = (Some(entry.seq + 1), *left - 1);
    }
    Ok(())
}
