//! SORT of a long list, in portions: the list and all values are as they are at one moment.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::Range;
use std::sync::Arc;
use std::vec::IntoIter;

use bytes::Bytes;

use super::super::lookups::Lookups;
use super::{Asked, Call, Done, Pattern, Weight, at_once, compare, held, weigh, window};
use crate::redis::fail::Fail;
use crate::redis::keys::{Follower, SlotId};

/// Elements of a list that is sorted at once, and of a part of a longer one.
pub const RUN: usize = 2_048;
/// Names of keys that one portion makes, about.
const NAMES: usize = 1_000;
/// Changes of the list after which a sort gives no turns any more.
const RESTARTS: usize = 3;
/// Rows of a result, or comparisons, of one portion.
const PORTION: usize = 4_000;

/// The values of a pattern, one for each element.
#[derive(Clone, Copy)]
enum Values {
    /// The elements themselves.
    Elements,
    /// The pattern names no key.
    Nothing,
    /// The values of keys: of the pattern with this number.
    Keys(usize),
}

impl Values {
    /// Returns the values of a pattern, and adds it to those that name keys.
    fn new(pattern: &Bytes, patterns: &mut Vec<Pattern>) -> Self {
        match Pattern::parse(pattern) {
            Some(pattern) => {
                patterns.push(pattern);
                Self::Keys(patterns.len() - 1)
            }
            None if pattern == "#" => Self::Elements,
            None => Self::Nothing,
        }
    }
}

/// The keys of all patterns, for one element after another, and what was found of them.
struct Keys {
    patterns: Arc<[Pattern]>,
    found: Lookups,
}

impl Keys {
    fn new(call: &mut Call<'_>, patterns: Vec<Pattern>) -> Self {
        let patterns: Arc<[Pattern]> = patterns.into();
        let all = patterns.clone();
        let take = move |value: &_, part: u32| super::part(value, all[part as usize].field.as_ref());
        Self { patterns, found: Lookups::new(call, take) }
    }

    /// Returns the value for the element at a place of the list.
    fn value(&self, values: Values, at: usize, element: &Bytes) -> Option<Bytes> {
        match values {
            Values::Elements => Some(element.clone()),
            Values::Nothing => None,
            Values::Keys(pattern) => self.found.of_word(at * self.patterns.len() + pattern)?.clone(),
        }
    }
}

/// What a sort needs, until it is complete.
struct Gathering {
    elements: Vec<Bytes>,
    /// Number of elements whose keys have names.
    named: usize,
    by: Values,
    gets: Vec<Values>,
    keys: Keys,
    changes: Follower,
    /// Bytes of the elements.
    bytes: usize,
}

impl Gathering {
    fn begin(call: &mut Call<'_>, asked: &Asked, id: SlotId, len: usize) -> Result<Self, Fail> {
        let changes = call.keys().follow();
        let elements = held(call, id, len, asked)?;
        let mut patterns = Vec::new();
        let by = match &asked.by {
            Some(by) if !asked.keeps_order => Values::new(by, &mut patterns),
            _ => Values::Elements,
        };
        let gets = asked.gets.iter().map(|get| Values::new(get, &mut patterns)).collect();
        let keys = Keys::new(call, patterns);
        let bytes = elements.iter().map(|element| element.len() + size_of::<Row>()).sum();
        Ok(Self { elements, named: 0, by, gets, keys, changes, bytes })
    }

    /// Returns whether the list has changed.
    fn is_stale(&self, call: &Call<'_>) -> bool {
        self.changes.have_changed(&call.client.database, &call.args[1..2])
    }

    /// Goes on; returns whether all is known, as of now.
    fn go_on(&mut self, call: &mut Call<'_>) -> Result<bool, Fail> {
        let Keys { patterns, found } = &mut self.keys;
        let Some(some) = NAMES.checked_div(patterns.len()) else { return Ok(true) };
        let next = self.elements.iter().skip(self.named).take(some.max(1));
        if next.len() == 0 {
            return found.go_on(call);
        }
        self.named += next.len();
        for element in next {
            for (part, pattern) in (0..).zip(&**patterns) {
                let name = pattern.key(element);
                super::check_name(&name)?;
                found.add(name, part);
            }
        }
        Ok(false)
    }

    /// Returns the number of reads of keys so far.
    fn reads(&self) -> u64 {
        self.keys.found.reads()
    }

