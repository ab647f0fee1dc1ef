//! The `brooklet-powercut` command: campaigns of power cuts, and the process that they hit.

#![expect(clippy::disallowed_methods, reason = "a harness drives real time, threads and processes")]
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use brooklet_powercut::victim;

/// Cuts the power of a store's disk, again and again, and shows that nothing acknowledged is lost
#[derive(Parser)]
#[command(version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  nothing was lost; or skipped, with the reason printed
  1  a promise was broken; the image is kept
  2  the call is wrong
  3  the harness itself failed";

#[derive(Subcommand)]
enum Command {
    /// The store's file is one of FUSE whose bytes are the disk model
    Fuse(Campaign),
    /// The store lies in an ext4 on a loop device over such a file
    Ext4(Campaign),
    /// The store lies in an XFS on a loop device over such a file
    Xfs(Campaign),
    /// The store lies in an ext4 on a plain loop device; its process is killed, and the power stays
    /// on
    Loop(Campaign),
    /// The store lies in a file system of a virtual machine, whose disk is the disk model over NBD
    /// (vm.sh tells what it needs; BROOKLET_VM_CACHE names a directory where its kernel stays for
    /// the next time)
    Vm {
        #[command(flatten)]
        campaign: Campaign,
        /// The machine's file system
        #[arg(long, value_enum, default_value_t = Inside::Ext4)]
        filesystem: Inside,
    },
    /// A store on small file systems that something else fills to the last byte: appends are
    /// refused, what frees is not, reads go on, and so do appends after that
    Full(Full),
    /// The process that is hit
    #[command(hide = true)]
    Victim(victim::Args),
    /// The process that writes where there is no room
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Writer(brooklet_powercut::full::writer::Args),
}

#[derive(Args)]
struct Full {
    /// One file system, instead of all that can be made here
    #[cfg(target_os = "linux")]
    #[arg(long, value_enum)]
    filesystem: Option<brooklet_powercut::full::disk::Small>,
    /// How often each is filled
    #[arg(long, default_value_t = 1)]
    rounds: u64,
    /// Where all choices of the first round come from, and of each further one from the next
    /// number; a random one if left out
    #[arg(long)]
    seed: Option<u64>,
}

/// A file system inside a virtual machine.
#[derive(Clone, Copy, ValueEnum)]
enum Inside {
    Ext4,
    Xfs,
}

#[derive(Args)]
struct Campaign {
    /// How often the power is cut
    #[arg(long, alias = "kills", default_value_t = 100)]
    cuts: u64,
    /// Where the choices of the harness come from (its victims' do not); a random one if left out
    #[arg(long)]
    seed: Option<u64>,
    /// Further outcomes of each cut that are checked in memory, where the file is the disk
    #[arg(long, default_value_t = 2)]
    outcomes: u64,
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Victim(args) => victim::run(&args),
        #[cfg(target_os = "linux")]
        Command::Writer(args) => brooklet_powercut::full::writer::run(&args),
        #[cfg(target_os = "linux")]
        command => linux::main(command),
        #[cfg(not(target_os = "linux"))]
        _ => {
            println!("skipped: power cuts need Linux, for FUSE and loop devices");
            ExitCode::SUCCESS
        }
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::process::ExitCode;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use brooklet::io::system_seed;
    use brooklet_powercut::counts;
    use brooklet_powercut::cuts::{self, Stage};
    use brooklet_powercut::full::{self, disk::Small};
    use brooklet_powercut::host::{Skipped, need_fuse, need_program, own_mounts};
    use brooklet_powercut::oracle::Lost;
    use brooklet_powercut::stages::{Below, Filesystem, Plain, Raw};
    use brooklet_powercut::vm::Machine;

    use crate::{Campaign, Command, Full, Inside};

    pub fn main(command: Command) -> ExitCode {
        let Err(error) = run(command) else { return ExitCode::SUCCESS };
        if let Some(skipped) = error.downcast_ref::<Skipped>() {
            println!("{skipped}");
            return ExitCode::SUCCESS;
        }
        eprintln!("{error:#}");
        let damaged = |error: &brooklet::Error| error.kind() == brooklet::ErrorKind::Damaged;
        let broken = error.downcast_ref::<Lost>().is_some() || error.downcast_ref().is_some_and(damaged);
        ExitCode::from(if broken { 1 } else { 3 })
    }

