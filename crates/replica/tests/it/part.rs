//! What a host in a shard decides by the map: moves that are done, or given up, and spaces.

use brooklet_replica::{Change, Epoch, Map, Moving, Part, Place, Shard};

fn map(moving: Option<&str>) -> Map {
    let mut map = Map::first(brooklet_replica::Drawn(1));
    let hosts = ["one", "two", "three"].map(|host| (host.to_owned(), String::new())).into();
    let moving = moving.map(|to| Moving { to: to.into(), ready: None });
    map.shards.insert("a".into(), Shard { wanted: "one".into(), hosts, moving });
    map.shards.insert("b".into(), Shard::default());
    map.spaces.insert("7".into(), "b".into());
    map.default = "a".into();
    map
}

fn serving(host: &str, epoch: u64) -> Part {
    let mut part = Part::new("a", host, "");
    assert_eq!(part.see(Some(&map(None))), None);
    part.serve(Epoch(epoch));
    part
}

/// In the old state the claim was enough.
#[test]
fn a_move_is_done_once_clients_can_connect_and_the_log_has_an_object() {
    let place = |number| Place { epoch: Epoch(5), number };
    for opens_first in [true, false] {
        let (mut part, map) = (serving("two", 5), map(Some("two")));
        assert_eq!(part.see(Some(&map)), None);
        for opens in [opens_first, !opens_first] {
            part.note_log(true, place(0), None);
            assert_eq!(part.see(Some(&map)), None);
            if opens {
                part.open();
            } else {
                part.note_log(true, place(1), None);
            }
        }
        let done = Change::Serves { shard: "a".into(), host: "two".into() };
        assert_eq!(part.see(Some(&map)), Some(done));
    }
}

#[test]
fn a_move_to_a_host_that_did_not_serve_is_given_up() {
    let (to_two, to_three) = (map(Some("two")), map(Some("three")));
    let mut part = serving("one", 5);
    assert_eq!(part.see(Some(&to_two)), None);
    part.follows("two");
    let change = part.see(Some(&to_two)).unwrap();
    assert_eq!(change, Change::GiveUp { shard: "a".into(), host: "two".into() });
    // The bucket may not have answered.
    assert_eq!(part.see(Some(&to_two)), Some(change.clone()));
    assert_eq!(change.apply(Some(&to_two)).unwrap().unwrap().shards["a"].moving, None);
    assert_eq!(change.apply(Some(&to_three)).unwrap(), None);
    // Another try counts.
    assert_eq!(part.see(Some(&map(None))), None);
    assert_eq!(part.see(Some(&to_two)), None);
    let mut part = serving("one", 5);
    part.follows("two");
    assert_eq!(part.see(Some(&to_three)), None);
}

/// In the old state the command reported that the shard was back, and the handover followed.
#[test]
fn a_host_that_leaves_a_shard_reports_no_arrival() {
    let place = Place { epoch: Epoch(5), number: 1 };
    let mut part = serving("one", 5);
    part.open();
    let mut to_two = map(Some("two"));
    to_two.shards.get_mut("a").unwrap().moving.as_mut().unwrap().ready = Some(place);
    assert_eq!(part.see(Some(&to_two)), None);
    part.note_log(true, place, None);
    assert_eq!(part.see(Some(&to_two)), None);
    assert_eq!(part.leaves_to(), Some("two"));
    // Somebody asks for the move back before the host has left.
    assert_eq!(part.see(Some(&map(Some("one")))), None);
    assert_eq!(part.end_serving().as_deref(), Some("two"));
}

/// In the old state each shard took the spaces that are assigned to none.
#[test]
fn a_space_of_no_shard_is_in_the_first_one() {
    let of = |shard: &str| {
        let mut part = Part::new(shard, "one", "");
        part.see(Some(&map(None)));
        ["5", "7"].map(|space| part.elsewhere(space))
    };
    assert_eq!(of("a"), [None, Some("space 7 is in shard b, which has no host yet".into())]);
    assert_eq!(of("b"), [Some("space 5 is in shard a, on host one".into()), None]);
}