    /// Counts the memory.
    fn charge(&mut self, call: &mut Call<'_>) -> Result<usize, Fail> {
        let values = self.bytes + self.keys.found.value_bytes();
        let memory = self.bytes + self.keys.found.memory();
        call.client.work_bytes = memory;
        if values > call.engine.settings.hard_output {
            return Err(super::too_much(call));
        }
        Ok(memory)
    }
}

/// Sorts in portions.
pub fn sort(call: &mut Call<'_>, asked: Asked, id: SlotId, len: usize) -> Done {
    let mut gathering = Some(Gathering::begin(call, &asked, id, len)?);
    let (mut asked, mut restarts) = (Some(asked), 0);
    let mut storing: Option<Storing> = None;
    call.in_portions(move |call| {
        let (Some(all), Some(asked_for)) = (&mut gathering, &asked) else { return Ok(true) };
        let is_stale = all.is_stale(call);
        let is_done = !is_stale && all.go_on(call)?;
        if is_stale || storing.as_ref().is_some_and(|storing| storing.reads != all.reads()) {
            storing = None;
            restarts += 1;
            if restarts > RESTARTS {
                let (id, len) = call.list(1)?;
                return at_once(call, asked_for, id, len).map(|()| true);
            }
        }
        if is_stale {
            let (id, len) = call.list(1)?;
            *all = Gathering::begin(call, asked_for, id, len)?;
        }
        let memory = all.charge(call)?;
        if !is_done {
            return Ok(false);
        }
        if let Some(at) = asked_for.store {
            return store(call, asked_for, all, &mut storing, at, memory);
        }
        if let (Some(all), Some(asked)) = (gathering.take(), asked.take()) {
            tell(call, &asked, all, memory)?;
        }
        Ok(true)
    })
}

/// Begins to sort elements.
fn sorted(asked: &Asked, elements: Vec<Bytes>, keys: &Keys, by: Values) -> Result<Sorted, Fail> {
    let mut rows = Vec::with_capacity(elements.len());
    for (at, element) in elements.into_iter().enumerate() {
        let weight =
            if asked.keeps_order { Weight::Text(None) } else { weigh(asked, keys.value(by, at, &element))? };
        rows.push(Row { weight, element, at });
    }
    let rule = Rule { is_kept: asked.keeps_order, by: asked.by.is_some(), descending: asked.descending };
    Ok(Sorted { rest: rows.into_iter(), runs: BinaryHeap::new(), count: 0, rule })
}

/// Returns the places of the rows that are told, or stored, of so many.
fn told(asked: &Asked, len: usize) -> Range<usize> {
    if asked.keeps_order { 0..len } else { window(asked, len) }
}

/// Writes the elements, or the values in their places, in order.
fn tell(call: &mut Call<'_>, asked: &Asked, all: Gathering, memory: usize) -> Done {
    let Gathering { elements, by, gets, mut keys, .. } = all;
    let window = told(asked, elements.len());
    let mut sorted = sorted(asked, elements, &keys, by)?;
    let (start, per_row) = (call.client.written(), gets.len().max(1));
    call.reply().array(window.len() * per_row);
    let mut place = 0;
    call.tell_parts(start, memory, move |reply| {
        if place == window.end {
            return keys.found.free_some(PORTION).then_some(PORTION);
        }
        let row = match sorted.next()? {
            Step::Sorted(cost) => return Some(cost),
            Step::Row(row) => row,
        };
        place += 1;
        if place <= window.start {
            return Some(1);
        }
        if gets.is_empty() {
            reply.bulk(&row.element);
        }
        gets.iter().for_each(|get| reply.bulk_or_null(keys.value(*get, row.at, &row.element)));
        Some(per_row)
    })
}

/// The result of a sort that is to be stored, as far as it is made.
struct Storing {
    sorted: Sorted,
    /// Number of rows so far.
    place: usize,
    result: Vec<Bytes>,
    /// Number of reads of keys before.
    reads: u64,
}

