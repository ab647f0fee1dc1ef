//! The failure of a command: one line for people, one exit code for scripts.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use brooklet::ErrorKind;
use serde::Serialize;

use crate::colours::bad;

/// The exit codes, for `--help`.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  the result is negative: a check has findings, texts differ, another commit was first
  2  the call is wrong: arguments, keys, malformed input files
  3  not found: no such log, or a range outside the log
  4  a store or an input cannot be opened: missing, locked, not a store, written by a newer version
  5  the store is damaged
  6  no room left
  7  the system refused, or the store stopped writing
130  stopped by Ctrl-C or a signal";

/// The kind of a failure; its number is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The reader of the standard output has left, which is fine.
    PipeClosed = 0,
    /// The command worked, and its answer is no.
    No = 1,
    /// The call is wrong.
    Usage = 2,
    /// The log or the range is not there.
    NotFound = 3,
    /// A store or an input cannot be opened.
    CannotOpen = 4,
    /// The store is damaged.
    Damaged = 5,
    /// There is no room left.
    Full = 6,
    /// The system refused, or the store stopped.
    Io = 7,
    /// A signal stopped the command. Shells use this code for a command that Ctrl-C ended.
    Interrupted = 130,
}

/// The failure of a command.
#[derive(Debug, Serialize)]
pub struct Failure {
    /// One line: the failure, its place and the remedy.
    #[serde(rename = "error")]
    pub message: String,
    /// The kind, which determines the reaction.
    pub kind: Kind,
}

impl Failure {
    /// Returns a failure of a kind.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { message: message.into(), kind }
    }

    /// Returns the failure of a command that worked, and whose answer is no.
    pub fn no(message: impl Into<String>) -> Self {
        Self::new(Kind::No, message)
    }

    /// Returns the failure for a malformed input file.
    pub fn malformed(file: &Path, what: impl std::fmt::Display) -> Self {
        Self::new(Kind::Usage, format!("{}: {what}", shown(file)))
    }

    /// Returns the failure for an input that the system does not read.
    pub fn reading(file: &Path) -> impl FnOnce(io::Error) -> Self {
        Self::io(format!("reading {}", shown(file)))
    }

    /// Returns the failure for an operation, named by `doing`, that the system refused.
    pub fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |error| Self::new(Kind::Io, format!("{doing} failed: {error}"))
    }

    /// Returns the failure for a store, an input or a folder that cannot be opened.
    pub fn opening(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let name = path.display().to_string();
        move |error| Self::new(Kind::CannotOpen, format!("opening {name} failed: {error}"))
    }

    /// Prints the failure on the standard error, and returns the exit code.
    pub fn end(&self, json: bool) -> ExitCode {
        if self.kind != Kind::PipeClosed {
            let line = if json {
                serde_json::to_string(self).expect("a failure is plain data")
            } else {
                format!("{} {}", bad("brooklet:").for_stderr(), self.message)
            };
            // If this line cannot be written, the exit code still reports the failure.
            let _ = writeln!(io::stderr(), "{line}");
        }
        self.code()
    }

    /// Returns the exit code.
    pub fn code(&self) -> ExitCode {
        ExitCode::from(self.kind as u8)
    }
}

/// Returns the name of an input for people.
fn shown(file: &Path) -> String {
    if file == Path::new("-") { "the standard input".to_owned() } else { file.display().to_string() }
}

impl From<brooklet::Error> for Failure {
    fn from(error: brooklet::Error) -> Self {
        let absent = |source: &io::Error| {
            matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
        };
        let kind = match error.kind() {
            ErrorKind::Invalid => Kind::Usage,
            ErrorKind::NotFound => Kind::NotFound,
            ErrorKind::Conflict => Kind::No,
            ErrorKind::Cancelled => Kind::Interrupted,
            ErrorKind::CannotOpen => Kind::CannotOpen,
            ErrorKind::Damaged => Kind::Damaged,
            ErrorKind::Full => Kind::Full,
            // Only opening a file can meet these two.
            _ => match &error {
                brooklet::Error::Io { cause, .. } if absent(cause) => Kind::CannotOpen,
                #[cfg(feature = "archive")]
                brooklet::Error::Io { cause, .. } if lacks_bytes(cause) => Kind::Damaged,
                _ => Kind::Io,
            },
        };
        Self::new(kind, error.to_string())
    }
}

impl From<brooklet_codex::Error> for Failure {
    fn from(error: brooklet_codex::Error) -> Self {
        use brooklet_codex::Error;
        let kind = match &error {
            Error::OutOfOrder { .. } | Error::TooLarge { .. } | Error::Duplicate { .. } => Kind::Usage,
            Error::NotACodex | Error::Newer { .. } | Error::Exists { .. } => Kind::CannotOpen,
            Error::Damaged { .. } => Kind::Damaged,
            Error::Cancelled => Kind::Interrupted,
            Error::Io(source) if is_full(source) => Kind::Full,
            _ => Kind::Io,
        };
        Self::new(kind, error.to_string())
    }
}

