//! Long changes in portions: on a draft, which is committed as one at the end.
//!
//! Other clients see nothing of the changes before the commit. If they change a key of the draft
//! meanwhile, the command begins again; after some such beginnings it runs at once.

use std::sync::Arc;

use brooklet::{Commit, Error};
use bytes::Bytes;

use super::super::acl::User;
use super::super::fail::Fail;
use super::super::keys::Draft;
use super::super::proto::size_of_args;
use super::super::reply::Reply;
use super::lookups::READS;
use super::splices::Splice;
use super::{Call, Done, check_name, resolve};

/// Times that a command begins again, because others change its keys, before it runs at once.
const RESTARTS: usize = 3;
/// Bytes that one portion copies and writes, about.
const BYTES: usize = 1 << 20;
/// Longest time between the portions of one draft, in milliseconds: keys do not expire in a draft.
const LONGEST: u64 = 1_000;

/// How far a command has come.
#[derive(Debug, Default)]
pub struct Progress {
    /// The next word, or the next command of a transaction.
    pub at: usize,
    /// What was counted so far.
    pub count: usize,
    /// Whether the first of two passes is over.
    pub is_second: bool,
    /// The change of the midst of a list.
    pub splice: Option<Box<Splice>>,
}

/// A portion of a command; returns whether it was the last.
pub type Part = fn(&mut Call<'_>, &mut Progress) -> Result<bool, Fail>;

/// Loads keys of a command from a place on, and moves the place; returns whether all are loaded.
pub type Load = fn(&mut Call<'_>, &mut usize) -> Result<bool, Fail>;

/// The parts of a command.
#[derive(Clone, Copy)]
pub struct Parts {
    /// Runs a portion.
    pub part: Part,
    /// Loads keys in portions, before the command runs as a whole.
    pub load: Load,
    /// Ends the command after its last portion, with the keys of all clients. Returns whether the
    /// changes of the draft are committed; if not, it has written the reply.
    pub end: fn(&mut Call<'_>) -> Result<bool, Fail>,
    /// Whether the request bounds what the command writes, and nothing that was appended changes
    /// again: so a transaction is not one.
    pub is_plain: bool,
}

/// A command on a draft, between two portions.
struct Drafted {
    draft: Box<Draft>,
    progress: Progress,
    /// The reply so far.
    told: Reply,
    /// Size of the request, in bytes.
    request: usize,
    /// Time of the last portion.
    last: u64,
    /// Whether all portions have run.
    is_whole: bool,
}

/// What a portion comes to.
enum Outcome {
    More(Drafted),
    Over,
    /// Others have changed a key of the draft.
    Again,
    /// A draft of the command would be too large.
    TooLarge,
}

impl Call<'_> {
    /// Runs the portions of a command: at once if the command is short or must be whole, and
    /// otherwise on a draft.
    pub fn in_parts(&mut self, is_long: bool, part: Part) -> Done {
        self.in_parts_or(is_long, part, move |call| at_once(call, part))
    }

    /// Runs the portions of a command on a draft if the command is long and may give turns to
    /// others, and otherwise all of the command.
    pub fn in_parts_or(
        &mut self,
        is_long: bool,
        part: Part,
        whole: impl Fn(&mut Call<'_>) -> Done + Send + 'static,
    ) -> Done {
        if !is_long || self.is_whole() {
            return whole(self);
        }
        self.drafted(Parts { part, load: load_words, end: |_| Ok(true), is_plain: true }, whole)
    }

    /// Runs a command on a draft, in portions, or as a whole if that does not work.
    pub fn drafted(&mut self, parts: Parts, whole: impl Fn(&mut Call<'_>) -> Done + Send + 'static) -> Done {
        let (mut drafted, mut restarts, mut loaded, mut is_loaded) = (None, 0, 0, false);
        let mut user = self.client.user.clone();
        self.in_portions(move |call| {
            if has_other_rights(call, &mut user)? {
                drafted = None;
                restarts += 1;
            }
            // Who hears of each change of a key hears of it in the order of the commits.
            if restarts > RESTARTS || call.engine.has_listeners_to_commands() {
                drafted = None;
                if !is_loaded {
                    call.client.work_bytes = size_of_args(call.args);
                    is_loaded = (parts.load)(call, &mut loaded)?;
                    return Ok(false);
                }
                return whole(call).map(|()| true);
            }
            if drafted.is_none() && call.engine.keys.is_changed() {
                // Requests before this one are committed first.
                return Ok(false);
            }
            match go_on(call, drafted.take(), parts)? {
                Outcome::Over => return Ok(true),
                Outcome::More(more) => drafted = Some(more),
                Outcome::Again => restarts += 1,
                Outcome::TooLarge => restarts = RESTARTS + 1,
            }
            if drafted.is_none() && call.client.is_killed {
                // No further portion comes for a client that could not take the replies.
                return whole(call).map(|()| true);
            }
            Ok(false)
        })
    }

    /// Returns whether a portion that began at a cost is long enough.
    pub fn has_drafted(&self, began: usize) -> bool {
        self.engine.keys.draft_cost() > began + BYTES
    }

    /// Loads keys that are named at places of a request, until a portion is long enough; returns
    /// the place of the next key, if one is left.
    pub fn load(&mut self, names: Vec<(usize, Bytes)>) -> Result<Option<usize>, Fail> {
        let mut bytes = 0;
        for (at, name) in names.into_iter().filter(|(_, name)| check_name(name).is_ok()) {
            if bytes > BYTES {
                return Ok(Some(at));
            }
            let before = self.engine.keys.cached().1;
            self.engine.keys.load(&self.client.database, &name)?;
            bytes += self.engine.keys.cached().1.saturating_sub(before);
            self.keys().make_room();
        }
        Ok(None)
    }
}

/// Runs the portions of a command at once.
fn at_once(call: &mut Call<'_>, part: Part) -> Done {
    let mut progress = Progress::default();
    while !part(call, &mut progress)? {}
    Ok(())
}

/// Loads the keys that the words of a command name.
fn load_words(call: &mut Call<'_>, at: &mut usize) -> Result<bool, Fail> {
    let spec = resolve(call.args).expect("it was found before");
    let keys = spec.keys(call.args);
    let next = keys.len().min(*at + READS);
    let names = (*at..next).map(|key| (key, keys[key].clone())).collect();
    *at = call.load(names)?.unwrap_or(next);
    Ok(*at >= keys.len())
}

/// Runs a portion on a draft.
fn go_on(call: &mut Call<'_>, drafted: Option<Drafted>, parts: Parts) -> Result<Outcome, Fail> {
    let start = call.client.written();
    // It is of this draft, or of one that is of no use any more.
    let prepared = call.client.prepared.take();
    let mut drafted = match drafted {
        Some(drafted) => drafted,
        None => begin(call, start),
    };
    if is_late(call, &drafted) || drafted.draft.is_outdated() {
        return Ok(Outcome::Again);
    }
    if drafted.is_whole {
        return end(call, drafted, parts, prepared);
    }
    let Drafted { draft, mut progress, told, request, .. } = drafted;
    put_back(call, told)?;
    call.keys().open_draft(draft);
    let is_done = (parts.part)(call, &mut progress);
    let mut draft = call.keys().close_draft(parts.is_plain);
    let told = call.client.reply.split_off(start);
    if draft.is_too_large() {
        return Ok(Outcome::TooLarge);
    }
    let is_done = is_done?;
    if !commit_expired(call) {
        return Ok(Outcome::Again);
    }
    draft.pass_changes();
    let last = call.engine.keys.now;
    let drafted = Drafted { draft, progress, told, request, last, is_whole: is_done };
    if is_done { end(call, drafted, parts, None) } else { Ok(rest(call, drafted, parts)) }
}

/// Returns the rest of a command after a portion.
fn rest(call: &mut Call<'_>, drafted: Drafted, parts: Parts) -> Outcome {
    let kept = drafted.progress.splice.as_ref().map_or(0, |splice| splice.memory());
    let memory = drafted.draft.memory(call.engine.keys.cache_budget()) + kept;
    // The request does not bound what a list has besides.
    if (!parts.is_plain || kept > 0) && memory > call.engine.settings.max_request.saturating_mul(2) {
        return Outcome::TooLarge;
    }
    call.client.work_bytes = drafted.request + memory + drafted.told.len();
    Outcome::More(drafted)
}

/// Ends a command whose portions have run: the store prepares a long commit first.
fn end(
    call: &mut Call<'_>,
    mut drafted: Drafted,
    parts: Parts,
    prepared: Option<Result<Commit, Error>>,
) -> Result<Outcome, Fail> {
    match prepared {
        Some(prepared) => drafted.draft.put_back(prepared?),
        None if call.engine.prepare(call.client, &mut drafted.draft) => {
            return Ok(rest(call, drafted, parts));
        }
        None => {}
    }
    if (parts.end)(call)? {
        put_back(call, drafted.told)?;
        call.keys().submit(drafted.draft);
    }
    Ok(Outcome::Over)
}

/// Appends what was told so far. It may have no room: the limit of replies may be a lower one by
/// now.
fn put_back(call: &mut Call<'_>, told: Reply) -> Done {
    if told.len() > call.reply().room() {
        return Err(Fail::TooLarge);
    }
    call.reply().take_in(told);
    Ok(())
}

/// Begins a draft of a command whose reply begins at `start`.
fn begin(call: &mut Call<'_>, start: usize) -> Drafted {
    Drafted {
        draft: Box::new(call.keys().begin_draft()),
        progress: Progress::default(),
        told: call.reply().split_off(start),
        request: size_of_args(call.args),
        last: call.engine.keys.now,
        is_whole: false,
    }
}

/// Returns whether the client has other rights than a user.
///
/// # Errors
/// The client may not run the command any more.
pub(super) fn has_other_rights(call: &mut Call<'_>, user: &mut Option<Arc<User>>) -> Result<bool, Fail> {
    let is_same = match (&call.client.user, &*user) {
        (Some(now), Some(then)) => Arc::ptr_eq(now, then),
        (now, then) => now.is_none() && then.is_none(),
    };
    if is_same {
        return Ok(false);
    }
    user.clone_from(&call.client.user);
    let spec = resolve(call.args).expect("it was found before");
    call.engine.allowed(call.client, spec, call.args).map_err(|error| {
        if let Some(queue) = &mut call.client.queue {
            queue.is_broken = true;
        }
        Fail::Reply(error.into())
    })?;
    Ok(true)
}

/// Returns whether keys may have expired for all clients since the last portion that the draft
/// still has.
fn is_late(call: &Call<'_>, drafted: &Drafted) -> bool {
    let now = call.engine.keys.now;
    now > drafted.last.saturating_add(LONGEST) && drafted.draft.has_expired(now)
}

/// Commits the deletion of the expired keys that a portion has met, as they are gone for all
/// clients; returns whether this succeeded.
pub(super) fn commit_expired(call: &mut Call<'_>) -> bool {
    if !call.engine.keys.is_changed() {
        return true;
    }
    let epoch = call.engine.keys.epoch();
    call.engine.commit_expired();
    if call.engine.keys.epoch() == epoch {
        return false;
    }
    let watched = &call.client.watched;
    let is_stale = call.engine.keys.changed().any(|one| one.is_modified && watched.contains_key(one.key));
    call.client.is_stale |= is_stale;
    true
}
