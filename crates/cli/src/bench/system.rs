//! What the system tells of this process: processor time, context switches, memory. What it does
//! not tell is `None`.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Processor time used so far.
#[derive(Clone, Copy)]
pub struct Cpu {
    thread: Duration,
    process: Duration,
}

impl Cpu {
    /// By this thread, and by the whole process.
    #[cfg(unix)]
    pub fn now() -> Option<Self> {
        use rustix::time::{ClockId, clock_gettime};
        let read = |id| Duration::try_from(clock_gettime(id)).ok();
        Some(Self { thread: read(ClockId::ThreadCPUTime)?, process: read(ClockId::ProcessCPUTime)? })
    }

    /// What the process used from here on.
    pub fn process_since(self) -> Option<Duration> {
        Some(Self::now()?.process.saturating_sub(self.process))
    }

    /// Shares of a core that this thread, and all others together, used from here to `later`, which
    /// is `took` on.
    pub fn shares(self, later: Self, took: Duration) -> (f64, f64) {
        let thread = later.thread.saturating_sub(self.thread);
        let process = later.process.saturating_sub(self.process);
        let share = |time: Duration| time.as_secs_f64() / took.as_secs_f64();
        (share(thread), share(process.saturating_sub(thread)))
    }
}

/// Context switches of the calling thread since it began, of its own will and not.
pub fn switches_of_thread() -> Option<u64> {
    switches("/proc/thread-self/status")
}

/// Context switches of all threads that live now, since each began.
pub fn switches_of_living() -> Option<u64> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let one = |task: std::io::Result<std::fs::DirEntry>| switches(task.ok()?.path().join("status").to_str()?);
    // A thread that ends meanwhile counts as none.
    Some(tasks.map(|task| one(task).unwrap_or(0)).sum())
}

/// Where the system tells of this process's thread of this name (15 bytes at most).
pub fn thread_named(name: &str) -> Option<PathBuf> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?.filter_map(|task| Some(task.ok()?.path()));
    let is_it =
        |task: &PathBuf| std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim_end() == name);
    tasks.into_iter().find(is_it)
}

/// Context switches of such a thread since it began.
pub fn switches_of(thread: &Path) -> Option<u64> {
    switches(thread.join("status").to_str()?)
}

fn switches(path: &str) -> Option<u64> {
    let status = std::fs::read_to_string(path).ok()?;
    Some(field(&status, "voluntary_ctxt_switches:")? + field(&status, "nonvoluntary_ctxt_switches:")?)
}

/// Bytes of memory that this process occupies.
pub fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    Some(field(&status, "VmRSS:")? << 10)
}

/// Calls by which this process has read so far, from whatever.
pub fn reads() -> Option<u64> {
    field(&std::fs::read_to_string("/proc/self/io").ok()?, "syscr:")
}

/// Processes that wanted to run, on average over the last minute.
pub fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// Processors that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let status =
            "Name:\tx\nVmRSS:\t  12 kB\nvoluntary_ctxt_switches:\t3\nnonvoluntary_ctxt_switches:\t4\n";
        assert_eq!(field(status, "VmRSS:"), Some(12));
        assert_eq!(field(status, "voluntary_ctxt_switches:"), Some(3));
        assert_eq!(field(status, "nonvoluntary_ctxt_switches:"), Some(4));
        assert_eq!(field(status, "VmHWM:"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_thread_is_found_by_its_name_and_seen_to_sleep() {
        let ((runs, running), (go, told)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
        let sleeper = std::thread::Builder::new().name("a-sleeper".into()).spawn(move || {
            for _ in 0..2 {
                runs.send(()).unwrap();
                told.recv().unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
            runs.send(()).unwrap();
            let _over = told.recv();
        });
        running.recv().unwrap();
        let thread = thread_named("a-sleeper").unwrap();
        let before = switches_of(&thread).unwrap();
        for _ in 0..2 {
            go.send(()).unwrap();
            running.recv().unwrap();
        }
        assert!(switches_of(&thread).unwrap() > before);
        drop(go);
        sleeper.unwrap().join().unwrap();
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_system_tells() {
        let (cpu, before) = (Cpu::now().unwrap(), switches_of_thread().unwrap());
        std::thread::sleep(Duration::from_millis(5));
        let sum: u64 = (0..3_000_000).map(std::hint::black_box).sum();
        assert!(sum > 0 && switches_of_thread().unwrap() > before);
        let (thread, others) = cpu.shares(Cpu::now().unwrap(), Duration::from_secs(1));
        assert!(thread > 0.0 && others >= 0.0 && cpu.process_since() > Some(Duration::ZERO));
        assert!(reads() > Some(0));
        assert!(switches_of_living().unwrap() > before && resident().unwrap() > 1 << 20);
    }
}
