//! The rights of users, in a matrix of users and requests. The file `golden.txt` has the answers of
//! a real Redis 7.0. The file `exceptions.txt` has the answers that differ, each with its reason.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use brooklet::Store;

use crate::redis::client::{Client, Server, encode};

/// Commands that are not queued in a transaction, but act on it.
const CONTROLS: [&str; 6] = ["MULTI", "EXEC", "DISCARD", "WATCH", "QUIT", "RESET"];
/// Requests that are sent at once.
const TOGETHER: usize = 64;

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("suites/rights").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// The lines of each section. The line `= NAME` begins one.
fn sections(name: &str) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut at = String::new();
    for line in file(name).lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix("= ") {
            Some(name) => at = name.into(),
            None => all.entry(at.clone()).or_default().push(line.into()),
        }
    }
    all
}

/// A request with each combination of keys.
fn expanded(request: &str) -> Vec<String> {
    let Some((before, after)) = request.split_once("{}") else { return vec![request.into()] };
    let rest = expanded(after);
    "rwbn".chars().flat_map(|key| rest.iter().map(move |rest| format!("{before}{key}{rest}"))).collect()
}

fn ask_all(client: &mut Client, requests: &[Vec<&str>]) -> Vec<String> {
    let mut replies = Vec::new();
    for some in requests.chunks(TOGETHER) {
        client.send(&some.iter().flat_map(|request| encode(request)).collect::<Vec<_>>());
        replies.extend(some.iter().map(|_| client.reply().replace("\\'", "'")));
    }
    replies
}

/// One character for an answer in a transaction.
fn queued(reply: &str) -> char {
    match reply {
        "QUEUED" => '.',
        "-NOPERM this user has no permissions to access one of the keys used as arguments" => 'k',
        "-NOPERM this user has no permissions to access one of the channels used as arguments" => 'h',
        _ if reply.starts_with("-NOPERM this user has no permissions to run the '") => 'c',
        _ => '!',
    }
}

/// One character for an answer of `ACL DRYRUN`; of a refused key or channel, its place in the
/// request.
fn dry(reply: &str, words: &[&str]) -> char {
    let is_refused = |word: &&str| {
        let rest = reply.strip_prefix("This user has no permissions to access the '");
        let kind = rest.and_then(|rest| rest.strip_prefix(word)).unwrap_or_default();
        kind == "' key" || kind == "' channel"
    };
    match words.iter().position(is_refused) {
        _ if reply == "OK" => '.',
        _ if reply.starts_with("This user has no permissions to run the '") => 'c',
        Some(at) => char::from_digit(at as u32, 10).unwrap(),
        None => '!',
    }
}

/// The answers to one user. The user begins the transaction before the user has the rules.
fn column(server: &Server, rules: &[&str], requests: &[Vec<&str>]) -> Vec<(char, char)> {
    let (mut admin, mut client) = (server.client(), server.client());
    let user = ["ACL", "SETUSER", "u", "reset", "on", "nopass"];
    assert_eq!(admin.ask(&[&user[..], &["+multi"]].concat()), "OK");
    assert_eq!([client.say("AUTH u u"), client.say("MULTI")], ["OK", "OK"]);
    assert_eq!(admin.ask(&[&user[..], rules].concat()), "OK", "{rules:?}");
    let is_queued = |request: &&Vec<&str>| !CONTROLS.contains(&request[0]);
    let sent: Vec<Vec<&str>> = requests.iter().filter(is_queued).cloned().collect();
    let mut in_queue = ask_all(&mut client, &sent).into_iter();
    let tries: Vec<Vec<&str>> =
        requests.iter().map(|words| [&["ACL", "DRYRUN", "u"], &words[..]].concat()).collect();
    let cells = requests.iter().zip(ask_all(&mut admin, &tries)).map(|(words, tried)| {
        let first = if is_queued(&words) { queued(&in_queue.next().unwrap()) } else { '-' };
        (first, dry(&tried, words))
    });
    cells.collect()
}

fn matrix(server: &Server, users: &[String], requests: &[String]) -> Vec<String> {
    let requests: Vec<String> = requests.iter().flat_map(|request| expanded(request)).collect();
    let words: Vec<Vec<&str>> = requests.iter().map(|request| request.split(' ').collect()).collect();
    let columns: Vec<Vec<(char, char)>> = users
        .iter()
        .map(|user| column(server, &user.split(' ').skip(1).collect::<Vec<_>>(), &words))
        .collect();
    let line = |(at, request)| {
        let cells = columns.iter().map(|column: &Vec<(char, char)>| column[at]);
        let (first, second): (String, String) = cells.unzip();
        format!("{request}\t{first} {second}")
    };
    requests.iter().enumerate().map(line).collect()
}

fn words(reply: &str) -> Vec<String> {
    let inner = reply.trim_matches(['[', ']']).split(' ').filter(|word| !word.is_empty());
    inner.map(str::to_owned).collect()
}

