//! SORT: the elements of a list in order, with values of other keys in their place.

mod long;

use std::cmp::Ordering;

use bytes::Bytes;

use super::super::fail::Fail;
use super::super::keys::{End, SlotId, Value};
use super::super::scripts::strtod;
use super::{Call, Done, check_name};

/// What SORT is asked for.
#[derive(Default)]
struct Asked {
    /// Pattern of the keys whose values give the order; `None`: the elements do.
    by: Option<Bytes>,
    /// Whether the order stays as it is.
    keeps_order: bool,
    /// Patterns of the values that are told for each element; none: the element.
    gets: Vec<Bytes>,
    descending: bool,
    alphabetic: bool,
    /// Number of elements that are left out at first, and number of those that are told.
    limit: Option<(i64, i64)>,
    /// The word that names the key of the result.
    store: Option<usize>,
}

/// Most patterns of values.
const GETS: usize = 512;
/// Bytes of the shortest value in a reply.
const SHORTEST: usize = b"_\r\n".len();
/// Look-ups of one portion, and most of them of a command alone that gives no turns any more.
const LOOK_UPS: usize = 2_000;
const MOST_LOOK_UPS: usize = 90 * LOOK_UPS;

/// The value that gives an element its place.
enum Weight {
    Number(f64),
    /// A text; `None` if a key was not found.
    Text(Option<Bytes>),
}

pub fn sort(call: &mut Call<'_>) -> Done {
    run(call, true)
}

pub fn sort_ro(call: &mut Call<'_>) -> Done {
    run(call, false)
}

fn run(call: &mut Call<'_>, may_store: bool) -> Done {
    let asked = parse(call, may_store)?;
    if let Some(at) = asked.store {
        check_name(&call.args[at])?;
    }
    let (id, len) = call.list(1)?;
    if is_too_much(call, &asked, len)? {
        return Ok(());
    }
    let is_long = len.saturating_mul(1 + asked.gets.len()) > long::RUN;
    if is_long && !call.is_whole() {
        return long::sort(call, asked, id, len);
    }
    at_once(call, &asked, id, len)
}

/// Returns whether the values cannot fit into the reply, however short they are. It is known before
/// the first of them is looked up.
fn is_too_much(call: &mut Call<'_>, asked: &Asked, len: usize) -> Result<bool, Fail> {
    let values = window(asked, len).len().saturating_mul(asked.gets.len());
    if asked.store.is_some() {
        let most = call.engine.settings.hard_output / size_of::<(Weight, Bytes)>();
        return if values > most { Err(too_much(call)) } else { Ok(false) };
    }
    if values.saturating_mul(SHORTEST) <= call.client.reply.room() {
        return Ok(false);
    }
    call.reply().fill();
    call.client.has_room().map(|_| true)
}

/// Sorts without turns for others.
fn at_once(call: &mut Call<'_>, asked: &Asked, id: SlotId, len: usize) -> Done {
    let (mut elements, mut steps) = (held(call, id, len, asked)?, 0);
    if !asked.keeps_order {
        let mut weighed = Vec::with_capacity(elements.len());
        for element in elements {
            weighed.push((weight(call, asked, &element, &mut steps)?, element));
        }
        weighed.sort_by(|(x, a), (y, b)| {
            let order = compare((x, a), (y, b), asked.by.is_some());
            if asked.descending { order.reverse() } else { order }
        });
        elements = weighed.into_iter().map(|(_, element)| element).collect();
        elements = elements.drain(window(asked, len)).collect();
    }
    match asked.store {
        None => tell(call, asked, elements, &mut steps),
        Some(at) => store(call, asked, at, elements, &mut steps),
    }
}

/// Counts a look-up that gives no turn to others.
fn count_look_up(call: &mut Call<'_>, steps: &mut usize) -> Done {
    *steps += 1;
    let is_alone = !call.is_whole();
    if is_alone && *steps > MOST_LOOK_UPS {
        return Err(Fail::err("the list changes too often while SORT looks for values: sort a copy of it"));
    }
    if is_alone || !steps.is_multiple_of(LOOK_UPS) {
        return Ok(());
    }
    call.engine.count_at_once("sort", call.client.is_in_script)
}

