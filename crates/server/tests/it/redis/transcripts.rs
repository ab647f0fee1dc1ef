//! Conversations, each a file: lines `> REQUEST`, and under each the reply. They say the same to a
//! server that is started anew between any two of their requests.

use std::path::Path;

use brooklet::{Options, Store};

use crate::redis::client::{Client, Server};

fn open(path: &Path) -> Store {
    Options::new().ring_size(4 << 20).max_payload(1 << 20).open(path).unwrap()
}

/// The requests and replies of a transcript.
fn read(name: &str) -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/redis/transcripts").join(name);
    let text = std::fs::read_to_string(path).unwrap();
    let mut all: Vec<(String, String)> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix("> ") {
            Some(request) => all.push((request.into(), String::new())),
            None => all.last_mut().expect("a request comes first").1 = line.into(),
        }
    }
    assert!(!all.is_empty());
    all
}

/// Whether a reply is as told, where `?` stands for any word, and `:50~` for a time that passes.
fn fits(told: &str, reply: &str) -> bool {
    let (told, reply): (Vec<&str>, Vec<&str>) = (told.split(' ').collect(), reply.split(' ').collect());
    let fits = |(a, b): (&&str, &&str)| a == b || a.starts_with('?') || passes(a, b);
    told.len() == reply.len() && told.iter().zip(&reply).all(fits)
}

/// Whether a time is the one that is told, or down to half of it.
fn passes(told: &str, reply: &str) -> bool {
    let seconds = |word: &str| word.strip_prefix(':')?.parse::<u64>().ok();
    let told = told.strip_suffix('~').and_then(seconds);
    told.zip(seconds(reply)).is_some_and(|(told, left)| left <= told && 2 * left >= told)
}

fn play(name: &str) {
    let conversation = read(name);
    let dir = tempfile::tempdir().unwrap();
    let check = |client: &mut Client, (request, told): &(String, String), at: usize| {
        let reply = client.say(request);
        assert!(fits(told, &reply), "{name}, request {at}: {request}\n  told: {told}\n  found: {reply}");
    };
    let server = Server::of(open(&dir.path().join("once")));
    let mut client = server.client();
    for (at, exchange) in conversation.iter().enumerate() {
        check(&mut client, exchange, at);
    }
    drop(server);
    // What a connection knows is lost with it, so that transactions and the like are not cut.
    let has_state = |(request, _): &(String, String)| {
        ["MULTI", "WATCH", "HELLO", "SELECT", "SCAN"].iter().any(|word| request.starts_with(word))
    };
    if conversation.iter().any(has_state) {
        return;
    }
    let path = dir.path().join("again");
    let mut server = Server::of(open(&path));
    for (at, exchange) in conversation.iter().enumerate() {
        if at % 3 == 0 {
            server.stop().unwrap();
            server = Server::of(open(&path));
        }
        check(&mut server.client(), exchange, at);
    }
}

#[test]
fn lists() {
    play("lists.txt");
}

#[test]
fn strings_and_hashes() {
    play("values.txt");
}

#[test]
fn keys() {
    play("keys.txt");
}

#[test]
fn streams() {
    play("streams.txt");
}

#[test]
fn groups() {
    play("groups.txt");
}

#[test]
fn lag() {
    play("lag.txt");
}

#[test]
fn sort() {
    play("sort.txt");
}

#[test]
fn transactions() {
    play("transactions.txt");
}

#[test]
fn connection() {
    play("connection.txt");
}