/// Makes a portion of the result, or stores the result if it is complete and nothing has changed
/// since the list was read; returns whether it did.
fn store(
    call: &mut Call<'_>,
    asked: &Asked,
    all: &mut Gathering,
    storing: &mut Option<Storing>,
    to: usize,
    memory: usize,
) -> Result<bool, Fail> {
    let Some(Storing { sorted, place, result, .. }) = storing else {
        let (sorted, reads) = (sorted(asked, all.elements.clone(), &all.keys, all.by)?, all.reads());
        *storing = Some(Storing { sorted, place: 0, result: Vec::new(), reads });
        return Ok(false);
    };
    let (window, mut cost) = (told(asked, all.elements.len()), 0);
    call.client.work_bytes = 2 * memory;
    while cost < PORTION && *place < window.end {
        match sorted.next() {
            Some(Step::Sorted(more)) => cost += more,
            Some(Step::Row(row)) => {
                *place += 1;
                cost += all.gets.len().max(1);
                if *place <= window.start {
                    continue;
                }
                if all.gets.is_empty() {
                    result.push(row.element);
                } else {
                    let values = all.gets.iter().map(|get| all.keys.value(*get, row.at, &row.element));
                    result.extend(values.map(Option::unwrap_or_default));
                }
            }
            None => break,
        }
    }
    if *place < window.end {
        return Ok(false);
    }
    super::store_result(call, to, std::mem::take(result)).map(|()| true)
}

/// An element, its weight, and its place in the list.
struct Row {
    weight: Weight,
    element: Bytes,
    at: usize,
}

/// The order of rows.
#[derive(Clone, Copy)]
struct Rule {
    /// Whether the rows stay as they are.
    is_kept: bool,
    /// Whether the weights are values of other keys.
    by: bool,
    descending: bool,
}

impl Rule {
    fn compare(self, a: &Row, b: &Row) -> Ordering {
        if self.is_kept {
            return Ordering::Equal;
        }
        let order = compare((&a.weight, &a.element), (&b.weight, &b.element), self.by);
        if self.descending { order.reverse() } else { order }
    }
}

/// Sorted rows, of which the heap has the first on top.
struct Run {
    first: Row,
    rest: IntoIter<Row>,
    number: usize,
    rule: Rule,
}

impl Ord for Run {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = self.rule.compare(&self.first, &other.first);
        order.then(self.number.cmp(&other.number)).reverse()
    }
}

impl PartialOrd for Run {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Run {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Run {}

/// Rows that are sorted step by step: runs first, which are merged then.
struct Sorted {
    rest: IntoIter<Row>,
    runs: BinaryHeap<Run>,
    count: usize,
    rule: Rule,
}

/// A step of a sort.
enum Step {
    /// A run was sorted, which takes as long as so many parts of a reply.
    Sorted(usize),
    /// The next row.
    Row(Row),
}

impl Sorted {
    fn next(&mut self) -> Option<Step> {
        let mut run: Vec<Row> = self.rest.by_ref().take(RUN).collect();
        let (cost, rule) = (run.len(), self.rule);
        run.sort_by(|a, b| rule.compare(a, b));
        let mut rest = run.into_iter();
        if let Some(first) = rest.next() {
            self.runs.push(Run { first, rest, number: self.count, rule });
            self.count += 1;
            return Some(Step::Sorted(cost));
        }
        let mut top = self.runs.peek_mut()?;
        Some(Step::Row(match top.rest.next() {
            Some(next) => std::mem::replace(&mut top.first, next),
            None => PeekMut::pop(top).first,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sort_by_runs_is_stable_and_has_the_order_of_a_sort_at_once() {
        let mut seed = 1_u64;
        let weights: Vec<u64> = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % 1_000
        })
        .take(3 * RUN + 7)
        .collect();
        for descending in [false, true] {
            let rule = Rule { is_kept: false, by: true, descending };
            let text = |n: &u64| Bytes::from(format!("{n:04}"));
            let row = |(at, n)| Row { weight: Weight::Text(Some(text(n))), element: Bytes::new(), at };
            let rows: Vec<Row> = weights.iter().enumerate().map(row).collect();
            let mut sorted = Sorted { rest: rows.into_iter(), runs: BinaryHeap::new(), count: 0, rule };
            let mut places = Vec::new();
            while let Some(step) = sorted.next() {
                if let Step::Row(row) = step {
                    places.push(row.at);
                }
            }
            let mut expected: Vec<usize> = (0..weights.len()).collect();
            expected.sort_by(|a, b| {
                let order = weights[*a].cmp(&weights[*b]);
                if descending { order.reverse() } else { order }
            });
            assert_eq!(places, expected);
        }
    }
}
