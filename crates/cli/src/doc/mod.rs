//! Commands on documents: reading, changing and following JSON documents with versions.

#[cfg(feature = "archive")]
mod restore;
mod rows;
mod updates;
mod watch;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use brooklet::{Create, Store};
use brooklet_documents::{Answer, Documents, Error, Json, JsonChange, Options, Request};
use clap::{Args, Subcommand, ValueEnum};

#[cfg(feature = "archive")]
use crate::archive::BUCKETS;
use crate::beside::{Reader, Stop};
use crate::failure::{Failure, Kind};
use crate::lines::LONGEST;
use crate::output::Output;
use crate::payload;
use crate::store_args::StoreArgs;
use rows::{Deleted, Document, Moved, Row, Written};

/// Number of times that a change at any version begins again because another change was first.
const RETRIES: u32 = 100;

#[derive(Subcommand)]
pub enum Command {
    /// Print a document
    Get {
        #[command(flatten)]
        place: Place,
        /// The version to print [default: the version of now]
        #[arg(long, value_name = "VERSION")]
        at: Option<u64>,
    },
    /// Create a document, or replace all of it
    Put {
        #[command(flatten)]
        place: Place,
        /// The document, as JSON; `-` is the standard input [default: the standard input]
        #[arg(value_name = "JSON", allow_negative_numbers = true)]
        state: Option<String>,
        /// Fail if the document exists
        #[arg(long, conflicts_with = "expect")]
        new: bool,
        #[command(flatten)]
        change: Change,
    },
    /// Change a document by a patch
    Patch {
        #[command(flatten)]
        place: Place,
        /// The patch, as JSON; `-` is the standard input [default: the standard input]
        #[arg(allow_negative_numbers = true)]
        patch: Option<String>,
        /// The form of the patch [default: json for an array, merge for another value]
        #[arg(long, value_enum)]
        form: Option<Form>,
        #[command(flatten)]
        change: Change,
    },
    /// Go back to an earlier version, as a new version
    Rewind {
        #[command(flatten)]
        place: Place,
        /// The version to go back to
        #[arg(value_name = "VERSION")]
        to: u64,
        #[command(flatten)]
        change: Change,
    },
    /// Print the updates that a document still has, the oldest first
    History {
        #[command(flatten)]
        place: Place,
        /// Print the newest first
        #[arg(long)]
        reverse: bool,
        /// Most updates to print
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
    },
    /// Move a document, with its history, below other keys: so it enters another space
    Move {
        #[command(flatten)]
        place: Place,
        /// First bytes of the keys below which the document is to be
        #[arg(value_name = "KEYS")]
        to: OsString,
    },
    /// Bring a document back from a backup, as a new version; its history begins anew
    #[cfg(feature = "archive")]
    #[command(after_help = BUCKETS)]
    Restore(restore::RestoreArgs),
    /// Not in this build: see `--features archive`
    #[cfg(not(feature = "archive"))]
    Restore(crate::missing::Args),
    /// Delete a document and its history
    Delete {
        #[command(flatten)]
        place: Place,
        /// The version that the document must have [default: any]
        #[arg(long, value_name = "VERSION")]
        expect: Option<u64>,
    },
    /// Print the updates of a document, also as another process makes them
    Watch {
        #[command(flatten)]
        place: Place,
        /// The version after which the updates begin [default: print the document first]
        #[arg(long, value_name = "VERSION")]
        since: Option<u64>,
        /// Most rows to print
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
    },
    /// Print the updates after a version
    Changes {
        #[command(flatten)]
        place: Place,
        /// The version after which the updates begin
        #[arg(value_name = "VERSION")]
        since: u64,
        /// Print one patch with the effect of all updates, if there is one
        #[arg(long)]
        merged: bool,
    },
}

impl Command {
    /// Returns whether the command changes nothing.
    pub fn only_reads(&self) -> bool {
        matches!(self, Self::Get { .. } | Self::History { .. } | Self::Watch { .. } | Self::Changes { .. })
    }
}

