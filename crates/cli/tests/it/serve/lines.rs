//! Whether what several clients saw of a list could have been, had their commands been done one
//! after another, each at some moment between its request and its reply: the search of Wing and
//! Gong, which Lowe made remember where it has been.

use std::collections::BTreeSet;

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Push(u32),
    PopLeft,
    PopRight,
    Len,
    /// The first element.
    First,
}

/// A command that a client gave.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    pub asked: Asked,
    /// When, in any unit.
    pub call: u64,
    /// When the reply came; or where none did, when at the latest it was done, if it was at all.
    pub end: u64,
    /// The length, the element (0: there was none); `None`: no reply came.
    pub reply: Option<u32>,
}

/// Does a command; its reply.
fn apply(list: &mut Vec<u32>, asked: Asked) -> u32 {
    match asked {
        Asked::Push(value) => {
            list.push(value);
            list.len() as u32
        }
        Asked::PopLeft if list.is_empty() => 0,
        Asked::PopLeft => list.remove(0),
        Asked::PopRight => list.pop().unwrap_or(0),
        Asked::Len => list.len() as u32,
        Asked::First => list.first().copied().unwrap_or(0),
    }
}

/// Whether there is such an order.
pub fn has_order(history: &[Given]) -> bool {
    assert!(history.len() <= 128, "a bit for each");
    search(history, 0, 0, &[], &mut BTreeSet::new())
}

/// Goes on where those of `done` are done, the last of which was asked for at `latest`.
fn search(
    all: &[Given],
    done: u128,
    latest: u64,
    list: &[u32],
    seen: &mut BTreeSet<(u128, Vec<u32>)>,
) -> bool {
    let left = || all.iter().enumerate().filter(move |(at, _)| done >> at & 1 == 0);
    // Whatever has a reply must be done before that came.
    let Some(first_end) = left().filter(|(_, given)| given.reply.is_some()).map(|(_, given)| given.end).min()
    else {
        return true;
    };
    if !seen.insert((done, list.to_vec())) {
        return false;
    }
    left().any(|(at, given)| {
        if given.call > first_end || latest > given.end {
            return false;
        }
        let mut list = list.to_vec();
        let reply = apply(&mut list, given.asked);
        given.reply.is_none_or(|told| told == reply)
            && search(all, done | 1 << at, latest.max(given.call), &list, seen)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(asked: Asked, call: u64, end: u64, reply: impl Into<Option<u32>>) -> Given {
        Given { asked, call, end, reply: reply.into() }
    }

    #[test]
    fn what_could_be_is_taken() {
        use Asked::{First, Len, PopLeft, PopRight, Push};
        // At the same time, in either order.
        assert!(has_order(&[given(Push(1), 0, 10, 2), given(Push(2), 5, 9, 1), given(First, 11, 12, 2)]));
        // One that nobody heard of was done, or was not.
        assert!(has_order(&[given(Push(1), 0, 5, None), given(Len, 6, 7, 0)]));
        assert!(has_order(&[given(Push(1), 0, 5, None), given(Len, 4, 7, 1), given(PopRight, 8, 9, 1)]));
        assert!(has_order(&[
            given(Push(1), 0, 1, 1),
            given(PopLeft, 2, 9, None),
            given(Len, 3, 4, 1),
            given(Len, 5, 6, 0)
        ]));
        assert!(has_order(&[]));
    }

    #[test]
    fn what_cannot_be_is_not() {
        use Asked::{First, Len, PopLeft, Push};
        // Read before it was there, or after it was gone.
        assert!(!has_order(&[given(Len, 0, 1, 1), given(Push(1), 2, 3, 1)]));
        assert!(!has_order(&[given(Push(1), 0, 1, 1), given(PopLeft, 2, 3, 1), given(First, 4, 5, 1)]));
        // Given out twice, lost, in the wrong order.
        assert!(!has_order(&[given(Push(1), 0, 1, 1), given(PopLeft, 2, 9, 1), given(PopLeft, 3, 8, 1)]));
        assert!(!has_order(&[given(Push(1), 0, 1, 1), given(Len, 2, 3, 0)]));
        assert!(!has_order(&[given(Push(1), 0, 1, 1), given(Push(2), 2, 3, 2), given(PopLeft, 4, 5, 2)]));
        // One that nobody heard of is done late: it was seen not to be, when it could be no more.
        assert!(!has_order(&[given(Push(1), 0, 5, None), given(Len, 6, 7, 0), given(Len, 8, 9, 1)]));
        // Seen, and then not.
        assert!(!has_order(&[given(Push(1), 0, 9, 1), given(Len, 1, 2, 1), given(Len, 3, 4, 0)]));
    }
}
