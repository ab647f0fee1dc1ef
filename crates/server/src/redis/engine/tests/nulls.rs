//! Values that are missing, or are no whole numbers, as Redis 7.0.15 sends them by RESP2.

use super::{World, words};

/// Runs a request, and returns the bytes of the reply.
fn say(request: &str) -> String {
    let mut world = World::new(1, 1 << 20, None);
    let id = world.engine.connect(String::new(), String::new()).unwrap();
    world.engine.run(id, &mut [words(request)].into(), || true);
    String::from_utf8_lossy(&world.engine.take_ready(id)).into_owned()
}

#[test]
fn an_unknown_command_has_no_description() {
    assert_eq!(say("COMMAND INFO nonsense"), "*1\r\n$-1\r\n");
}

#[test]
fn a_double_of_a_script_has_all_its_digits() {
    let of = |number: &str| say(&format!("EVAL return{{double={number}}} 0"));
    assert_eq!(of("3.1"), "$18\r\n3.1000000000000001\r\n");
    assert_eq!(of("3.25"), "$4\r\n3.25\r\n");
    assert_eq!(of("1e300"), "$23\r\n1.0000000000000001e+300\r\n");
    assert_eq!(of("1/0"), "$3\r\ninf\r\n");
}
