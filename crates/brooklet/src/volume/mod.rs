//! The volumes of a store: opens them at their paths, with retries, and exclusively.

pub mod allocator;
pub mod beside;
pub mod create;
pub mod device;
pub mod free_list;
pub mod lock_owner;
pub mod signature;

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use brooklet_io::tether::Tether;
use brooklet_io::{FileOptions, OpenMode, Volume};

use crate::error::{Error, described};
use crate::options::{Create, Options};

/// The volumes of a store.
#[derive(Clone, Debug)]
pub(crate) struct Volumes {
    pub data: Arc<dyn Volume>,
    /// The volume of the ring, if the ring has its own volume.
    pub ring: Option<Arc<dyn Volume>>,
}

impl Volumes {
    /// Returns the volume of the ring.
    pub fn ring(&self) -> &Arc<dyn Volume> {
        self.ring.as_ref().unwrap_or(&self.data)
    }

    /// Puts both volumes behind tethers, through which the store releases them: a remaining
    /// iterator then does not keep them open.
    pub fn tethered(self) -> (Self, Vec<Arc<Tether>>) {
        let data = Tether::new(self.data);
        let ring = self.ring.map(Tether::new);
        let tethers = [&data].into_iter().chain(&ring).cloned().collect();
        (Self { data, ring: ring.map(|ring| ring as Arc<dyn Volume>) }, tethers)
    }

    /// Flushes both volumes. An error names the volume that failed.
    pub fn flush(&self) -> io::Result<()> {
        let flush = |volume: &dyn Volume| volume.flush().map_err(|e| described("flushing", volume)(e));
        self.ring.as_ref().map_or(Ok(()), |ring| flush(&**ring))?;
        flush(&*self.data)
    }
}

/// Opens the volumes of the store at `path`, which is [settled](Options::settled), creating the
/// store if the options say so.
pub(crate) fn open(path: &Path, options: &Options) -> Result<Volumes, Error> {
    if options.create != Create::Never && !options.read_only {
        let name = path.display().to_string();
        let exists = options.files.exists(path).map_err(Error::io(format!("looking for {name}")))?;
        let created = !exists && make(path, options)?;
        if !created && options.create == Create::New {
            return Err(Error::exists(name));
        }
    }
    let data = volume(path, options)?;
    let ring = options.ring.as_deref().map(|ring| volume(ring, options)).transpose()?;
    Ok(Volumes { data, ring })
}

/// Makes the store at `path`. Returns `false` if another process was faster; its ring then exists
/// before its data.
fn make(path: &Path, options: &Options) -> Result<bool, Error> {
    match create::make(path, options, create::empty) {
        Err(Error::Exists { .. }) if options.create == Create::IfMissing && appears(path, options) => {
            Ok(false)
        }
        made => made,
    }
}

/// Returns whether something is at `path`, now or soon. It is unknown whether any process is making
/// it, so the wait is the longest wait.
fn appears(path: &Path, options: &Options) -> bool {
    (0..LOOKS.end).any(|look| {
        if look > 0 {
            std::thread::park_timeout(LOOK);
        }
        options.files.exists(path).unwrap_or(false)
    })
}

/// Opens an existing volume.
pub(crate) fn volume(path: &Path, options: &Options) -> Result<Arc<dyn Volume>, Error> {
    let name = path.display().to_string();
    match open_patiently(path, options) {
        Ok(volume) => Ok(volume),
        Err(e) if e.kind() == ErrorKind::ResourceBusy => {
            Err(Error::Locked { name, holder: lock_owner::name(path) })
        }
        Err(e) if e.kind() == ErrorKind::IsADirectory => {
            Err(Error::NotAStore { name, why: "it is a directory".into() })
        }
        // The error is from the volume's own check, not from the system.
        Err(e) if e.kind() == ErrorKind::InvalidInput && e.raw_os_error().is_none() && path.exists() => {
            Err(Error::NotAStore { name, why: "it is neither a file nor a block device".into() })
        }
        Err(e) => Err(Error::io(format!("opening {name}"))(e)),
    }
}

pub(crate) fn file_options(options: &Options) -> FileOptions {
    FileOptions {
        direct: options.direct,
        io_uring: options.io_uring,
        permissions: options.permissions,
        ..FileOptions::default()
    }
}

/// The time between two looks at a state that may change soon.
const LOOK: Duration = Duration::from_millis(5);

/// Number of looks at a held lock before it counts as held, and the number of looks if its holder
/// is known to be gone. The kernel releases a killed process's lock only after its last write has
/// ended, and a process may die before it writes a note.
const LOOKS: Range<u32> = 20..200;

fn open_patiently(path: &Path, options: &Options) -> io::Result<Arc<dyn Volume>> {
    let mode = match options {
        Options { beside_writer: true, .. } => OpenMode::ReadBeside,
        Options { read_only: true, .. } => OpenMode::ReadOnly,
        _ => OpenMode::ReadWrite,
    };
    let mut looks = 0;
    loop {
        match options.files.open(path, mode, file_options(options)) {
            Err(e)
                if e.kind() == ErrorKind::ResourceBusy
                    && (looks < LOOKS.start || looks < LOOKS.end && lock_owner::is_gone(path)) =>
            {
                std::thread::park_timeout(LOOK);
                looks += 1;
            }
            done => return done,
        }
    }
}
