//! The search for interleavings that break something.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::time::Duration;

use brooklet_io::{Clock, Rng, SystemClock};
use shuttle::rand::RngCore;
use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Schedule, Scheduler, Task, TaskId};
use shuttle::thread;
use shuttle::{Config, MaxSteps, Runner};

/// Tries `test` under as many schedules as `BROOKLET_SCHEDULES` says, or under `default` of them;
/// for as long as `BROOKLET_SCHEDULE_SECONDS` says, where that is set and comes first.
///
/// A third of them let parked threads wake up for no reason, as they may. In the others only
/// `unpark` wakes a thread, or else a wake-up that is lost would be made up for by chance: in half
/// of these any thread goes on at each step, in the other half the one of the highest priority
/// does, and priorities change at three places.
pub fn explore(name: &str, default: usize, test: fn()) {
    let mut config = Config::new();
    config.stack_size = 512 << 10;
    config.silence_warnings = true; // that every ordering counts as SeqCst
    config.max_steps = MaxSteps::FailAfter(100_000);
    if let Ok(seconds) = std::env::var("BROOKLET_SCHEDULE_SECONDS") {
        let seconds: f64 = seconds.parse().expect("a number of seconds");
        config.max_time = Some(Duration::from_secs_f64(seconds / 3.0));
    }
    let run = |scheduler: Box<dyn Scheduler + Send>| Runner::new(scheduler, config.clone()).run(test);
    if let Ok(schedule) = std::env::var("BROOKLET_REPLAY") {
        run(Box::new(ReplayScheduler::new_from_encoded(&schedule)));
        return;
    }
    let asked = std::env::var("BROOKLET_SCHEDULES");
    let third = asked.map_or(default, |n| n.parse().expect("a number of schedules")).div_ceil(3);
    let clock = SystemClock::new();
    let ran = run(Box::new(RandomScheduler::new(third)))
        + run(Box::new(Woken(RandomScheduler::new(third))))
        + run(Box::new(Woken(PctScheduler::new(3, third))));
    println!("shuttle {name}: {ran} schedules in {:.1} s", clock.now().as_secs_f64());
}

/// A scheduler under which nobody wakes up without having been woken.
struct Woken<S>(S);

impl<S: Scheduler> Scheduler for Woken<S> {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.0.new_execution()
    }

    fn next_task(&mut self, tasks: &[&Task], current: Option<TaskId>, yields: bool) -> Option<TaskId> {
        let awake: Vec<&Task> = tasks.iter().copied().filter(|task| !task.can_spuriously_wakeup()).collect();
        self.0.next_task(&awake, current, yields)
    }

    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }
}

/// Chance that a replayed schedule repeats.
pub fn rng() -> Rng {
    Rng::new(shuttle::rand::thread_rng().next_u64())
}

/// Lets any other thread go on here.
pub fn others() {
    thread::sleep(Duration::ZERO);
}