    fn run(command: Command) -> anyhow::Result<()> {
        own_mounts()?;
        match command {
            Command::Fuse(campaign) => cut("fuse", "fuse", &campaign, || {
                need_fuse()?;
                Ok(Raw::default())
            }),
            Command::Ext4(campaign) => cut("ext4", "ext4", &campaign, || below(Filesystem::Ext4)),
            Command::Xfs(campaign) => cut("xfs", "xfs", &campaign, || below(Filesystem::Xfs)),
            Command::Loop(campaign) => cut("loop", "loop", &campaign, || {
                need_program(Filesystem::Ext4.maker())?;
                Plain::new()
            }),
            Command::Vm { campaign, filesystem } => {
                let (kind, call, filesystem) = match filesystem {
                    Inside::Ext4 => ("vm", "vm", Filesystem::Ext4),
                    Inside::Xfs => ("vm-xfs", "vm --filesystem xfs", Filesystem::Xfs),
                };
                cut(kind, call, &campaign, || {
                    need_program(filesystem.maker())?;
                    Machine::new(filesystem)
                })
            }
            Command::Full(args) => fill(&args),
            Command::Victim(_) | Command::Writer(_) => unreachable!("they are run before"),
        }
    }

    /// Fills file systems; reports a file system that cannot be made here, and fills the others.
    fn fill(args: &Full) -> anyhow::Result<()> {
        let seed = args.seed.unwrap_or_else(system_seed);
        let chosen = args.filesystem.map_or(Small::ALL.to_vec(), |small| vec![small]);
        let (stop, heartbeat) = (stop_when_asked()?, cuts::watched());
        for small in chosen {
            let name = &full::named(&small);
            println!("full {name}: {} rounds, seed {seed}", args.rounds);
            let (start, mut outcome) = (Instant::now(), full::Outcome::default());
            while outcome.rounds < args.rounds && !stop.load(Ordering::Relaxed) {
                let seed = seed.wrapping_add(outcome.rounds);
                match full::run(small, seed, &heartbeat, &mut outcome) {
                    Ok(()) => {}
                    // A missing resource is missing from the first round on.
                    Err(error) if error.is::<Skipped>() && outcome.rounds == 0 => {
                        println!("{error}");
                        break;
                    }
                    Err(error) => return Err(error.context(format!("full {name}, seed {seed}"))),
                }
            }
            if outcome.rounds > 0 {
                counts::tell_full(name, outcome, start.elapsed())?;
            }
        }
        Ok(())
    }

    /// Returns the flag that is set when a signal asks this program to stop.
    fn stop_when_asked() -> anyhow::Result<Arc<AtomicBool>> {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = stop.clone();
        // Only a second signal ends the process at once: after the first, the round cleans up.
        ctrlc::set_handler(move || {
            if asked.swap(true, Ordering::Relaxed) {
                std::process::exit(3);
            }
        })?;
        Ok(stop)
    }

    fn below(filesystem: Filesystem) -> anyhow::Result<Below> {
        need_fuse()?;
        need_program(filesystem.maker())?;
        Below::new(filesystem)
    }

    /// Runs a campaign of a kind; `call` is its name on the command line.
    fn cut<S: Stage>(
        kind: &str,
        call: &str,
        args: &Campaign,
        stage: impl FnOnce() -> anyhow::Result<S>,
    ) -> anyhow::Result<()> {
        let mut stage = stage()?;
        let stop = stop_when_asked()?;
        let seed = args.seed.unwrap_or_else(system_seed);
        println!("{kind}: {} cuts, seed {seed}", args.cuts);
        let start = Instant::now();
        let mut campaign = cuts::Campaign::new(seed, args.outcomes, stop);
        let done = campaign.run(kind, &mut stage, args.cuts);
        done.map_err(|error| {
            error.context(format!("{kind}, after {} cuts, seed {seed}", campaign.outcome.cuts))
        })?;
        let command = format!("{call} --cuts {}", args.cuts);
        counts::tell(kind, &command, campaign.outcome, start.elapsed())
    }
}
