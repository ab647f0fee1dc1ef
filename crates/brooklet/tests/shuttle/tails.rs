//! Tails and watches: no wake-up is lost, and each entry comes once, before the store's end.

use brooklet::{Durability, Error, Tail, TailEvent, WatchEvent};

use crate::HOUR;
use crate::stage::{block_on, explore, rng};
use crate::world::{World, key};

/// The number of entries of each writer.
const ENTRIES: u64 = 3;

/// Reads a tail to the end of the store.
fn follow(mut tail: Tail, mut next: impl FnMut(&mut Tail) -> Result<TailEvent, Error>) {
    for wanted in 0..=ENTRIES {
        match next(&mut tail) {
            Ok(TailEvent::Entry(entry)) => assert_eq!(entry.seq, wanted),
            Err(Error::Closed) => return assert_eq!(wanted, ENTRIES, "all entries came before the end"),
            other => panic!("{other:?}"),
        }
    }
    panic!("more entries than were written");
}

#[test]
fn a_waiting_reader_misses_no_entry_and_not_the_end() {
    explore("brooklet::tails", 4_000, || {
        let world = World::new(HOUR);
        let [first, second] = [0, 1].map(|writer| world.store().tail(key(writer), 0).unwrap());
        let thread = world.spawn(|_| follow(first, |tail| tail.next().expect("an event, or the end")));
        let task = world.spawn(|_| follow(second, |tail| block_on(tail.next_async())));
        let mut watch = world.store().watch("own/").unwrap();
        let watcher = world.spawn(move |_| {
            let mut seen = [0; 2];
            while seen != [ENTRIES; 2] {
                let Some(Ok(WatchEvent::Moved { key: of, bounds })) = watch.next() else {
                    panic!("a change follows")
                };
                seen[usize::from(of == key(1).into_bytes())] = bounds.next;
            }
        });
        let waiter = world.spawn(|world| {
            match world.store().wait_for(key(0), ENTRIES, HOUR) {
                Ok(reached) => assert!(reached),
                // It came late.
                Err(error) => assert!(matches!(error, Error::Closed)),
            }
        });
        let writers = world.spawn_all(2, |world, writer| {
            for _ in 0..ENTRIES {
                let ticket = world.append(writer, 300, Durability::Durable).unwrap();
                if rng().percent(50) {
                    ticket.wait().unwrap();
                } else {
                    block_on(ticket).unwrap();
                }
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        watcher.join().unwrap();
        world.store().close().unwrap();
        [thread, task, waiter].into_iter().for_each(|reader| reader.join().unwrap());
    });
}
