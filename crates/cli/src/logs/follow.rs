//! `read --follow`: the entries that another process appends, as they become durable there.

use std::thread;
use std::time::Duration;

use brooklet::{Error, Store};

use super::Read;
use crate::failure::Failure;
use crate::output::Output;
use crate::signals;
use crate::store_args::StoreArgs;

/// The pause between two looks at the store.
const PAUSE: Duration = Duration::from_millis(100);

/// Prints the entries of a log, and goes on with those that follow.
pub fn follow(args: &Read, store_args: &StoreArgs, out: &mut Output) -> Result<(), Failure> {
    signals::listen_quietly()?;
    let (mut next, mut left) = (args.from, args.limit.unwrap_or(usize::MAX));
    let mut store = store_args.open_beside(&args.log.store)?;
    while left > 0 && !signals::asked() {
        match print(args, &store, &mut next, &mut left, out) {
            Ok(()) => {
                out.flush()?;
                if left > 0 && !wait(&store)? {
                    return Ok(());
                }
            }
            // The process that writes the store has merged the rest meanwhile.
            Err(Stop::Replaced) => {}
            Err(Stop::Failure(failure)) => return Err(failure),
        }
        let earlier = std::mem::replace(&mut store, store_args.open_beside(&args.log.store)?);
        let cut = store.cut_since(&earlier, args.log.key())?;
        if let (Some(cut), Some(printed)) = (cut, next)
            && cut < printed
        {
            tell_cut(cut);
            next = Some(cut);
        }
    }
    out.flush()
}

enum Stop {
    Replaced,
    Failure(Failure),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        match error {
            Error::Replaced { .. } => Self::Replaced,
            error => Self::Failure(error.into()),
        }
    }
}

fn tell_cut(next: u64) {
    eprintln!("note: the log was truncated, or is another log; reading goes on at {next}");
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
        eprintln!("note: entries {from} to {first} (exclusive) were trimmed");
    }
    if first < from && store.get_bounds(key)?.is_some() {
        tell_cut(first);
    }
    if store.get_bounds(key)?.is_some() {
        *next = Some(first);
    }
    for entry in entries.take(*left) {
        let entry = entry?;
        args.print(&entry, out).map_err(Stop::Failure)?;
        (*next, *left) = (Some(entry.seq + 1), *left - 1);
    }
    Ok(())
}

/// Waits until there is something newer; `false` if the command was asked to stop.
fn wait(store: &Store) -> Result<bool, Failure> {
    while !store.is_outdated()? {
        if signals::asked() {
            return Ok(false);
        }
        thread::sleep(PAUSE);
    }
    Ok(true)
}
