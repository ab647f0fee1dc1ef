//! Long changes in portions: on a draft, which is committed as one at the end.
//!
//! Other clients see nothing of the changes before the commit. If they change a key of the draft
//! meanwhile, the command begins again; after some such beginnings it runs at once.

use super::super::fail::Fail;
use super::super::keys::Draft;
use super::super::reply::Reply;
use super::{Call, Done};

/// Times that a command begins again, because others change its keys, before it runs at once.
const RESTARTS: usize = 3;
/// Bytes that one portion copies and writes, about.
const BYTES: usize = 1 << 20;

/// How far a command has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// The next word, or the next command of a transaction.
    pub at: usize,
    /// What was counted so far.
    pub count: usize,
    /// Whether the first of two passes is over.
    pub is_second: bool,
}

/// A portion of a command; returns whether it was the last.
pub type Part = fn(&mut Call<'_>, &mut Progress) -> Result<bool, Fail>;

/// A command on a draft, between two portions.
struct Drafted {
    draft: Box<Draft>,
    progress: Progress,
    /// The reply so far.
    told: Reply,
}

/// What a portion comes to.
enum Outcome {
    More(Drafted),
    Over,
    /// Others have changed a key of the draft.
    Again,
}

impl Call<'_> {
    /// Runs the portions of a command: at once if the command is short or must be whole, and
    /// otherwise on a draft.
    pub fn in_parts(&mut self, is_long: bool, part: Part) -> Done {
        if !is_long || self.is_whole() {
            return at_once(self, part);
        }
        self.drafted(part, move |call| at_once(call, part), |_| Ok(true))
    }

    /// Runs a command on a draft, in portions, or as a whole if that does not work. `end` ends the
    /// command after its last portion, with the keys of all clients. It returns whether the changes
    /// of the draft are committed; if not, it has written the reply.
    pub fn drafted(
        &mut self,
        part: Part,
        whole: impl Fn(&mut Call<'_>) -> Done + Send + 'static,
        end: fn(&mut Call<'_>) -> Result<bool, Fail>,
    ) -> Done {
        let (mut drafted, mut restarts) = (None, 0);
        self.in_portions(move |call| {
            // Who hears of each change of a key hears of it in the order of the commits.
            if restarts > RESTARTS || call.engine.has_listeners() {
                drafted = None;
                return whole(call).map(|()| true);
            }
            if drafted.is_none() && call.engine.keys.is_changed() {
                // Requests before this one are committed first.
                return Ok(false);
            }
            match go_on(call, drafted.take(), part, end)? {
                Outcome::Over => return Ok(true),
                Outcome::More(more) => drafted = Some(more),
                Outcome::Again => restarts += 1,
            }
            Ok(false)
        })
    }

    /// Returns whether a portion that began at a cost is long enough.
    pub fn has_drafted(&self, began: usize) -> bool {
        self.engine.keys.draft_cost() > began + BYTES
    }
}

/// Runs the portions of a command at once.
fn at_once(call: &mut Call<'_>, part: Part) -> Done {
    let mut progress = Progress::default();
    while !part(call, &mut progress)? {}
    Ok(())
}

/// Runs a portion on a draft.
fn go_on(
    call: &mut Call<'_>,
    drafted: Option<Drafted>,
    part: Part,
    end: fn(&mut Call<'_>) -> Result<bool, Fail>,
) -> Result<Outcome, Fail> {
    let start = call.client.written();
    let drafted = match drafted {
        Some(mut drafted) => {
            if drafted.draft.is_outdated() {
                return Ok(Outcome::Again);
            }
            drafted
        }
        None => {
            let draft = Box::new(call.keys().begin_draft());
            Drafted { draft, progress: Progress::default(), told: call.reply().split_off(start) }
        }
    };
    let Drafted { draft, mut progress, told } = drafted;
    call.reply().take_in(told);
    call.keys().open_draft(draft);
    let is_done = part(call, &mut progress);
    let mut draft = call.keys().close_draft();
    let is_done = is_done?;
    let told = call.client.reply.split_off(start);
    if !commit_expired(call) {
        return Ok(Outcome::Again);
    }
    draft.pass_changes();
    if !is_done {
        call.client.work_bytes = draft.memory() + told.len();
        return Ok(Outcome::More(Drafted { draft, progress, told }));
    }
    if end(call)? {
        call.reply().take_in(told);
        call.keys().submit(draft);
    }
    Ok(Outcome::Over)
}

/// Commits the deletion of the expired keys that a portion has met, as they are gone for all
/// clients; returns whether this succeeded.
fn commit_expired(call: &mut Call<'_>) -> bool {
    if !call.engine.keys.is_changed() {
        return true;
    }
    let epoch = call.engine.keys.epoch();
    call.engine.commit_expired();
    if call.engine.keys.epoch() == epoch {
        return false;
    }
    let watched = &call.client.watched;
    let is_stale = call.engine.keys.changed().any(|(key, is_modified)| is_modified && watched.contains(key));
    call.client.is_stale |= is_stale;
    true
}
