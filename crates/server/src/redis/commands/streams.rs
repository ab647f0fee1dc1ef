//! Streams: adding, reading by range, trimming, deleting.

use bytes::Bytes;

use super::super::fail::Fail;
use super::super::keys::stream::{Delta, Entry, Id, Meta, Stream};
use super::super::keys::{Finder, SlotId};
use super::super::reply::Reply;
use super::{Call, Done, integer};

/// Entries that one portion looks for.
const FOUND: usize = 2_000;
/// Entries that a trim looks at one by one.
const NEAR: usize = 100;

/// The error of what should be an id.
pub fn invalid_id() -> Fail {
    Fail::err("Invalid stream ID specified as stream command argument")
}

/// An id: `ms` or `ms-seq`; what is not said of it is `seq`.
pub fn parse_id(text: &[u8], seq: u64) -> Result<Id, Fail> {
    let number =
        |part: &[u8]| std::str::from_utf8(part).ok().filter(|t| !t.starts_with('+'))?.parse::<u64>().ok();
    let parsed = match text.iter().position(|&b| b == b'-') {
        None => number(text).map(|ms| Id { ms, seq }),
        Some(dash) => number(&text[..dash]).zip(number(&text[dash + 1..])).map(|(ms, seq)| Id { ms, seq }),
    };
    parsed.ok_or_else(invalid_id)
}

/// An end of a range of ids: `-`, `+`, an id, or one that is not included, after a parenthesis.
fn parse_end(text: &[u8], is_start: bool) -> Result<Id, Fail> {
    let seq = if is_start { 0 } else { u64::MAX };
    match text {
        b"-" => Ok(Id::MIN),
        b"+" => Ok(Id::MAX),
        [b'(', rest @ ..] if is_start => {
            parse_id(rest, seq)?.after().ok_or_else(|| Fail::err("invalid start ID for the interval"))
        }
        [b'(', rest @ ..] => {
            parse_id(rest, seq)?.before().ok_or_else(|| Fail::err("invalid end ID for the interval"))
        }
        text => parse_id(text, seq),
    }
}

/// A range of ids.
pub fn parse_range(start: &[u8], end: &[u8]) -> Result<(Id, Id), Fail> {
    Ok((parse_end(start, true)?, parse_end(end, false)?))
}

/// The start of a range alone.
pub fn parse_start(start: &[u8]) -> Result<Id, Fail> {
    parse_end(start, true)
}

/// Tells of an entry: its id, and its fields with their values.
pub fn tell_entry(reply: &mut Reply, entry: &Entry) {
    reply.array(2);
    reply.bulk(entry.id.to_string());
    reply.array(entry.parts);
    entry.fields().for_each(|part| reply.bulk(part));
}

/// What a stream is to be trimmed to.
#[derive(Clone, Copy, Debug)]
enum To {
    Length(u64),
    From(Id),
}

/// How a stream is to be trimmed.
#[derive(Clone, Copy, Debug)]
struct Trim {
    to: To,
    /// Whole portions of the log alone may go.
    roughly: bool,
    /// The most entries that may; 0: any number.
    limit: u64,
}

/// The options that XADD and XTRIM share.
struct Options {
    trim: Option<Trim>,
    makes: bool,
    /// Where the options end.
    end: usize,
}