fn parse(call: &Call<'_>, may_store: bool) -> Result<Asked, Fail> {
    let mut asked = Asked::default();
    let mut at = 2;
    while at < call.args.len() {
        let more = call.args.len() - at - 1;
        match call.word(at).as_str() {
            "ASC" => asked.descending = false,
            "DESC" => asked.descending = true,
            "ALPHA" => asked.alphabetic = true,
            "LIMIT" if more > 1 => {
                asked.limit = Some((call.integer(at + 1)?, call.integer(at + 2)?));
                at += 2;
            }
            "STORE" if more > 0 && may_store => {
                asked.store = Some(at + 1);
                at += 1;
            }
            "BY" if more > 0 => {
                let by = &call.args[at + 1];
                if by.contains(&b'*') {
                    may_look_up(call, "BY")?;
                } else {
                    asked.keeps_order = true;
                }
                asked.by = Some(by.clone());
                at += 1;
            }
            "GET" if more > 0 => {
                may_look_up(call, "GET")?;
                if asked.gets.len() == GETS {
                    return Err(Fail::err(format!("SORT takes at most {GETS} GET options")));
                }
                asked.gets.push(call.args[at + 1].clone());
                at += 1;
            }
            _ => return Err(Fail::syntax()),
        }
        at += 1;
    }
    Ok(asked)
}

/// Patterns name keys that no right is checked for: so the user has to have the right to all.
fn may_look_up(call: &Call<'_>, option: &str) -> Done {
    let spec = super::resolve(call.args).expect("it was found before");
    let may = call.client.user.as_ref().is_some_and(|user| user.may_read_all(spec, call.args));
    if may {
        return Ok(());
    }
    Err(Fail::err(format!("{option} option of SORT denied due to insufficient ACL permissions.")))
}

/// The part of so many elements that is told.
fn window(asked: &Asked, len: usize) -> std::ops::Range<usize> {
    let Some((skip, count)) = asked.limit else { return 0..len };
    let start = usize::try_from(skip).unwrap_or(0).min(len);
    let end = usize::try_from(count).map_or(len, |count| start.saturating_add(count).min(len));
    start..end
}

/// The elements that are to be sorted, or, where the order stays, that are told.
fn held(call: &Call<'_>, id: SlotId, len: usize, asked: &Asked) -> Result<Vec<Bytes>, Fail> {
    let mut range = if asked.keeps_order { window(asked, len) } else { 0..len };
    if asked.keeps_order && asked.descending {
        range = len - range.end..len - range.start;
    }
    let mut room = call.engine.settings.hard_output;
    let mut elements = Vec::with_capacity(range.len());
    for element in call.engine.keys.elements(id, range)? {
        let element = element?;
        room = take(call, room, &element)?;
        elements.push(element);
    }
    if asked.keeps_order && asked.descending {
        elements.reverse();
    }
    Ok(elements)
}

/// Takes the memory of a value from what is left of the limit.
fn take(call: &Call<'_>, room: usize, value: &[u8]) -> Result<usize, Fail> {
    room.checked_sub(value.len() + size_of::<(Weight, Bytes)>()).ok_or_else(|| too_much(call))
}

fn too_much(call: &Call<'_>) -> Fail {
    let limit = call.engine.settings.hard_output;
    Fail::err(format!("SORT holds at most {limit} bytes (client-output-buffer-limit): sort less at once"))
}

fn weight(call: &mut Call<'_>, asked: &Asked, element: &Bytes, steps: &mut usize) -> Result<Weight, Fail> {
    let value = match &asked.by {
        Some(by) => look_up(call, by, element, steps)?,
        None => Some(element.clone()),
    };
    weigh(asked, value)
}

/// The weight that a value gives an element.
fn weigh(asked: &Asked, value: Option<Bytes>) -> Result<Weight, Fail> {
    if asked.alphabetic {
        return Ok(Weight::Text(value));
    }
    let number = value.map_or(Some(0.0), |text| number(&text));
    let number = number.ok_or_else(|| Fail::err("One or more scores can't be converted into double"))?;
    Ok(Weight::Number(number))
}

/// Returns the number that a text is, as Redis reads it with C's `strtod`: an empty text is 0, and
/// a number that an `f64` cannot hold is none.
fn number(text: &[u8]) -> Option<f64> {
    if text.is_empty() {
        return Some(0.0);
    }
    let start = text.iter().position(|byte| !byte.is_ascii_whitespace() && *byte != 0x0b)?;
    let text = &text[start..];
    let (number, len) = strtod(text)?;
    let is_word = !text.iter().any(u8::is_ascii_digit);
    (len == text.len() && !number.is_nan() && (number.is_finite() || is_word)).then_some(number)
}

fn compare(a: (&Weight, &Bytes), b: (&Weight, &Bytes), by_others: bool) -> Ordering {
    match (a.0, b.0) {
        // Elements of one weight have the order of their bytes, so that the result is always one.
        (Weight::Number(x), Weight::Number(y)) => {
            x.partial_cmp(y).unwrap_or(Ordering::Equal).then_with(|| a.1.cmp(b.1))
        }
        (Weight::Text(x), Weight::Text(y)) if by_others => x.cmp(y),
        _ => a.1.cmp(b.1),
    }
}

