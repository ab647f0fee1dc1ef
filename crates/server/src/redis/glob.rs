//! Patterns of keys, as in Redis: `*`, `?`, `[a-z]`, `[^a]`, and a backslash before a literal
//! character.

/// Returns whether text matches a pattern. Takes time proportional to the product of both lengths,
/// at most.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    matches_within(pattern, text, &mut { usize::MAX }).unwrap_or(false)
}

/// Like [`matches`], but takes its steps from `steps`; returns `None` once no step is left.
pub fn matches_within(pattern: &[u8], text: &[u8], steps: &mut usize) -> Option<bool> {
    let (mut p, mut t) = (0, 0);
    // Place to continue when the text behind the last star does not match: one byte further.
    let mut again: Option<(usize, usize)> = None;
    loop {
        // The comparison with a class looks at all of the class.
        let looks = if pattern.get(p) == Some(&b'[') { pattern.len() - p } else { 1 };
        *steps = steps.checked_sub(looks)?;
        let step = match pattern.get(p) {
            Some(b'*') => {
                again = Some((p + 1, t));
                p += 1;
                continue;
            }
            None if t == text.len() => return Some(true),
            None => None,
            Some(_) => text.get(t).and_then(|&byte| one(&pattern[p..], byte)),
        };
        match (step, again) {
            (Some(len), _) => (p, t) = (p + len, t + 1),
            (None, Some((star, from))) if from < text.len() => {
                again = Some((star, from + 1));
                (p, t) = (star, from + 1);
            }
            _ => return Some(false),
        }
    }
}

/// Returns the length of the pattern's first element, if the byte matches that element.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', literal, ..] => (*literal == byte).then_some(2),
        [b'[', class @ ..] => {
            let (inside, len) = class_has(class, byte);
            inside.then_some(len + 1)
        }
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

/// Returns whether a class contains a byte, and the length of the class.
fn class_has(class: &[u8], byte: u8) -> (bool, usize) {
    let is_not = class.first() == Some(&b'^');
    let mut at = usize::from(is_not);
    let mut has = false;
    loop {
        match class[at.min(class.len())..] {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', literal, ..] => {
                has |= literal == byte;
                at += 2;
            }
            [low, b'-', high, ..] => {
                has |= (low.min(high)..=low.max(high)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                has |= literal == byte;
                at += 1;
            }
        }
    }
    (has != is_not, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_redis() {
        let yes = [
            ("*", ""),
            ("a*c", "abbc"),
            ("a?c", "abc"),
            ("[a-c]x", "bx"),
            ("[^a]x", "bx"),
            ("a\\*", "a*"),
            ("*a*b", "xaxb"),
            ("[\\]]", "]"),
            ("h[ae]llo", "hallo"),
            ("**", "abc"),
            ("[c-a]", "b"),
            ("[a", "a"),
        ];
        let no = [
            ("", "a"),
            ("a", ""),
            ("a?c", "ac"),
            ("[a-c]x", "dx"),
            ("[^a]x", "ax"),
            ("a\\*", "ab"),
            ("*a", "ab"),
        ];
        for (pattern, text) in yes {
            assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in no {
            assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        let (stars, text) = ("a*".repeat(30), "a".repeat(200));
        assert!(!matches(format!("{stars}b").as_bytes(), text.as_bytes()));
    }
}
