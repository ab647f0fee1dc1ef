//! Counts of actual runs: one line of JSON each in the file that `BROOKLET_COUNTS` names, and a
//! page made from these lines.

use std::fs::{OpenOptions, read_to_string, write};
use std::io::Write;
use std::path::Path;

use brooklet_sim::budget::Budget;
use serde_json::Value;

/// The collector of counts.
pub struct Counts {
    budget: Budget,
}

impl Counts {
    /// Creates a collector; counts report the time that has passed in `budget`.
    pub fn new(budget: Budget) -> Self {
        Self { budget }
    }

    /// Returns the seconds so far.
    pub fn seconds(&self) -> f64 {
        self.budget.elapsed().as_secs_f64()
    }

    /// Adds a count, if `BROOKLET_COUNTS` is set.
    pub fn add(&self, mut count: Value) -> Result<(), String> {
        let Some(file) = std::env::var_os("BROOKLET_COUNTS") else { return Ok(()) };
        count["seconds"] = self.seconds().round().into();
        add_line(Path::new(&file), &count)
    }
}

/// Adds one line by one write: threads add counts at the same time, and parts of lines would mix.
fn add_line(file: &Path, count: &Value) -> Result<(), String> {
    let line = format!("{count}\n");
    let opened = OpenOptions::new().create(true).append(true).open(file);
    opened
        .and_then(|mut opened| opened.write_all(line.as_bytes()))
        .map_err(|error| format!("{}: {error}", file.display()))
}

/// The marks between which a page holds the counts.
const MARKS: (&str, &str) = ("<!-- counts: generated -->\n", "<!-- end of counts -->");

/// Shows the counts as tables: one for each kind, in the order of first occurrence. With `into`,
/// writes them into that page.
pub fn report(file: &Path, into: Option<&Path>) -> Result<(), String> {
    let tables = tables(file)?;
    let Some(page) = into else {
        print!("{tables}");
        return Ok(());
    };
    let told = |error: std::io::Error| format!("{}: {error}", page.display());
    let text = read_to_string(page).map_err(told)?;
    let (start, end) = (text.find(MARKS.0), text.find(MARKS.1));
    let (Some(start), Some(end)) = (start.map(|at| at + MARKS.0.len()), end) else {
        return Err(format!("{} has no marks for the counts", page.display()));
    };
    write(page, format!("{}\n{tables}{}", &text[..start], &text[end..])).map_err(told)
}

fn tables(file: &Path) -> Result<String, String> {
    let text = read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let counts = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>();
    let counts = counts.map_err(|error| format!("{}: {error}", file.display()))?;
    let mut kinds: Vec<&str> = Vec::new();
    for count in &counts {
        let kind = count["kind"].as_str().unwrap_or_default();
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let table = |kind: &&str| table(kind, counts.iter().filter(|count| count["kind"] == **kind));
    Ok(kinds.iter().map(table).collect())
}

/// Returns the text of a cell.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.replace('|', "\\|"),
        Value::Number(number) => match number.as_f64() {
            Some(part) if part.fract() != 0.0 => format!("{part:.1}"),
            _ => grouped(&number.to_string()),
        },
        Value::Array(values) => values.iter().map(cell).collect::<Vec<_>>().join(" / "),
        other => other.to_string(),
    }
}

/// Returns a whole number with separated thousands; returns other text unchanged.
fn grouped(number: &str) -> String {
    let whole = number.strip_suffix(".0").unwrap_or(number);
    if whole.len() < 5 || !whole.bytes().all(|byte| byte.is_ascii_digit()) {
        return whole.to_owned();
    }
    let bytes = whole.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group).into_owned());
    bytes.collect::<Vec<_>>().join(",")
}

fn table<'a>(kind: &str, counts: impl Iterator<Item = &'a Value>) -> String {
    let counts: Vec<_> = counts.filter_map(Value::as_object).collect();
    let mut columns: Vec<&str> = Vec::new();
    for key in counts.iter().flat_map(|count| count.keys()) {
        if !["kind", "name", "command", "seconds"].contains(&key.as_str()) && !columns.contains(&key.as_str())
        {
            columns.push(key);
        }
    }
    columns.insert(0, "name");
    columns.extend(["seconds", "command"]);
    let mut out = format!("### {kind}\n\n| {} |\n|{}\n", columns.join(" | "), " --- |".repeat(columns.len()));
    for count in counts {
        let cells = columns.iter().map(|column| {
            let text = count.get(*column).map(cell).unwrap_or_default();
            if *column == "command" && !text.is_empty() { format!("`{text}`") } else { text }
        });
        out += &format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "));
    }
    out + "\n"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_of_several_threads_stay_whole() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("counts");
        let count = json!({ "kind": "bug", "name": "several threads", "numbers": [1, 2, 3] });
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..500).for_each(|_| add_line(&file, &count).unwrap()));
            }
        });
        let text = read_to_string(&file).unwrap();
        let line = count.to_string();
        assert_eq!(text.lines().filter(|found| *found == line).count(), 2000);
        assert_eq!(text.lines().count(), 2000);
        assert!(tables(&file).is_ok());
    }
}