/// A pattern of keys: of texts, or of hashes of which a field is taken.
struct Pattern {
    /// The parts of the key around the element.
    around: (Bytes, Bytes),
    field: Option<Bytes>,
}

impl Pattern {
    /// Parses a pattern; `None` if it names no key.
    fn parse(pattern: &Bytes) -> Option<Self> {
        let star = pattern.iter().position(|byte| *byte == b'*')?;
        let (before, after) = (pattern.slice(..star), pattern.slice(star + 1..));
        let arrow = after.windows(2).position(|pair| pair == b"->").filter(|at| at + 2 < after.len());
        let (rest, field) = match arrow {
            Some(at) => (after.slice(..at), Some(after.slice(at + 2..))),
            None => (after, None),
        };
        Some(Self { around: (before, rest), field })
    }

    /// The key for an element.
    fn key(&self, element: &[u8]) -> Bytes {
        [&self.around.0, element, &self.around.1].concat().into()
    }
}

/// What is taken of a value: the text, or a field of the hash.
fn part(value: &Value, field: Option<&Bytes>) -> Option<Bytes> {
    match (value, field) {
        (Value::String(text), None) => Some(text.clone()),
        (Value::Hash(fields), Some(field)) => fields.get(field).cloned(),
        _ => None,
    }
}

/// The value that a pattern names for an element.
fn look_up(
    call: &mut Call<'_>,
    pattern: &Bytes,
    element: &Bytes,
    steps: &mut usize,
) -> Result<Option<Bytes>, Fail> {
    count_look_up(call, steps)?;
    if pattern == "#" {
        return Ok(Some(element.clone()));
    }
    let Some(pattern) = Pattern::parse(pattern) else { return Ok(None) };
    let name = pattern.key(element);
    check_name(&name)?;
    let id = call.engine.keys.open(&call.client.database, &name)?;
    let value = part(call.value(id), pattern.field.as_ref());
    call.keys().make_room();
    Ok(value)
}

fn tell(call: &mut Call<'_>, asked: &Asked, elements: Vec<Bytes>, steps: &mut usize) -> Done {
    call.reply().array(elements.len() * asked.gets.len().max(1));
    for element in elements {
        if asked.gets.is_empty() {
            call.reply().bulk(element);
            continue;
        }
        for pattern in &asked.gets {
            let value = look_up(call, pattern, &element, steps)?;
            call.reply().bulk_or_null(value);
            if !call.client.has_room()? {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn store(call: &mut Call<'_>, asked: &Asked, at: usize, elements: Vec<Bytes>, steps: &mut usize) -> Done {
    let mut result = Vec::with_capacity(elements.len());
    if asked.gets.is_empty() {
        result = elements;
    } else {
        let mut room = call.engine.settings.hard_output;
        for element in elements {
            for pattern in &asked.gets {
                let value = look_up(call, pattern, &element, steps)?.unwrap_or_default();
                room = take(call, room, &value)?;
                result.push(value);
            }
        }
    }
    store_result(call, at, result)
}

fn store_result(call: &mut Call<'_>, at: usize, result: Vec<Bytes>) -> Done {
    let id = call.open(at)?;
    call.keys().delete(id);
    let count = result.len();
    if count > 0 {
        call.keys().push(id, End::Right, result);
    }
    call.reply().count(count);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number that a text is, as Redis 7.0.15 sorts by it.
    fn number(text: &'static str) -> Option<f64> {
        match weigh(&Asked::default(), Some(Bytes::from_static(text.as_bytes()))) {
            Ok(Weight::Number(number)) => Some(number),
            _ => None,
        }
    }

    #[test]
    fn numbers_are_those_of_strtod() {
        let numbers = [
            ("", 0.0),
            (" 3", 3.0),
            ("\t\x0b-2", -2.0),
            ("0x10", 16.0),
            ("-0xA", -10.0),
            ("+.5", 0.5),
            ("5.", 5.0),
            ("1e3", 1000.0),
            ("inFinity", f64::INFINITY),
            ("-INF", f64::NEG_INFINITY),
        ];
        for (text, expected) in numbers {
            assert_eq!(number(text), Some(expected), "{text:?}");
        }
        for text in [" ", "1 ", "x", "0x", "1e", "nan", "-", "1e999", "-1e999", "1,5"] {
            assert_eq!(number(text), None, "{text:?}");
        }
    }
}
