//! `brooklet serve`: a store for Redis clients and over HTTP.
//!
//! Each setting is a flag, an environment variable (`BROOKLET_` and the flag's name) and a key of a
//! TOML file. A flag overrides the variable, and the variable overrides the file.

#[cfg(feature = "replicate")]
pub mod replicate;
mod secrets;
mod settings;

use std::cell::OnceCell;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use brooklet::{Create, Options};
use brooklet_server::{Addresses, CancellationToken, Error};

use crate::descriptors;
use crate::failure::{Failure, Kind};
use crate::output::Output;
use crate::store_args::StoreArgs;
#[cfg(feature = "replicate")]
use replicate::{Lives, Reads};
use settings::{Given, LogForm, MEMORY, RING};

#[derive(clap::Args)]
pub struct Args {
    /// The store: a file or a block device; created if missing
    store: PathBuf,
    /// A TOML file of settings
    #[arg(long, value_name = "FILE", env = "BROOKLET_CONFIG")]
    config: Option<PathBuf>,
    /// Print all effective settings as a TOML file, and do not serve
    #[arg(long)]
    print_config: bool,
    #[command(flatten)]
    given: Given,
    /// The file of settings, once it was read. A pipe can be read only once.
    #[arg(skip)]
    file: OnceCell<Result<Read, Failure>>,
}

/// Most bytes of a file of settings.
const LONGEST: u64 = 1 << 20;

/// A file of settings that was read.
struct Read {
    given: Given,
    /// The file itself; `None` without a file.
    file: Option<File>,
}

impl Args {
    /// Whether the log is written as JSON. What the file says of that is read before anything else
    /// is done.
    pub fn logs_json(&self) -> bool {
        let of_file = || self.file().as_ref().ok().and_then(|read| read.given.log);
        self.given.log.or_else(of_file) == Some(LogForm::Json)
    }

    fn file(&self) -> &Result<Read, Failure> {
        self.file.get_or_init(|| match &self.config {
            Some(path) => Read::of(path),
            None => Ok(Read { given: Given::default(), file: None }),
        })
    }

    /// Returns the settings of the file, and warns of secrets in it that others can read.
    fn of_file(&mut self) -> Result<Given, Failure> {
        self.file();
        let Read { given, file } = self.file.take().expect("it was just read")?;
        if let (Some(file), Some(path)) = (&file, &self.config)
            && (given.password.is_some() || !given.users.is_empty())
        {
            secrets::warn_if_shared(file, path, "the passwords in the settings");
        }
        Ok(given)
    }
}

impl Read {
    fn of(path: &Path) -> Result<Self, Failure> {
        let doing = || format!("reading {}", path.display());
        let file = File::open(path).map_err(Failure::opening(path))?;
        let mut text = String::new();
        (&file).take(LONGEST + 1).read_to_string(&mut text).map_err(Failure::io(doing()))?;
        if text.len() as u64 > LONGEST {
            return Err(Failure::malformed(path, format_args!("it is longer than {LONGEST} bytes")));
        }
        let given = toml::from_str(&text).map_err(|error| Failure::malformed(path, wrong(&text, &error)))?;
        Ok(Self { given, file: Some(file) })
    }
}

/// Returns what is wrong with the text of settings, and where, without the line: it may hold a
/// secret.
fn wrong(text: &str, error: &toml::de::Error) -> String {
    let line =
        error.span().map_or(1, |at| 1 + text.bytes().take(at.start).filter(|byte| *byte == b'\n').count());
    format!("line {line}: {}", error.message())
}

static STOP: OnceLock<CancellationToken> = OnceLock::new();

/// A signal asks for a clean stop the first time, and ends the process the second.
fn listen_for_signals() -> Result<CancellationToken, Failure> {
    let stop = STOP.get_or_init(CancellationToken::new).clone();
    let token = stop.clone();
    let listening = ctrlc::set_handler(move || {
        if token.is_cancelled() {
            std::process::exit(i32::from(Kind::Interrupted as u8));
        }
        token.cancel();
    });
    listening.map_err(|error| Failure::new(Kind::Io, format!("listening for signals failed: {error}")))?;
    Ok(stop)
}

