//! Histories: changes of many logs at once, as a version control system tells them.
//!
//! The format: lines `log TAB commit TAB JSON string`, gzipped or not. Consecutive lines of one
//! commit form one atomic commit; each line is an entry of its log.

use std::collections::BTreeMap;
use std::path::Path;

use crate::failure::Failure;
use crate::replay::trace::{MOST, read, too_many};

/// A history, ready to be committed.
#[derive(Debug, Default)]
pub struct History {
    /// The logs, in the order of their first entries.
    pub logs: Vec<Log>,
    /// The commits: each adds the next entry to each of these logs, which it names by their
    /// indexes.
    pub commits: Vec<Vec<usize>>,
}

/// A log of a history.
#[derive(Debug)]
pub struct Log {
    /// Its key.
    pub key: String,
    /// Its entries.
    pub entries: Vec<Box<[u8]>>,
}

impl History {
    /// Reads a history file; of its commits at most `limit`.
    pub fn load(path: &Path, limit: Option<usize>) -> Result<Self, Failure> {
        let bytes = read(path)?;
        let text = std::str::from_utf8(&bytes)
            .map_err(|e| Failure::malformed(path, format_args!("not a history: {e}")))?;
        Self::parse(text, limit).map_err(|why| Failure::malformed(path, why))
    }

    /// Reads the text of a history.
    pub fn parse(text: &str, limit: Option<usize>) -> Result<Self, String> {
        Self::parse_up_to(MOST, text, limit)
    }

    /// Reads a history of at most `most` entries.
    fn parse_up_to(most: usize, text: &str, limit: Option<usize>) -> Result<Self, String> {
        let mut history = Self::default();
        let mut known = BTreeMap::new();
        let mut last = None;
        for (i, line) in text.lines().enumerate() {
            if i == most {
                return Err(format!("line {}: {}", i + 1, too_many(most)));
            }
            let mut fields = line.splitn(3, '\t');
            let (Some(log), Some(commit), Some(change)) = (fields.next(), fields.next(), fields.next())
            else {
                return Err(format!("line {}: not `log TAB commit TAB JSON string`", i + 1));
            };
            let change: String = serde_json::from_str(change)
                .map_err(|e| format!("line {}: not a JSON string: {e}", i + 1))?;
            if last != Some(commit) {
                if limit == Some(history.commits.len()) {
                    break;
                }
                history.commits.push(Vec::new());
                last = Some(commit);
            }
            let log = *known.entry(log).or_insert_with(|| {
                history.logs.push(Log { key: log.to_owned(), entries: Vec::new() });
                history.logs.len() - 1
            });
            history.logs[log].entries.push(change.into_bytes().into());
            history.commits.last_mut().expect("one was begun").push(log);
        }
        Ok(history)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a\t1\t\"x\\ny\"\nb\t1\t\"z\"\na\t2\t\"D\\n\"\n";

    #[test]
    fn consecutive_lines_of_a_commit_are_one() {
        let history = History::parse(TEXT, None).unwrap();
        assert_eq!(history.commits, [vec![0, 1], vec![0]]);
        let log = |i: usize| (history.logs[i].key.as_str(), history.logs[i].entries.concat());
        assert_eq!(log(0), ("a", b"x\nyD\n".to_vec()));
        assert_eq!(log(1), ("b", b"z".to_vec()));
        assert_eq!(History::parse(TEXT, Some(1)).unwrap().commits.len(), 1);
    }

    #[test]
    fn more_entries_than_are_accepted_are_not_held() {
        let parse = |entries: usize| History::parse_up_to(3, &"a\t1\t\"\"\n".repeat(entries), None);
        assert_eq!(parse(3).unwrap().commits.len(), 1);
        let wrong = parse(4).unwrap_err();
        assert!(wrong.starts_with("line 4: it has more than 3 entries"), "{wrong}");
    }

    #[test]
    fn a_malformed_line_is_named() {
        assert!(History::parse("a\t1\t\"x\"\nb\t1\n", None).unwrap_err().starts_with("line 2: not `log"));
        assert!(History::parse("a\t1\tx\n", None).unwrap_err().starts_with("line 1: not a JSON string"));
    }
}
