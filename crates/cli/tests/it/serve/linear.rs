//! Concurrent clients see one order of all commands, kills or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::serve::lines::{Asked, Given, has_order};
use crate::serve::process::{Chance, Client, Process};

const CLIENTS: u64 = 5;
pub const KEYS: u64 = 3;

/// What a client gave, each with the key.
pub type Heard = Vec<(u64, Given)>;

pub fn words(asked: Asked, key: &str) -> String {
    match asked {
        Asked::Push(value) => format!("RPUSH {key} {value}"),
        Asked::PopLeft => format!("LPOP {key}"),
        Asked::PopRight => format!("RPOP {key}"),
        Asked::Len => format!("LLEN {key}"),
        Asked::First => format!("LINDEX {key} 0"),
    }
}

/// Draws a command.
pub fn any(chance: &mut Chance, values: &AtomicU64) -> Asked {
    match chance.below(6) {
        0..2 => Asked::Push(values.fetch_add(1, Ordering::Relaxed) as u32),
        2 => Asked::PopLeft,
        3 => Asked::PopRight,
        4 => Asked::Len,
        _ => Asked::First,
    }
}

/// Takes what is left of the keys of a history from their fronts, one after another, until there is
/// nothing.
pub fn take_the_rest(client: &mut Client, history: u64, begin: Instant, heard: &mut Heard) {
    for key in 0..KEYS {
        let mut call = begin.elapsed().as_nanos() as u64;
        let mut left: Vec<u32> =
            client.list(&format!("{history}:{key}")).iter().map(|e| e.parse().unwrap()).collect();
        left.push(0);
        for value in left {
            call += 2;
            let given = Given { asked: Asked::PopLeft, call, end: call + 1, reply: Some(value) };
            heard.push((key, given));
        }
    }
}

/// Gives some commands on the keys of a history; as many as there are replies to, and the one
/// without.
fn give(mut client: Client, history: u64, seed: u64, begin: Instant, values: &AtomicU64, most: u64) -> Heard {
    let mut chance = Chance(seed);
    let mut heard = Heard::new();
    for _ in 0..most {
        let (key, asked) = (chance.below(KEYS), any(&mut chance, values));
        let call = begin.elapsed().as_nanos() as u64;
        let reply = client.try_ask(&words(asked, &format!("{history}:{key}")));
        let end = begin.elapsed().as_nanos() as u64;
        let is_over = reply.is_none();
        let reply = reply.map(|reply| if reply == "nil" { 0 } else { reply.parse().unwrap() });
        heard.push((key, Given { asked, call, end, reply }));
        if is_over {
            break;
        }
    }
    heard
}

fn clients(
    process: &Process,
    history: u64,
    part: u64,
    begin: Instant,
    values: &Arc<AtomicU64>,
    most: u64,
) -> Vec<JoinHandle<Heard>> {
    let spawn = |n: u64| {
        let (client, values) = (process.client(), values.clone());
        let seed = history * 1000 + part * 100 + n;
        std::thread::spawn(move || give(client, history, seed, begin, &values, most))
    };
    (0..CLIENTS).map(spawn).collect()
}

pub fn check(history: u64, heard: &[(u64, Given)]) {
    for key in 0..KEYS {
        let of_key: Vec<Given> = heard.iter().filter(|(of, _)| *of == key).map(|(_, given)| *given).collect();
        assert!(has_order(&of_key), "history {history}: no order makes {of_key:#?}");
    }
}

#[test]
fn concurrent_clients_see_one_order() {
    let process = Process::new();
    let (begin, values) = (Instant::now(), Arc::new(AtomicU64::new(1)));
    for history in 0..200 {
        let clients = clients(&process, history, 0, begin, &values, 12);
        let heard: Heard = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
        check(history, &heard);
    }
}

#[test]
fn kills_do_not_change_the_order() {
    let mut process = Process::new();
    let (begin, values) = (Instant::now(), Arc::new(AtomicU64::new(1)));
    let mut chance = Chance(3);
    for history in 0..15 {
        let mut heard = Heard::new();
        for part in 0..3 {
            let clients = clients(&process, history, part, begin, &values, 14);
            std::thread::sleep(Duration::from_micros(chance.below(15_000)));
            process.kill();
            heard.extend(clients.into_iter().flat_map(|client| client.join().unwrap()));
            process.start();
        }
        take_the_rest(&mut process.client(), history, begin, &mut heard);
        check(history, &heard);
    }
}
