//! What was found so far, in a file: a line of JSON for each number of logs, with the settings it
//! was found under. A line that was cut off is none.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::report::Point;
use crate::failure::{Failure, Kind};

/// What must be alike for points to stand in one table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub rate: u32,
    pub seconds: f64,
    pub ring: u64,
}

/// Points, and the file they are kept in, if any.
pub struct Points {
    settings: Settings,
    found: Vec<Point>,
    file: Option<(File, PathBuf)>,
}

/// How each line begins.
const BEGIN: &str = "{\"settings\":";

#[derive(Serialize, Deserialize)]
struct Line<P> {
    settings: Settings,
    point: P,
}

impl Points {
    /// Takes up what the file holds.
    ///
    /// # Errors
    /// It holds something else, or points of other settings.
    pub fn open(path: Option<&Path>, settings: Settings) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self { settings, found: Vec::new(), file: None }) };
        let doing = || Failure::io(format!("opening {}", path.display()));
        let opened = OpenOptions::new().read(true).append(true).create(true).open(path);
        let mut file = opened.map_err(doing())?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(doing())?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let mut found: Vec<Point> = Vec::new();
        for line in text[..whole].lines() {
            let read = serde_json::from_str::<Line<Point>>(line);
            let line =
                read.map_err(|error| Failure::malformed(path, format!("no point of this bench: {error}")))?;
            if line.settings != settings {
                let message =
                    format!("{} holds points of {:?}, not of {settings:?}", path.display(), line.settings);
                return Err(Failure::new(Kind::Usage, message));
            }
            found.push(line.point);
        }
        let cut = &text[whole..];
        if !cut.starts_with(BEGIN) && !BEGIN.starts_with(cut) {
            return Err(Failure::malformed(path, "its last line is no point of this bench"));
        }
        file.set_len(whole as u64).map_err(doing())?;
        Ok(Self { settings, found, file: Some((file, path.to_owned())) })
    }

    /// Whether this number of logs was measured.
    pub fn has(&self, logs: u64) -> bool {
        self.found.iter().any(|point| point.logs == logs)
    }

    /// Adds what was found.
    pub fn add(&mut self, point: Point) -> Result<(), Failure> {
        if let Some((file, path)) = &mut self.file {
            let line = serde_json::to_string(&Line { settings: self.settings, point: &point });
            let line = line.expect("a point is plain data") + "\n";
            let written = file.write_all(line.as_bytes()).and_then(|()| file.sync_data());
            written.map_err(Failure::io(format!("writing {}", path.display())))?;
        }
        self.found.push(point);
        Ok(())
    }

    /// All of them, fewest logs first.
    pub fn all(mut self) -> Vec<Point> {
        self.found.sort_by_key(|point| point.logs);
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::made_up;
    use super::*;

    const SETTINGS: Settings = Settings { rate: 16_000, seconds: 20.0, ring: 1 << 28 };

    /// The end of a line that was cut is cut off. It must not be all that another file has.
    #[test]
    fn another_file_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notes");
        for text in ["a note without an end of a line", "{\"set\": 1}"] {
            std::fs::write(&path, text).unwrap();
            let refused = Points::open(Some(&path), SETTINGS).err().unwrap();
            assert_eq!((refused.kind, std::fs::read_to_string(&path).unwrap()), (Kind::Usage, text.into()));
        }
    }

    #[test]
    fn what_was_found_is_there_again_but_for_a_line_that_was_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("points");
        let mut points = Points::open(Some(&path), SETTINGS).unwrap();
        points.add(made_up(1000, 1.0)).unwrap();
        points.add(made_up(10, 1.3)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{text}{}", &text[..50])).unwrap();
        let mut points = Points::open(Some(&path), SETTINGS).unwrap();
        assert!(points.has(10) && points.has(1000) && !points.has(100));
        points.add(made_up(100, 1.0)).unwrap();
        let all = Points::open(Some(&path), SETTINGS).unwrap().all();
        assert_eq!(all.iter().map(|point| point.logs).collect::<Vec<_>>(), [10, 100, 1000]);
        assert_eq!(all[0].full_at_work.per_second, made_up(10, 1.3).full_at_work.per_second);
    }

    #[test]
    fn other_settings_and_other_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("points");
        Points::open(Some(&path), SETTINGS).unwrap().add(made_up(10, 1.0)).unwrap();
        let refused = |settings| Points::open(Some(&path), settings).err().map(|failure| failure.message);
        let told = refused(Settings { rate: 1, ..SETTINGS }).unwrap();
        assert!(told.contains("rate: 16000") && told.contains("not of Settings { rate: 1,"), "{told}");
        assert_eq!(refused(SETTINGS), None);
        std::fs::write(&path, "something\n").unwrap();
        assert!(refused(SETTINGS).unwrap().contains("no point of this bench"));
        assert_eq!(std::fs::read(&path).unwrap(), b"something\n");
    }
}
