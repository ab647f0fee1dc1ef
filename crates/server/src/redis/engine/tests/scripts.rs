//! Scripts and power cuts: a script is there whole or not at all, and its reply waits.

use bytes::Bytes;

use super::World;
use crate::redis::client::ClientId;
use crate::redis::engine::Buffers;

fn come(world: &mut World) -> ClientId {
    world.engine.connect("here".into(), "there".into()).unwrap()
}

fn eval(world: &mut World, id: ClientId, script: &str) {
    let request: Vec<Bytes> = ["EVAL", script, "0"].map(|word| Bytes::from(word.to_owned())).into();
    world.engine.run(id, &mut vec![request].into(), || true);
}

const WRITES: &str = "redis.call('set','a','1') redis.call('rpush','b','2') redis.call('hset','c','f','3') return redis.call('get','a')";

#[test]
fn a_script_is_there_whole_or_not_at_all_and_its_reply_waits() {
    let mut world = World::new(1, 1 << 20, None);
    let id = come(&mut world);
    eval(&mut world, id, WRITES);
    // Who only read it waits as well.
    eval(&mut world, id, "return redis.call('get','a')");
    assert!(world.engine.take_ready(id).is_empty(), "a reply left before its commit was durable");
    let image = world.volume.crash();
    let mut world = world.reopened(image, 2);
    assert_eq!(world.state().len(), 0);
    let id = come(&mut world);
    eval(&mut world, id, WRITES);
    eval(&mut world, id, "redis.call('set','d','1') error('x')");
    eval(&mut world, id, "redis.call('del','a','b') while true do end");
    world.store.flush().unwrap();
    world.engine.note_durable();
    let replies = world.engine.take_ready(id);
    let replies = String::from_utf8_lossy(&replies).into_owned();
    assert!(replies.starts_with("$1\r\n1\r\n-ERR user_script:1: x"), "{replies}");
    assert!(replies.contains("-ERR the server stopped the script, and nothing was written"), "{replies}");
    let image = world.volume.crash();
    let mut world = world.reopened(image, 3);
    let keys: Vec<Bytes> = world.state().into_keys().collect();
    assert_eq!(keys, ["a", "b", "c", "d"]);
}

/// In the old state each loaded script stayed compiled in the machine, until somebody ran a script.
#[test]
fn the_machine_of_scripts_that_are_only_loaded_is_bounded() {
    let mut world = World::new(1, 1 << 20, None);
    let id = come(&mut world);
    let functions = "f=function() end ".repeat(15_000);
    for n in 0..10 {
        let source = format!("--{n}\n{functions}");
        let request: Vec<Bytes> = vec!["SCRIPT".into(), "LOAD".into(), source.into()];
        world.engine.run(id, &mut vec![request].into(), || true);
    }
    let replies = String::from_utf8_lossy(&world.engine.take_ready(id)).into_owned();
    assert_eq!(replies.matches("$40\r\n").count(), 10, "{replies}");
    let memory = world.engine.scripts.memory();
    assert!(memory < 12 << 20, "{memory} bytes with the sources, which have a quarter of that");
}

/// In the old state no client could stay, or come in.
#[test]
fn scripts_that_stay_count_for_half_of_the_memory_of_all_clients() {
    for (loads, unread, stays) in [(0, 1_500_000, true), (10, 1_500_000, false), (10, 500_000, true)] {
        let mut world = World::new(1, 1 << 20, None);
        world.engine.settings.client_memory = 2 << 20;
        let id = come(&mut world);
        for n in 0..loads {
            let source = format!("return '{}'", format!("{n:08}").repeat(30_000));
            let request: Vec<Bytes> = vec!["SCRIPT".into(), "LOAD".into(), source.into()];
            world.engine.run(id, &mut vec![request].into(), || true);
        }
        world.engine.take_ready(id);
        let noted = world.engine.note_memory(id, Buffers { unread, outgoing: 0, spare: 0 });
        assert_eq!(noted.is_some(), stays, "{loads} scripts, {unread} bytes");
    }
}