#[derive(Args)]
pub struct Place {
    /// The store: a file or a block device
    store: PathBuf,
    /// The name of the document
    name: OsString,
    /// First bytes of the keys of all documents; the server keeps them below documents/
    #[arg(long, value_name = "KEYS", default_value = "documents/")]
    below: OsString,
}

#[derive(Args)]
pub struct Change {
    /// The version that the document must have [default: any]
    #[arg(long, value_name = "VERSION")]
    expect: Option<u64>,
    /// An id: the same call with the same id again changes nothing
    #[arg(long, value_name = "ID")]
    request: Option<String>,
    /// The author, whom the history names
    #[arg(long, value_name = "NAME")]
    author: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// A merge patch (RFC 7396): members of objects are merged, null removes one
    Merge,
    /// A list of operations (RFC 6902)
    Json,
}

impl Place {
    fn name(&self) -> &[u8] {
        self.name.as_bytes()
    }

    fn documents(&self, store: &Store) -> Result<Documents<Json>, Stop> {
        let options = Options::new(self.below.as_bytes()).background(false);
        Ok(Documents::open(store, Json::new(), options)?)
    }

    /// Looks something up in the documents.
    fn look<T>(
        &self,
        store_args: &StoreArgs,
        look: impl Fn(&Documents<Json>) -> Result<T, Stop>,
    ) -> Result<T, Failure> {
        Reader::open(&self.store, store_args)?.look(|store| look(&self.documents(store)?))
    }