fn options(call: &Call<'_>, is_add: bool) -> Result<Options, Fail> {
    let mut options = Options { trim: None, makes: true, end: 2 };
    let mut limit = None;
    while options.end < call.args.len() {
        let at = options.end;
        let more = call.args.len() - at - 1;
        let word = call.word(at);
        match word.as_str() {
            "MAXLEN" | "MINID" if more > 0 => {
                if options.trim.is_some() {
                    return Err(Fail::err(
                        "syntax error, MAXLEN and MINID options at the same time are not compatible",
                    ));
                }
                let sign = &call.args[at + 1][..];
                let has_sign = more > 1 && (sign == b"~" || sign == b"=");
                let value = &call.args[at + 1 + usize::from(has_sign)];
                let to = if word == "MINID" {
                    To::From(parse_id(value, 0)?)
                } else {
                    let length = integer(value).ok_or_else(Fail::not_an_integer)?;
                    let length =
                        u64::try_from(length).map_err(|_| Fail::err("The MAXLEN argument must be >= 0."))?;
                    To::Length(length)
                };
                options.trim = Some(Trim { to, roughly: has_sign && sign == b"~", limit: 0 });
                options.end += 2 + usize::from(has_sign);
            }
            "LIMIT" if more > 0 => {
                let n = call.integer(at + 1)?;
                limit = Some(u64::try_from(n).map_err(|_| Fail::err("The LIMIT argument must be >= 0."))?);
                options.end += 2;
            }
            "NOMKSTREAM" if is_add => {
                options.makes = false;
                options.end += 1;
            }
            _ if is_add => break,
            _ => return Err(Fail::syntax()),
        }
    }
    match (&mut options.trim, limit) {
        (None, Some(_)) => {
            return Err(Fail::err(
                "syntax error, LIMIT cannot be used without specifying a trimming strategy",
            ));
        }
        (None, None) if !is_add => {
            return Err(Fail::err("syntax error, XTRIM must be called with a trimming strategy"));
        }
        (Some(trim), Some(_)) if !trim.roughly => {
            return Err(Fail::err("syntax error, LIMIT cannot be used without the special ~ option"));
        }
        (Some(trim), limit) if trim.roughly => {
            trim.limit = limit.unwrap_or(call.engine.settings.stream_portion().saturating_mul(100));
        }
        _ => {}
    }
    Ok(options)
}

/// Trims a stream; how many entries went.
fn trim(call: &mut Call<'_>, id: SlotId, trim: Trim) -> Result<u64, Fail> {
    let Some(stream) = call.engine.keys.stream(id) else { return Ok(0) };
    let (seqs, gone, len) = (stream.seqs(), stream.kept.gone.len() as u64, stream.len());
    let exact = match trim.to {
        To::Length(most) if len <= most => seqs.start,
        To::Length(most) if gone == 0 || most == 0 => seqs.end - most,
        To::Length(most) => past_live(call, id, len - most)?,
        To::From(first) => call.engine.keys.seek_entry(id, first)?,
    };
    let mut to = exact;
    if trim.roughly {
        // The log goes by portions, of the entries whose numbers have the same quotient. The last
        // portion ends with the log.
        let portion = call.engine.settings.stream_portion().max(1);
        let whole = |to: u64| if to >= seqs.end { seqs.end } else { to / portion * portion };
        to = whole(exact);
        if trim.limit > 0 {
            to = to.min(whole(seqs.start.saturating_add(trim.limit)));
        }
    }
    if to <= seqs.start {
        return Ok(0);
    }
    call.keys().trim_stream(id, to)?;
    drop_gone(call, id)?;
    Ok(len - call.engine.keys.stream(id).map_or(0, Stream::len))
}

/// The number after so many live entries from the front. Most trims pass few entries. Of many, few
/// are read: those before a number are live but for those that are gone.
fn past_live(call: &Call<'_>, id: SlotId, live: u64) -> Result<u64, Fail> {
    let stream = call.engine.keys.stream(id).expect("it was there");
    let (seqs, gone) = (stream.seqs(), &stream.kept.gone);
    let mut left = live;
    for seq in seqs.clone().take(NEAR) {
        if left == 0 {
            return Ok(seq);
        }
        let entry = call.engine.keys.entry_at(id, seq)?.id;
        left -= u64::from(!gone.contains(&entry));
    }
    let gone: Vec<Id> = gone.iter().copied().collect();
    let (mut low, mut high) = (seqs.start, seqs.end);
    while low < high {
        let middle = low + (high - low) / 2;
        let entry = call.engine.keys.entry_at(id, middle)?.id;
        let gone_before = gone.partition_point(|gone| *gone < entry) as u64;
        if (middle - seqs.start).saturating_sub(gone_before) < live {
            low = middle + 1
        } else {
            high = middle
        }
    }
    Ok(low)
}

/// Trims what is gone off the front of the log.
fn drop_gone(call: &mut Call<'_>, id: SlotId) -> Done {
    let Some(stream) = call.engine.keys.stream(id) else { return Ok(()) };
    let seqs = stream.seqs();
    if stream.kept.gone.is_empty() || seqs.is_empty() {
        return Ok(());
    }
    let to = if stream.is_empty() { seqs.end } else { call.engine.keys.first_left(id)? };
    if to > seqs.start {
        call.keys().trim_stream(id, to)?;
    }
    Ok(())
}

