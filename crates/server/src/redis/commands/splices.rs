//! Changes in the midst of a long list, on a draft: portions look for the places, and read the
//! shorter side of the list, and write it anew.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;

use super::super::fail::Fail;
use super::super::keys::{End, check_rewritten};
use super::drafts::Progress;
use super::lists::{behind, matching, place};
use super::{Call, Done};

/// Elements that one portion looks at, reads or writes.
const ELEMENTS: usize = 4_000;

/// Returns whether one portion cannot take so many elements.
pub fn is_long(elements: usize) -> bool {
    elements > ELEMENTS
}

/// What is to happen to elements.
#[derive(Debug)]
enum Change {
    /// Another element comes before this place.
    Insert(usize),
    /// The element at this place is replaced.
    Set(usize),
    /// The elements at these places leave; they are in order.
    Remove(Vec<usize>),
}

/// How far a change has come.
#[derive(Debug, Default)]
pub struct Splice {
    /// Elements that were looked at.
    looked: usize,
    /// Places that were found.
    found: Vec<usize>,
    /// The change, with the elements that are written anew because of it.
    change: Option<(Change, Range<usize>, End)>,
    /// Number of these that were read.
    read: usize,
    /// The elements that stay of them, and the new one.
    kept: VecDeque<Bytes>,
    /// Bytes of these.
    bytes: usize,
    /// Whether the old elements are dropped, and the others follow.
    is_cut: bool,
}

impl Splice {
    /// Returns the bytes that this takes.
    pub fn memory(&self) -> usize {
        self.bytes + self.kept.len() * size_of::<Bytes>() + size_of_val(&self.found[..])
    }

    /// Determines what is written anew: the shorter side of the list.
    fn begin(&mut self, change: Change, len: usize) {
        let changed = match &change {
            Change::Insert(at) => *at..*at,
            Change::Set(at) => *at..*at + 1,
            Change::Remove(places) => places[0]..places[places.len() - 1] + 1,
        };
        let is_left = changed.start < len - changed.end;
        let (range, end) =
            if is_left { (0..changed.end, End::Left) } else { (changed.start..len, End::Right) };
        self.change = Some((change, range, end));
    }

    fn keep(&mut self, element: Bytes) -> Done {
        self.bytes += element.len();
        self.kept.push_back(element);
        Ok(check_rewritten(self.bytes)?)
    }
}

/// `LSET key index element`.
pub fn set(call: &mut Call<'_>, progress: &mut Progress) -> Result<bool, Fail> {
    let splice = progress.splice.get_or_insert_default();
    if splice.change.is_none() {
        let (_, len) = call.list(1)?;
        if len == 0 {
            return Err(Fail::err("no such key"));
        }
        let at = place(call.integer(2)?, len).ok_or_else(|| Fail::err("index out of range"))?;
        splice.begin(Change::Set(at), len);
    }
    let new = call.args[3].clone();
    let is_done = go_on(call, splice, &new, ELEMENTS)?;
    if is_done {
        call.reply().ok();
    }
    Ok(is_done)
}

/// `LINSERT key BEFORE|AFTER pivot element`.
pub fn insert(call: &mut Call<'_>, progress: &mut Progress) -> Result<bool, Fail> {
    let (splice, mut room) = (progress.splice.get_or_insert_default(), ELEMENTS);
    if splice.change.is_none() {
        let (_, len) = call.list(1)?;
        if !look(call, splice, len, false, 1, &mut room)? {
            return Ok(false);
        }
        let Some(at) = splice.found.first().copied() else {
            call.reply().int(if len == 0 { 0 } else { -1 });
            return Ok(true);
        };
        splice.begin(Change::Insert(at + behind(call)?), len);
    }
    let new = call.args[4].clone();
    let is_done = go_on(call, splice, &new, room)?;
    if is_done {
        let (_, len) = call.list(1)?;
        call.reply().count(len);
    }
    Ok(is_done)
}

/// `LREM key count element`.
pub fn remove(call: &mut Call<'_>, progress: &mut Progress) -> Result<bool, Fail> {
    let (splice, mut room) = (progress.splice.get_or_insert_default(), ELEMENTS);
    if splice.change.is_none() {
        let (count, (_, len)) = (call.integer(2)?, call.list(1)?);
        let most = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
        let most = if count == 0 { usize::MAX } else { most };
        if !look(call, splice, len, count < 0, most, &mut room)? {
            return Ok(false);
        }
        let mut found = std::mem::take(&mut splice.found);
        progress.count = found.len();
        if found.is_empty() {
            call.reply().count(0);
            return Ok(true);
        }
        found.sort_unstable();
        splice.begin(Change::Remove(found), len);
    }
    let is_done = go_on(call, splice, &Bytes::new(), room)?;
    if is_done {
        call.reply().count(progress.count);
    }
    Ok(is_done)
}

/// Looks for up to `most` elements that are equal to the third argument, from an end of the list.
/// Takes what it looks at off the room of the portion; returns whether it has come to its end.
fn look(
    call: &mut Call<'_>,
    splice: &mut Splice,
    len: usize,
    from_the_end: bool,
    most: usize,
    room: &mut usize,
) -> Result<bool, Fail> {
    let (id, _) = call.list(1)?;
    let next = splice.looked..len.min(splice.looked + *room);
    let left = most - splice.found.len();
    if from_the_end {
        let elements = call.engine.keys.elements(id, len - next.end..len - next.start)?;
        for at in matching(elements.rev(), &call.args[3]).take(left) {
            splice.found.push(len - 1 - (next.start + at?));
        }
    } else {
        for at in matching(call.engine.keys.elements(id, next.clone())?, &call.args[3]).take(left) {
            splice.found.push(next.start + at?);
        }
    }
    *room -= next.len();
    splice.looked = next.end;
    Ok(next.end == len || splice.found.len() == most)
}

/// Reads and writes what has room in a portion; returns whether all is written.
fn go_on(call: &mut Call<'_>, splice: &mut Splice, new: &Bytes, mut room: usize) -> Result<bool, Fail> {
    let (id, len) = call.list(1)?;
    let Some((change, range, end)) = splice.change.take() else { return Ok(true) };
    let next = range.start + splice.read..range.end.min(range.start + splice.read + room);
    for (element, at) in
        call.engine.keys.elements(id, if splice.is_cut { 0..0 } else { next.clone() })?.zip(next.start..)
    {
        let element = element?;
        match &change {
            Change::Insert(before) if *before == at => {
                splice.keep(new.clone())?;
                splice.keep(element)?;
            }
            Change::Set(place) if *place == at => splice.keep(new.clone())?,
            Change::Remove(places) if places.binary_search(&at).is_ok() => {}
            _ => splice.keep(element)?,
        }
        splice.read += 1;
        room -= 1;
    }
    if !splice.is_cut && splice.read == range.len() && room > 0 {
        if matches!(change, Change::Insert(at) if at == range.end) {
            splice.keep(new.clone())?;
        }
        if splice.kept.is_empty() && len == range.len() {
            call.keys().delete(id);
            return Ok(true);
        }
        call.keys().cut_list(id, end, range.len());
        splice.is_cut = true;
    }
    if splice.is_cut {
        let count = splice.kept.len().min(room);
        match end {
            End::Right => call.engine.keys.push(id, end, splice.kept.drain(..count)),
            End::Left => {
                let rest = splice.kept.len() - count;
                call.engine.keys.push(id, end, splice.kept.drain(rest..).rev());
            }
        }
    }
    let is_done = splice.is_cut && splice.kept.is_empty();
    splice.change = Some((change, range, end));
    Ok(is_done)
}