pub fn run(mut args: Args, store_args: &StoreArgs, out: &mut Output) -> Result<(), Failure> {
    let asked = args.given.clone().or(args.of_file()?);
    let given = asked.clone().or(Given::defaults());
    if args.print_config {
        let given = given.shown();
        let text = toml::to_string(&given).map_err(|error| Failure::new(Kind::Io, error.to_string()))?;
        out.line(text.trim_end())?;
        return out.document(&given);
    }
    given.check_replication()?;
    let mut config = given.config()?;
    // A refused start leaves no file of a store behind.
    config.check().map_err(refused)?;
    if let Some(key) = &given.tls_key
        && let Ok(file) = File::open(key)
    {
        secrets::warn_if_shared(&file, key, "the key for TLS");
    }
    descriptors::fit(&mut config);
    let stop = listen_for_signals()?;
    let payload = config.settings.max_bulk + (1 << 10);
    let mut options = store_args
        .options()?
        .create(Create::IfMissing)
        .ring_size(given.ring_size.unwrap_or(RING))
        .memory_budget(given.memory.unwrap_or(MEMORY) as usize);
    if let Some(cache) = given.cache {
        options = options.cache_budget(cache as usize);
    }
    let open = |options: Options| match options.clone().max_payload(payload).open(&args.store) {
        // The ring takes less, and nobody asked for so much: values are as large as it takes.
        Err(brooklet::Error::InvalidOptions(_)) if asked.max_value.is_none() => options.open(&args.store),
        opened => opened,
    };
    #[cfg(feature = "replicate")]
    if given.read_replica == Some(true) {
        let reads = Reads { given: &given, config: &config, path: &args.store, stop };
        return reads.serve(&options, store_args.ring.is_some(), |addresses| {
            tell_all(&args.store, addresses, out);
        });
    }
    let ready = |addresses: &Addresses| tell_all(&args.store, addresses, out);
    if given.log().is_some() {
        #[cfg(not(feature = "replicate"))]
        return Err(crate::missing::refuse("replication", "replicate"));
        #[cfg(feature = "replicate")]
        {
            let has_ring = store_args.ring.is_some();
            let lives = Lives { given: &given, config: &config, path: &args.store, has_ring, stop };
            lives.serve(&options, &open, ready)?;
        }
    } else {
        // The lock of a store that is there says more than an address in use.
        if matches!(args.store.try_exists(), Ok(false)) {
            config.check_addresses().map_err(refused)?;
        }
        brooklet_server::serve(open(options)?, &config, ready, stop).map_err(refused)?;
    }
    tracing::info!("stopped; all acknowledged commits are on stable media");
    Ok(())
}

fn refused(error: Error) -> Failure {
    match error {
        Error::Store(error) => error.into(),
        Error::Config(why) => Failure::new(Kind::Usage, why),
        other => Failure::new(Kind::Io, other.to_string()),
    }
}

/// Tells people, the service manager and programs that clients can come in.
fn tell_all(store: &Path, addresses: &Addresses, out: &mut Output) {
    tracing::info!(store = %store.display(), redis = ?addresses.redis, http = ?addresses.http, "ready");
    tell_ready();
    if let Err(failure) = tell(out, addresses) {
        tracing::debug!(?failure, "the server could not print its addresses");
    }
}

/// Tells where clients come in.
fn tell(out: &mut Output, addresses: &Addresses) -> Result<(), Failure> {
    for (frontend, all) in [("Redis", &addresses.redis), ("HTTP", &addresses.http)] {
        all.iter().try_for_each(|at| out.line(format_args!("{frontend} at {at}")))?;
    }
    out.document(addresses)?;
    out.flush()
}

/// Tells a service manager that clients can come in, or that this host stands by.
fn tell_ready() {
    #[cfg(target_os = "linux")]
    if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
        tracing::warn!(%error, "the server could not notify the service manager");
    }
}