/// The id of an entry that is to be added.
fn next_id(call: &Call<'_>, text: &[u8], last: Id) -> Result<Id, Fail> {
    let exhausted = || Fail::err("The stream has exhausted the last possible ID, unable to add more items");
    let too_small =
        || Fail::err("The ID specified in XADD is equal or smaller than the target stream top item");
    let id = if text == b"*" {
        let now = call.engine.keys.now;
        if now > last.ms { Id { ms: now, seq: 0 } } else { last.after().ok_or_else(exhausted)? }
    } else if let Some(ms) = text.strip_suffix(b"-*") {
        let ms = parse_id(ms, 0)?.ms;
        if ms == last.ms {
            let seq = last.seq.checked_add(1).ok_or_else(too_small)?;
            Id { ms, seq }
        } else {
            Id { ms, seq: u64::from(ms == 0) }
        }
    } else {
        parse_id(text, 0)?
    };
    if last == Id::MAX {
        return Err(exhausted());
    }
    if id <= last { Err(too_small()) } else { Ok(id) }
}

pub fn xadd(call: &mut Call<'_>) -> Done {
    let options = options(call, true)?;
    let fields = call.args.len().saturating_sub(options.end + 1);
    if fields == 0 || !fields.is_multiple_of(2) {
        return Err(Fail::err("wrong number of arguments for 'xadd' command"));
    }
    let text = call.args[options.end].clone();
    if text != "*" {
        // What is no id is told before anything else is.
        let ms = text.strip_suffix(b"-*");
        if parse_id(ms.unwrap_or(&text), 0)? == Id::MIN && ms.is_none() {
            return Err(Fail::err("The ID specified in XADD must be greater than 0-0"));
        }
    }
    let (id, is_there) = call.stream(1)?;
    if !is_there && !options.makes {
        call.reply().null();
        return Ok(());
    }
    let last = call.engine.keys.stream(id).map_or(Id::MIN, |stream| stream.kept.meta.last);
    let entry = next_id(call, &text, last)?;
    call.keys().make_stream(id);
    let fields: &[Bytes] = &call.args[options.end + 1..];
    call.engine.keys.add_entry(id, entry, fields);
    if let Some(how) = options.trim {
        trim(call, id, how)?;
    }
    call.reply().bulk(entry.to_string());
    Ok(())
}

pub fn xtrim(call: &mut Call<'_>) -> Done {
    let options = options(call, false)?;
    let (id, _) = call.stream(1)?;
    let gone = trim(call, id, options.trim.expect("it was asked for"))?;
    call.reply().int(gone as i64);
    Ok(())
}

pub fn xlen(call: &mut Call<'_>) -> Done {
    let (id, _) = call.stream(1)?;
    let len = call.engine.keys.stream(id).map_or(0, Stream::len);
    call.reply().int(len as i64);
    Ok(())
}

fn range(call: &mut Call<'_>, newest_first: bool) -> Done {
    let (start, end) = if newest_first { (3, 2) } else { (2, 3) };
    let ids = parse_range(&call.args[start], &call.args[end])?;
    let mut count = usize::MAX;
    let mut at = 4;
    while at < call.args.len() {
        if !call.is(at, "COUNT") || at + 1 == call.args.len() {
            return Err(Fail::syntax());
        }
        count = call.integer(at + 1)?.max(0) as usize;
        at += 2;
    }
    let (id, is_there) = call.stream(1)?;
    if is_there && count == 0 {
        call.reply().null_array();
        return Ok(());
    }
    let entries = call.entries(id, ids, count, newest_first)?;
    let (start, memory) = (call.client.written(), entries.iter().map(Entry::cost).sum());
    call.reply().array(entries.len());
    let mut entries = entries.into_iter();
    call.tell_parts(start, memory, move |reply| {
        entries.next().map(|entry| tell_entry(reply, &entry)).map(|()| 1)
    })
}

pub fn xrange(call: &mut Call<'_>) -> Done {
    range(call, false)
}

pub fn xrevrange(call: &mut Call<'_>) -> Done {
    range(call, true)
}