/// The categories of each command and subcommand.
fn categories(server: &Server) -> Vec<String> {
    let mut client = server.client();
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for category in words(&client.say("ACL CAT")) {
        for name in words(&client.ask(&["ACL", "CAT", &category])) {
            all.entry(name).or_default().insert(category.clone());
        }
    }
    let line = |(name, of): (String, BTreeSet<String>)| {
        format!("{name}\t{}", of.into_iter().collect::<Vec<_>>().join(" "))
    };
    all.into_iter().map(line).collect()
}

fn talk(server: &Server, lines: &[String]) -> Vec<String> {
    let (mut admin, mut ada, mut bob) = (server.client(), server.client(), server.client());
    let say = |line: &String| {
        let words = line.split(' ').map(|word| match word.strip_prefix('=') {
            Some(word) => word.replace('_', " "),
            None => word.into(),
        });
        let words: Vec<String> = words.collect();
        let request: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        let client = match &words[0][..] {
            "admin" => &mut admin,
            "ada" => &mut ada,
            _ => &mut bob,
        };
        format!("{line}\t{}", client.ask(&request).replace("\\'", "'"))
    };
    lines.iter().map(say).collect()
}

/// The answers of Redis and of the server that differ: one after another, without the reasons.
fn exceptions() -> Vec<(String, String)> {
    let (mut all, mut has_reason) = (Vec::new(), false);
    for line in file("exceptions.txt").lines().filter(|line| !line.is_empty()) {
        match (line.strip_prefix("- "), line.strip_prefix("+ ")) {
            (Some(theirs), _) => all.push((theirs.to_owned(), String::new())),
            (_, Some(ours)) => match all.last_mut() {
                Some((_, empty)) if empty.is_empty() => *empty = ours.to_owned(),
                _ => all.push((String::new(), ours.to_owned())),
            },
            _ => has_reason = line.starts_with("# "),
        }
        assert!(has_reason, "no reason: {line}");
    }
    all
}

/// Returns the pairs of lines that differ. A command that only Redis has is no difference.
fn differences(theirs: &[String], ours: &[String]) -> Vec<(String, String)> {
    let key = |line: &String| line.split('\t').next().unwrap().to_owned();
    let mut theirs = theirs.iter();
    let differs = |line: &String| {
        let here = theirs.clone().next().filter(|other| key(other) == key(line));
        let other = here.or_else(|| theirs.clone().find(|other| key(other) == key(line)));
        if let Some(other) = other {
            theirs.find(|one| std::ptr::eq(*one, other));
        }
        let other = other.cloned().unwrap_or_default();
        (other != *line).then(|| (other, line.clone()))
    };
    ours.iter().filter_map(differs).collect()
}

#[test]
fn rights_are_those_of_redis() {
    let server = Server::of(Store::in_memory(1).unwrap());
    let (cases, golden) = (sections("cases.txt"), sections("golden.txt"));
    let mut found = Vec::new();
    let categories = categories(&server);
    found.extend(differences(&golden["categories"], &categories));
    let commands = matrix(&server, &cases["users"], &cases["requests"]);
    assert_eq!(commands.len(), golden["matrix"].len(), "run suites/rights/run --write");
    found.extend(differences(&golden["matrix"], &commands));
    let channels = matrix(&server, &cases["channel users"], &cases["channel requests"]);
    assert_eq!(channels.len(), golden["channel matrix"].len(), "run suites/rights/run --write");
    found.extend(differences(&golden["channel matrix"], &channels));
    assert_eq!(server.client().say("ACL DELUSER u"), ":1");
    let talk = talk(&server, &cases["talk"]);
    assert_eq!(talk.len(), golden["talk"].len(), "run suites/rights/run --write");
    found.extend(differences(&golden["talk"], &talk));
    let known = exceptions();
    let of = |pairs: &[(String, String)], others: &[(String, String)]| {
        let all = pairs.iter().filter(|pair| !others.contains(pair));
        all.map(|(theirs, ours)| format!("- {theirs}\n+ {ours}\n")).collect::<String>()
    };
    let (new, gone) = (of(&found, &known), of(&known, &found));
    assert!(new.is_empty(), "answers differ from those of Redis:\n{new}");
    assert!(gone.is_empty(), "exceptions are none any more:\n{gone}");
    // Every command that is served is in the matrix.
    let asked: BTreeSet<String> = commands
        .iter()
        .flat_map(|line| {
            let mut words = line.split(['\t', ' ']).map(str::to_ascii_lowercase);
            let (first, second) = (words.next().unwrap(), words.next().unwrap());
            [format!("{first}|{second}"), first]
        })
        .collect();
    let served = categories.iter().map(|line| line.split('\t').next().unwrap().to_owned());
    let missing: Vec<String> = served.filter(|name| !asked.contains(name)).collect();
    assert!(missing.is_empty(), "add to cases.txt: {missing:?}");
}
