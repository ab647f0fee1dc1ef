//! Power cuts: what is left is what the commits up to one of them made, and nobody was told of
//! more.

use brooklet::io::{Fault, Rng};

use super::model::State;
use super::random::Asker;
use super::{World, words};

/// A state as it is at some time: what has expired is gone.
pub fn at(state: &State, now: u64) -> State {
    let lives = |key: &super::model::Key| key.expire.is_none_or(|at| at > now);
    state.iter().filter(|(_, key)| lives(key)).map(|(name, key)| (name.clone(), key.clone())).collect()
}

fn come(world: &mut World) {
    for _ in 0..4 {
        world.come();
    }
}

/// One client's turn.
fn ask(world: &mut World, asker: &mut Asker, rng: &mut Rng) {
    let free: Vec<_> = world
        .people
        .all
        .iter()
        .filter(|(_, p)| p.wait.is_none())
        .map(|(id, p)| (*id, p.queue.is_some()))
        .collect();
    if free.is_empty() {
        return;
    }
    let (id, gathers) = free[rng.below(free.len() as u64) as usize];
    if !gathers && rng.percent(30) {
        let requests: Vec<_> = (0..2 + rng.below(4)).map(|_| asker.request(false)).collect();
        return world.ask_several(id, &requests);
    }
    let request = match (gathers, rng.below(12)) {
        (false, 0) => words("MULTI"),
        (false, 1) => words(["WATCH a", "WATCH b c"][rng.below(2) as usize]),
        (true, 0..3) => words("EXEC"),
        (true, 3) => words("DISCARD"),
        _ => asker.request(true),
    };
    world.ask(id, &request);
}

/// What the store is after the power was cut, and who was told of what: one of the states from that
/// on.
fn cut(world: World, seed: u64, by_close: bool) -> World {
    let by_close = by_close && world.store.close().is_ok();
    let (states, told) = (world.people.states.clone(), world.people.told);
    let story = world.story.clone();
    let image = if by_close { world.volume.image() } else { world.volume.crash() };
    let mut world = world.reopened(image, seed);
    let found = world.state();
    let now = world.now();
    let first = if by_close { states.len() - 1 } else { told };
    let fits = states[first..].iter().any(|state| at(state, now) == found);
    assert!(
        fits,
        "seed {seed}: {found:#?}\nis none of the {} states from {first} on, of which the last is {:#?}\n{story:#?}",
        states.len() - first,
        at(states.last().unwrap(), now)
    );
    world.people = super::People::new(found, now);
    world
}

fn story(seed: u64, steps: u64) {
    let rng = &mut Rng::new(seed);
    let cache = [1, 1200, 2500, 1 << 20][rng.below(4) as usize];
    let mut world = World::new(seed, cache, None);
    let mut asker = Asker::new(seed, [10, 3000][rng.below(2) as usize]);
    come(&mut world);
    for step in 0..steps {
        match rng.below(100) {
            0..60 => ask(&mut world, &mut asker, rng),
            60..75 => drop(world.store.step()),
            75..85 => world.engine.note_durable(),
            85..90 => world.deliver(),
            90 => world.settle(),
            91..94 => world.pass([1, 10, 700][rng.below(3) as usize]),
            94 if rng.percent(30) => drop(world.store.checkpoint()),
            95 => assert!(world.engine.keys.age_cache(usize::MAX)),
            96 if rng.percent(20) => world.volume.fail(Fault::PowerOffAfter(rng.below(12))),
            97 if rng.percent(40) => {
                world = cut(world, seed ^ step, rng.percent(30));
                come(&mut world);
            }
            _ => {}
        }
        // What a process does whose device is gone is not of interest: the power is.
        if world.volume.failures() > 0 || world.engine.stopped.is_some() {
            world = cut(world, seed ^ step, false);
            come(&mut world);
        }
    }
    cut(world, seed, rng.percent(50));
}

#[test]
fn a_power_cut_leaves_a_prefix_of_the_commits_with_all_that_was_told() {
    (0..300).for_each(|seed| story(seed, 400));
}