pub fn xdel(call: &mut Call<'_>) -> Done {
    let (_, is_there) = call.stream(1)?;
    if !is_there {
        call.reply().count(0);
        return Ok(());
    }
    let mut ids = call.args[2..].iter().map(|text| parse_id(text, 0)).collect::<Result<Vec<Id>, Fail>>()?;
    ids.sort();
    ids.dedup();
    if ids.len() <= FOUND || call.is_whole() {
        let mut found = Vec::new();
        find(call, &ids, &mut found)?;
        return delete_found(call, found);
    }
    let look = move |call: &mut Call<'_>, (at, found): &mut (usize, Vec<Id>)| {
        let end = ids.len().min(*at + FOUND);
        find(call, &ids[*at..end], found)?;
        *at = end;
        Ok((end < ids.len()).then_some(2 * size_of_val(&ids[..])))
    };
    call.at_one_moment(1..2, look, |call, (_, found)| delete_found(call, found))
}

/// Looks for entries by their ids, which are in order.
fn find(call: &mut Call<'_>, ids: &[Id], found: &mut Vec<Id>) -> Done {
    let (id, _) = call.stream(1)?;
    let mut finder = Finder::default();
    for &entry in ids {
        if call.engine.keys.find_entry(&mut finder, id, entry)?.is_some() {
            found.push(entry);
        }
    }
    Ok(())
}

/// Deletes entries that are there, by their ids in order.
fn delete_found(call: &mut Call<'_>, found: Vec<Id>) -> Done {
    let (id, _) = call.stream(1)?;
    let count = found.len();
    if let Some(&largest) = found.last() {
        call.keys().change_stream(id, Delta::Gone(found));
        let meta = call.engine.keys.stream(id).expect("it was there").kept.meta;
        if largest > meta.max_deleted {
            call.keys().change_stream(id, Delta::Meta(Meta { max_deleted: largest, ..meta }));
        }
        drop_gone(call, id)?;
    }
    call.reply().count(count);
    Ok(())
}

/// `XSETID key last-id [ENTRIESADDED n MAXDELETEDID id]`.
pub fn xsetid(call: &mut Call<'_>) -> Done {
    let last = parse_id(&call.args[2], 0)?;
    let (mut added, mut max_deleted) = (None, None);
    let mut at = 3;
    while at < call.args.len() {
        if at + 1 == call.args.len() {
            return Err(Fail::syntax());
        }
        match call.word(at).as_str() {
            "ENTRIESADDED" => {
                let n = call.integer(at + 1)?;
                if n < 0 {
                    return Err(Fail::err("entries_added must be positive"));
                }
                added = Some(n);
            }
            "MAXDELETEDID" => {
                let id = parse_id(&call.args[at + 1], 0)?;
                if last < id {
                    return Err(Fail::err(
                        "The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                    ));
                }
                max_deleted = Some(id);
            }
            _ => return Err(Fail::syntax()),
        }
        at += 2;
    }
    let (id, is_there) = call.stream(1)?;
    if !is_there {
        return Err(Fail::err("no such key"));
    }
    let stream = call.engine.keys.stream(id).expect("it is there");
    let (len, seqs, mut meta) = (stream.len(), stream.seqs(), stream.kept.meta);
    if !seqs.is_empty() && last < call.engine.keys.entry_at(id, seqs.end - 1)?.id {
        return Err(Fail::err("The ID specified in XSETID is smaller than the target stream top item"));
    }
    if last < meta.max_deleted {
        return Err(Fail::err("The ID specified in XSETID is smaller than current max_deleted_entry_id"));
    }
    if added.is_some_and(|added| added < len as i64) {
        return Err(Fail::err(
            "The entries_added specified in XSETID is smaller than the target stream length",
        ));
    }
    meta.last = last;
    meta.max_deleted = max_deleted.filter(|id| *id != Id::MIN).unwrap_or(meta.max_deleted);
    if let Some(added) = added {
        meta.more_added = added - seqs.end as i64;
    }
    let before = call.engine.keys.stream(id).expect("it is there").kept.meta;
    call.keys().change_stream(id, Delta::Meta(meta));
    if meta.last < before.last || meta.max_deleted < before.max_deleted {
        // Ids may come once more. The head must not say of them that they were deleted.
        call.keys().write_head(id);
    }
    call.reply().ok();
    Ok(())
}
