//! Kills in the midst of pipelines: what was acknowledged is there, once and whole.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::serve::process::{Chance, Client, Process};

const WRITERS: usize = 4;
const ROUNDS: u64 = 30;
/// Replies of a round, at least. A busy machine takes longer for them.
const REPLIES: usize = 40;

/// What one client has made of keys that are its own.
#[derive(Clone, Debug, Default, PartialEq)]
struct Mine {
    list: VecDeque<String>,
    /// The two that transactions write to are always the same.
    twins: Vec<String>,
    stream: u64,
}

/// A command of a pipeline, with what it makes of the client's own keys once its reply is due.
#[derive(Clone, Debug)]
enum Does {
    Push(String),
    Pop,
    Add,
    /// The last of a transaction's commands: those before it change nothing.
    Both(String),
    Nothing,
    /// On a list of all clients.
    PushShared(String),
    PopShared,
}

impl Mine {
    fn apply(&mut self, does: &Does) {
        match does {
            Does::Push(value) => self.list.push_back(value.clone()),
            Does::Pop => drop(self.list.pop_front()),
            Does::Add => self.stream += 1,
            Does::Both(value) => self.twins.push(value.clone()),
            Does::Nothing | Does::PushShared(_) | Does::PopShared => {}
        }
    }
}

/// What one client did until the server was gone.
#[derive(Default)]
struct Told {
    /// What it asked for and got no reply to.
    open: Vec<Does>,
    mine: Mine,
    shared: BTreeSet<String>,
    popped: Vec<String>,
    replies: usize,
}

fn pipeline(writer: usize, round: u64, n: &mut u64, chance: &mut Chance) -> Vec<(String, Does)> {
    let mut all = Vec::new();
    for _ in 0..1 + chance.below(30) {
        *n += 1;
        let value = format!("{round}.{writer}.{n}");
        match chance.below(7) {
            0..2 => all.push((format!("RPUSH list:{writer} {value}"), Does::Push(value))),
            2 => all.push((format!("LPOP list:{writer}"), Does::Pop)),
            3 => all.push((format!("XADD stream:{writer} * f {value}"), Does::Add)),
            4 => all.push((format!("RPUSH shared {value}"), Does::PushShared(value))),
            5 => all.push(("LPOP shared".into(), Does::PopShared)),
            _ => {
                all.push(("MULTI".into(), Does::Nothing));
                all.push((format!("RPUSH one:{writer} {value}"), Does::Nothing));
                all.push((format!("RPUSH two:{writer} {value}"), Does::Nothing));
                all.push(("EXEC".into(), Does::Both(value)));
            }
        }
    }
    all
}

/// Works until the server is gone. Counts the replies of all writers.
fn work(mut client: Client, writer: usize, round: u64, mine: Mine, all: &AtomicUsize) -> Told {
    let mut told = Told { mine, ..Told::default() };
    let (mut n, mut chance) = (0, Chance(round * 100 + writer as u64));
    loop {
        let (requests, does): (Vec<String>, Vec<Does>) =
            pipeline(writer, round, &mut n, &mut chance).into_iter().unzip();
        client.send(&requests);
        for (at, done) in does.iter().enumerate() {
            let Some(reply) = client.reply() else {
                told.open = does[at..].to_vec();
                return told;
            };
            told.replies += 1;
            all.fetch_add(1, Ordering::Relaxed);
            match done {
                Does::Pop => assert_eq!(reply, told.mine.list.front().map_or("nil", |value| value)),
                Does::PopShared if reply != "nil" => told.popped.push(reply),
                Does::PushShared(value) => drop(told.shared.insert(value.clone())),
                _ => {}
            }
            told.mine.apply(done);
        }
    }
}

/// What the server has of a client's own keys.
fn found(client: &mut Client, writer: usize) -> Mine {
    let twins = client.list(&format!("one:{writer}"));
    assert_eq!(client.list(&format!("two:{writer}")), twins, "a transaction is there in part");
    let list = client.list(&format!("list:{writer}")).into();
    Mine { list, twins, stream: client.ask(&format!("XLEN stream:{writer}")).parse().unwrap() }
}

#[test]
fn what_was_acknowledged_survives_kills() {
    let mut process = Process::new();
    let mut mine = vec![Mine::default(); WRITERS];
    let mut chance = Chance(7);
    // What is known to be in the shared list, or to have been taken out; and what may be.
    let (mut pushed, mut popped, mut maybe) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let (mut pops_without_reply, mut replies) = (0, 0);
    for round in 0..ROUNDS {
        let all = Arc::new(AtomicUsize::new(0));
        let workers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (client, mine, all) = (process.client(), mine[writer].clone(), all.clone());
                std::thread::spawn(move || work(client, writer, round, mine, &all))
            })
            .collect();
        let begin = Instant::now();
        std::thread::sleep(Duration::from_millis(20 + chance.below(200)));
        while all.load(Ordering::Relaxed) < REPLIES {
            assert!(begin.elapsed() < Duration::from_secs(60), "the server does not reply");
            std::thread::sleep(Duration::from_millis(1));
        }
        process.kill();
        let told: Vec<Told> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        process.start();
        let mut client = process.client();
        for (writer, told) in told.into_iter().enumerate() {
            replies += told.replies;
            let found = found(&mut client, writer);
            // It is what the commands up to one of them make, with all that was acknowledged.
            let (mut state, mut fits) = (told.mine.clone(), told.mine == found);
            for does in &told.open {
                state.apply(does);
                fits |= state == found;
            }
            assert!(
                fits,
                "round {round}, client {writer}: {found:?} after {:?} and {:?}",
                told.mine, told.open
            );
            mine[writer] = found;
            pushed.extend(told.shared);
            for value in told.popped {
                assert!(popped.insert(value.clone()), "round {round}: {value} was given out twice");
            }
            for does in told.open {
                match does {
                    Does::PopShared => pops_without_reply += 1,
                    Does::PushShared(value) => drop(maybe.insert(value)),
                    _ => {}
                }
            }
        }
        let mut held: BTreeMap<String, u64> = BTreeMap::new();
        client.list("shared").into_iter().for_each(|value| *held.entry(value).or_default() += 1);
        for (value, times) in &held {
            assert_eq!(*times, 1, "round {round}: {value} is there {times} times");
            assert!(!popped.contains(value), "round {round}: {value} was given out, and is there again");
            assert!(pushed.contains(value) || maybe.contains(value), "round {round}: nobody pushed {value}");
        }
        let missing =
            pushed.iter().filter(|value| !popped.contains(*value) && !held.contains_key(*value)).count();
        assert!(missing <= pops_without_reply, "round {round}: {missing} values are missing");
    }
    assert!(replies >= ROUNDS as usize * REPLIES, "{replies} replies are few");
}
