//! A virtual machine whose data disk is the disk model, served as a network block device.
//!
//! The machine boots once, and is frozen while it waits for instructions, before it has seen its
//! disk. Each round thaws the machine, which mounts the disk and runs a victim there; then the
//! harness stops serving the disk and kills the machine. The machine's page cache dies with it, and
//! the model then holds the contents of the disk. The host mounts these contents by a loop device,
//! which replays the journal, and checks the store. Lines leave the machine by a virtio console.
//! `vm.sh` builds the machine's boot files.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cuts::{Campaign, Running, Stage, store_in};
use crate::drive::Drive;
use crate::host::{Mounted, Skipped, temp_dir};
use crate::nbd::Server;
use crate::stages::{Filesystem, format};

/// Script that builds the machine's boot files.
const SCRIPT: &str = include_str!("../vm.sh");
/// Time limits for the boot: with hardware virtualization, and with emulation.
const HELPED: Duration = Duration::from_secs(10);
const EMULATED: Duration = Duration::from_secs(120);

/// A frozen machine, and an image for its disk.
pub struct Machine {
    dir: TempDir,
    filesystem: Filesystem,
    empty: Vec<u8>,
    server: Server,
    lines: UnixListener,
    accelerator: &'static str,
}

impl Machine {
    /// Builds, boots and freezes a machine.
    pub fn new(filesystem: Filesystem) -> anyhow::Result<Self> {
        let dir = temp_dir()?;
        build(dir.path())?;
        let image = format(filesystem, &dir)?;
        let empty = fs::read(&image)?;
        let server = Server::start(&dir.path().join("disk.sock"), Arc::new(Drive::new(empty.clone(), 0)))?;
        let lines = UnixListener::bind(dir.path().join("lines.sock"))?;
        let mut machine = Self { dir, filesystem, empty, server, lines, accelerator: "kvm" };
        // A /dev/kvm may exist without working.
        if !Path::new("/dev/kvm").exists() || machine.freeze(HELPED).is_err() {
            machine.accelerator = "tcg";
            machine.freeze(EMULATED)?;
        }
        println!("the machine is frozen; it runs by {}", machine.accelerator);
        Ok(machine)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts the machine, by booting or thawed.
    fn start(&self, thawed: bool) -> anyhow::Result<(Guest, UnixStream)> {
        let at = |name: &str| self.path(name).display().to_string();
        // The machine ends with the harness.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "qemu-system-x86_64"])
            .args(["-accel", self.accelerator, "-M", "pc", "-m", "256", "-smp", "2"])
            .args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"])
            .args(["-kernel", &at("vmlinuz"), "-initrd", &at("initrd")])
            .args(["-append", "console=ttyS0 quiet panic=-1"])
            .args(["-serial", &format!("file:{}", at("console"))])
            .args(["-qmp", &format!("unix:{},server=on,wait=off", at("qmp.sock"))])
            .args(["-device", "virtio-serial", "-device", "virtserialport,chardev=lines"])
            .args(["-chardev", &format!("socket,id=lines,path={}", at("lines.sock"))])
            .args([
                "-drive",
                &format!("if=none,id=disk,format=raw,file=nbd+unix:///disk?socket={}", at("disk.sock")),
            ])
            .args(["-device", "virtio-blk-pci,drive=disk"]);
        if thawed {
            command.args(["-incoming", &format!("exec:cat {}", at("state"))]);
        }
        let log = fs::File::create(self.path("qemu.log"))?;
        let started = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        let mut guest = Guest(Some(started.context("starting qemu-system-x86_64")?));
        self.lines.set_nonblocking(true)?;
        let give_up = Instant::now() + Duration::from_secs(30);
        loop {
            match self.lines.accept() {
                Ok((lines, _)) => {
                    lines.set_nonblocking(false)?;
                    return Ok((guest, lines));
                }
                Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return Err(error.into()),
                Err(_) if Instant::now() > give_up || guest.has_ended()? => {
                    bail!("the machine does not start: {}", fs::read_to_string(self.path("qemu.log"))?)
                }
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Boots the machine and saves its state once it waits.
    fn freeze(&self, patience: Duration) -> anyhow::Result<()> {
        let (_guest, lines) = self.start(false)?;
        lines.set_read_timeout(Some(patience))?;
        let mut line = String::new();
        BufReader::new(&lines).read_line(&mut line).context("waiting for the machine to boot")?;
        if line != "booted\n" {
            bail!("the machine says {line:?} instead of having booted");
        }
        let mut monitor = Monitor::connect(&self.path("qmp.sock"))?;
        monitor.ask("migrate", json!({"uri": format!("exec:cat >{}", self.path("state").display())}))?;
        loop {
            let state = monitor.ask("query-migrate", json!({}))?;
            match state["status"].as_str() {
                Some("completed") => return Ok(()),
                Some("failed" | "cancelled") => bail!("the machine cannot be frozen: {state}"),
                _ => thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Thaws the machine and sends its instructions.
    fn thaw(&self, round: u32, seed: u64) -> anyhow::Result<Running> {
        let (mut guest, mut lines) = self.start(true)?;
        writeln!(lines, "{} {round} {seed}", self.filesystem.name())?;
        Ok(Running::new(guest.0.take().expect("it was just started"), lines, false))
    }
}

impl Stage for Machine {
    fn fresh(&mut self) -> anyhow::Result<Vec<u8>> {
        Ok(self.empty.clone())
    }

    fn round(&mut self, image: Vec<u8>, campaign: &mut Campaign) -> anyhow::Result<Vec<u8>> {
        let file = self.path("after");
        fs::write(&file, image)?;
        let mounted = Mounted::new(&file, self.filesystem.name())?;
        campaign.inspect(&store_in(mounted.path()))?;
        drop(mounted);
        if campaign.rng.percent(10) {
            self.filesystem.check(&file)?;
        }
        let drive = self.filesystem.drive(fs::read(&file)?, campaign.rng.next());
        self.server.serve(drive.clone());
        campaign.machine(&drive, |round, seed| self.thaw(round, seed))?;
        Ok(drive.crash())
    }
}

/// A machine that is killed on drop.
struct Guest(Option<Child>);

impl Guest {
    fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.0.as_mut().map(Child::try_wait).transpose()?.flatten().is_some())
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}

/// The machine's monitor, which uses QMP: one line of JSON for each message.
struct Monitor {
    lines: BufReader<UnixStream>,
}

impl Monitor {
    fn connect(socket: &Path) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(socket).context("connecting to the machine's monitor")?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let mut monitor = Self { lines: BufReader::new(stream) };
        monitor.lines.read_line(&mut String::new())?;
        monitor.ask("qmp_capabilities", json!({}))?;
        Ok(monitor)
    }

    /// Returns the answer to a command; skips events before it.
    fn ask(&mut self, command: &str, arguments: Value) -> anyhow::Result<Value> {
        writeln!(self.lines.get_mut(), "{}", json!({"execute": command, "arguments": arguments}))?;
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line)? == 0 {
                bail!("the machine's monitor went away");
            }
            let mut answer: Value = serde_json::from_str(&line)?;
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            if answer.get("error").is_some() {
                bail!("{command}: {answer}");
            }
        }
    }
}

/// Builds the machine's kernel and first file system in `dir`.
fn build(dir: &Path) -> anyhow::Result<()> {
    let script = dir.join("vm.sh");
    fs::write(&script, SCRIPT)?;
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "300", "bash"]).arg(&script).arg(dir).arg(std::env::current_exe()?);
    let output = command.output().context("starting bash")?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match output.status.code() {
        Some(0) => Ok(()),
        Some(77) => Err(Skipped(said).into()),
        _ => bail!("building the machine: {}: {said}", output.status),
    }
}
