//! The wall clock may be set while clients wait: keys expire by it, and nothing else goes by it.

use super::{Now, World, words};

const START: Now = Now { wall: 10_000_000, steady: 5_000 };

fn after(wall: i64, steady: u64) -> Now {
    Now { wall: START.wall.strict_add_signed(wall), steady: START.steady + steady }
}

#[test]
fn waiting_ends_by_the_steady_clock() {
    const HOUR: i64 = 3_600_000;
    for jump in [-HOUR, 0, HOUR] {
        let mut world = World::new(1, 1 << 20, None);
        world.engine.tick(START);
        let id = world.engine.connect(String::new(), String::new()).unwrap();
        world.engine.run(id, &mut [words("BLPOP list 1")].into(), || true);
        world.engine.tick(after(jump, 999));
        assert_eq!(world.engine.take_ready(id), b""[..], "the wall clock was set by {jump} ms");
        world.engine.tick(after(jump, 1000));
        assert_eq!(world.engine.take_ready(id), b"*-1\r\n"[..], "the wall clock was set by {jump} ms");
    }
}

#[test]
fn idle_clients_are_let_go_of_by_the_steady_clock() {
    let mut world = World::new(1, 1 << 20, None);
    world.engine.settings.timeout = 60;
    world.engine.tick(START);
    let id = world.engine.connect(String::new(), String::new()).unwrap();
    let mut is_killed = |now| {
        world.engine.tick(now);
        world.engine.client(id).is_none()
    };
    assert!(!is_killed(after(7_200_000, 60_000)));
    assert!(is_killed(after(-7_200_000, 60_200)));
}

#[test]
fn keys_expire_by_the_wall_clock() {
    let mut world = World::new(1, 1 << 20, None);
    world.engine.tick(START);
    let id = world.engine.connect(String::new(), String::new()).unwrap();
    world.engine.run(id, &mut [words("SET key value PX 1000"), words("GET key")].into(), || true);
    world.store.flush().unwrap();
    world.engine.note_durable();
    assert_eq!(world.engine.take_ready(id), b"+OK\r\n$5\r\nvalue\r\n"[..]);
    world.engine.tick(after(1000, 1));
    world.engine.run(id, &mut [words("GET key")].into(), || true);
    world.store.flush().unwrap();
    world.engine.note_durable();
    assert_eq!(world.engine.take_ready(id), b"$-1\r\n"[..]);
}