    /// Changes documents, and closes the store.
    fn write<T>(
        &self,
        create: Create,
        store_args: &StoreArgs,
        change: impl FnOnce(&Documents<Json>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let store = store_args.options()?.create(create).open(&self.store)?;
        let documents = self.documents(&store)?;
        let done = change(&documents)?;
        documents.maintain();
        drop(documents);
        store.close()?;
        Ok(done)
    }

    /// Changes a document, and prints its version.
    fn change(
        &self,
        args: &Change,
        store_args: &StoreArgs,
        out: &mut Output,
        change: impl Fn(&Documents<Json>, u64) -> Result<Answer, Error>,
    ) -> Result<(), Failure> {
        let answer = self.write(Create::Never, store_args, |documents| {
            if let Some(version) = args.expect {
                return Ok(change(documents, version)?);
            }
            let mut retry = 0;
            loop {
                let version = documents.version(self.name())?.ok_or_else(|| self.not_found())?;
                match change(documents, version) {
                    Err(Error::Conflict { .. }) if retry < RETRIES => retry += 1,
                    done => return Ok(done?),
                }
            }
        })?;
        out.put(&Written::new(self.name(), answer))
    }

    fn not_found(&self) -> Failure {
        let name = self.name().escape_ascii();
        Failure::new(Kind::NotFound, format!("there is no document \"{name}\": put it first"))
    }
}

impl Change {
    fn request(&self) -> Request {
        let request = self.request.as_ref().map_or_else(Request::anonymous, Request::new);
        self.author.iter().fold(request, |request, author| request.author(author))
    }
}

/// Returns an argument, or the standard input.
fn given(text: Option<String>) -> Result<Vec<u8>, Failure> {
    match text {
        Some(text) if !payload::is_stdin(OsStr::new(&text)) => Ok(text.into_bytes()),
        _ => payload::short_input(LONGEST),
    }
}

fn malformed(what: &brooklet_documents::Refusal) -> Failure {
    Failure::new(Kind::Usage, what.to_string())
}

/// Runs the command.
pub fn run(command: Command, store_args: &StoreArgs, out: &mut Output) -> Result<(), Failure> {
    match command {
        Command::Get { place, at } => {
            let found = place.look(store_args, |documents| match at {
                Some(version) => Ok(documents.at(place.name(), version)?),
                None => Ok(documents.get(place.name())?.ok_or_else(|| place.not_found())?),
            })?;
            out.put(&Document::new(place.name(), found.version, found.state.value()))
        }
        Command::Put { place, state, new, change } => put(&place, state, new, &change, store_args, out),
        Command::Patch { place, patch, form, change } => {
            let patch = given(patch)?;
            let is_list = patch.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
            let parse = match form.unwrap_or(if is_list { Form::Json } else { Form::Merge }) {
                Form::Merge => JsonChange::parse_merge,
                Form::Json => JsonChange::parse_patch,
            };
            let parsed = parse(&patch).map_err(|refusal| malformed(&refusal))?;
            place.change(&change, store_args, out, |documents, version| {
                documents.patch(place.name(), version, change.request(), &parsed)
            })
        }
        Command::Rewind { place, to, change } => {
            place.change(&change, store_args, out, |documents, version| {
                documents.rewind(place.name(), version, change.request(), to)
            })
        }
        Command::History { place, reverse, limit } => {
            print(&place, updates::Which { reverse, limit, since: None }, store_args, out)
        }
        Command::Move { place, to } => {
            let to = to.as_bytes();
            place.write(Create::Never, store_args, |documents| Ok(documents.move_to(place.name(), to)?))?;
            out.put(&Moved::new(place.name(), to))
        }
        #[cfg(feature = "archive")]
        Command::Restore(args) => restore::restore(&args, store_args, out),
        #[cfg(not(feature = "archive"))]
        Command::Restore(_) => Err(crate::missing::refuse("archives", "archive")),
        Command::Delete { place, expect } => delete(&place, expect, store_args, out),
        Command::Watch { place, since, limit } => watch::run(&place, since, limit, store_args, out),
        Command::Changes { place, since, merged } => {
            if !merged {
                let which = updates::Which { since: Some(since), ..updates::Which::default() };
                return print(&place, which, store_args, out);
            }
            let changes = place.look(store_args, |documents| Ok(documents.changes(place.name(), since)?))?;
            let none = "the updates have no common patch: print them without --merged";
            match changes.merged {
                Some(merged) => out.put(&rows::Merged::new(changes.version, &merged)),
                None if changes.updates.is_empty() => Ok(()),
                None => Err(Failure::no(none)),
            }
        }
    }
}

fn delete(
    place: &Place,
    expect: Option<u64>,
    store_args: &StoreArgs,
    out: &mut Output,
) -> Result<(), Failure> {
    let version = place.write(Create::Never, store_args, |documents| {
        let head = match documents.version(place.name()) {
            Err(error) if error.is_damage() && expect.is_none() => {
                documents.discard(place.name())?;
                return Ok(None);
            }
            head => head?.ok_or_else(|| place.not_found())?,
        };
        documents.delete(place.name(), expect.unwrap_or(head))?;
        Ok(Some(head))
    })?;
    out.put(&Deleted::new(place.name(), version))
}

fn put(
    place: &Place,
    state: Option<String>,
    new: bool,
    change: &Change,
    store_args: &StoreArgs,
    out: &mut Output,
) -> Result<(), Failure> {
    let state = Json::parse(&given(state)?).map_err(|refusal| malformed(&refusal))?;
    let answer = place.write(Create::IfMissing, store_args, |documents| {
        let replacement = JsonChange::replace(state.value().clone());
        if change.expect.is_none() {
            match documents.create(place.name(), change.request(), &state) {
                // The id may be that of a creation, or of a replacement.
                Err(Error::Exists { .. } | Error::RequestReused { .. }) if !new => {}
                done => return Ok(done?),
            }
        }
        let head = documents.version(place.name())?.ok_or_else(|| place.not_found())?;
        let version = change.expect.unwrap_or(head);
        Ok(documents.patch(place.name(), version, change.request(), &replacement)?)
    })?;
    out.put(&Written::new(place.name(), answer))
}

fn print(
    place: &Place,
    which: updates::Which,
    store_args: &StoreArgs,
    out: &mut Output,
) -> Result<(), Failure> {
    let mut reader = Reader::open(&place.store, store_args)?;
    updates::print(place, which, &mut reader, |update| out.put(&Row::new(update)))
}
