//! Reads of what is not durable yet: a writer sees its own entries at once, whoever drives the log.

use brooklet::Durability;

use crate::HOUR;
use crate::stage::explore;
use crate::world::{World, key};

#[test]
fn a_writer_reads_its_entries_back_while_blocks_are_sealed_and_written() {
    explore("brooklet::appended", 4_000, || {
        let world = World::new(HOUR);
        let writers = world.spawn_all(2, |world, writer| {
            for n in 0..3 {
                let ticket = world.append(writer, 300, Durability::Durable).unwrap();
                let read = world.store().read_appended(key(writer), ..).unwrap();
                let seqs: Vec<u64> = read.map(|entry| entry.unwrap().seq).collect();
                assert_eq!(seqs, (0..=n).collect::<Vec<_>>());
                assert_eq!(world.store().bounds_appended(key(writer)).unwrap().unwrap().next, n + 1);
                if n == 1 {
                    ticket.wait().unwrap();
                }
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        world.store().close().unwrap();
    });
}