/// Whether it is a backup that could not be read, because of what became of its objects.
#[cfg(feature = "archive")]
fn lacks_bytes(error: &io::Error) -> bool {
    use brooklet_archive::Error::{Damaged, Missing};
    let of_archive = error.get_ref().and_then(|source| source.downcast_ref());
    matches!(of_archive, Some(Missing { .. } | Damaged { .. }))
}

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

#[cfg(feature = "archive")]
impl From<brooklet_archive::Error> for Failure {
    fn from(error: brooklet_archive::Error) -> Self {
        use brooklet_archive::Error;
        use brooklet_archive::object_store::Error::{PermissionDenied, Unauthenticated};
        let kind = match error {
            Error::Store(error) => return error.into(),
            Error::Address { .. } => Kind::Usage,
            Error::Owned { .. } => Kind::No,
            Error::NoBackup(_) | Error::Hole { .. } => Kind::NotFound,
            Error::OtherStore { .. } | Error::NewerFormat { .. } => Kind::CannotOpen,
            Error::Bucket { cause: PermissionDenied { .. } | Unauthenticated { .. }, .. } => Kind::CannotOpen,
            Error::Missing { .. } | Error::Damaged { .. } => Kind::Damaged,
            Error::Cancelled { .. } => Kind::Interrupted,
            _ => Kind::Io,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<brooklet_tags::Error> for Failure {
    fn from(error: brooklet_tags::Error) -> Self {
        use brooklet_tags::Error;
        let kind = match error {
            Error::Store(error) => return error.into(),
            Error::Damaged { .. } => Kind::Damaged,
            _ => Kind::Usage,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<brooklet_documents::Error> for Failure {
    fn from(error: brooklet_documents::Error) -> Self {
        use brooklet_documents::{Error, ErrorKind};
        let kind = match error.kind() {
            ErrorKind::NotFound | ErrorKind::OutOfHistory => Kind::NotFound,
            ErrorKind::Conflict | ErrorKind::Exists => Kind::No,
            ErrorKind::Damaged => Kind::Damaged,
            _ => Kind::Usage,
        };
        match error {
            Error::Store(error) => error.into(),
            error => Self::new(kind, error.to_string()),
        }
    }
}

impl From<brooklet_wal::LogError> for Failure {
    fn from(error: brooklet_wal::LogError) -> Self {
        use brooklet_wal::{LogError, WalError};
        let kind = match &error {
            LogError::Wal(WalError::TooLarge { .. }) | LogError::Invalid { .. } => Kind::Usage,
            LogError::Wal(WalError::Full { .. } | WalError::Busy) | LogError::NoRoom { .. } => Kind::Full,
            LogError::Wal(WalError::Damaged { .. }) | LogError::DamagedLabel { .. } => Kind::Damaged,
            LogError::PastEnd { .. } | LogError::Trimmed { .. } => Kind::NotFound,
            LogError::Wal(_) | LogError::Settling { .. } => Kind::Io,
            _ => Kind::CannotOpen,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<brooklet_wal::WalError> for Failure {
    fn from(error: brooklet_wal::WalError) -> Self {
        brooklet_wal::LogError::from(error).into()
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let kind = if error.kind() == io::ErrorKind::BrokenPipe { Kind::PipeClosed } else { Kind::Io };
        Self::new(kind, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! kinds {
        ($($kind:ident $code:literal,)*) => {
            /// Without a wildcard: a kind that is added and not listed here does not compile.
            fn code(kind: Kind) -> u8 {
                match kind { $(Kind::$kind => $code,)* }
            }
            const KINDS: &[Kind] = &[$(Kind::$kind,)*];
        };
    }

    kinds! { PipeClosed 0, No 1, Usage 2, NotFound 3, CannotOpen 4, Damaged 5, Full 6, Io 7, Interrupted 130, }

    #[test]
    fn every_kind_has_a_code_that_help_tells_of() {
        for &kind in KINDS {
            assert_eq!(kind as u8, code(kind));
            assert!(EXIT_CODES.contains(&format!("\n{:>3}  ", code(kind))), "{kind:?}");
        }
        assert_eq!(EXIT_CODES.lines().count(), KINDS.len() + 1);
    }

    /// Kinds of the store's that no command of today meets have their code all the same.
    #[test]
    fn every_error_of_the_store_has_a_kind() {
        let io = |kind: io::ErrorKind| brooklet::Error::Io {
            doing: "opening s".into(),
            cause: std::sync::Arc::new(kind.into()),
        };
        for (error, kind) in [
            (brooklet::Error::EmptyCommit, Kind::Usage),
            (brooklet::Error::Exists { name: "s".into(), advice: "open it" }, Kind::CannotOpen),
            (brooklet::Error::Stopped { why: "rot".into() }, Kind::Io),
            (brooklet::Error::Closed, Kind::Io),
            (io(io::ErrorKind::PermissionDenied), Kind::CannotOpen),
            (io(io::ErrorKind::NotFound), Kind::CannotOpen),
            (io(io::ErrorKind::TimedOut), Kind::Io),
            (brooklet::Error::Damaged { place: "run 1".into(), what: "rot".into() }, Kind::Damaged),
        ] {
            let message = error.to_string();
            let failure = Failure::from(error);
            assert_eq!((failure.kind, failure.message), (kind, message));
        }
    }
}
