//! Curves as an SVG picture: panels in rows, both axes logarithmic.

use std::fmt::{self, Display};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;

use crate::failure::{Failure, Kind};

/// A panel: titles with units, and lines.
#[derive(Debug)]
pub struct Panel {
    /// What the panel shows.
    pub title: String,
    /// Title of the horizontal axis.
    pub x_title: &'static str,
    /// The horizontal axis has a mark at each power of this.
    pub x_base: f64,
    /// Title of the vertical axis.
    pub y_title: &'static str,
    /// How a value of the horizontal axis is written.
    pub x_label: fn(f64) -> String,
    /// The lines, in the order of the legend.
    pub lines: Vec<Line>,
}

/// A line through points, each of them positive.
#[derive(Debug)]
pub struct Line {
    /// Its name in the legend; lines of an empty name are not listed there.
    pub name: String,
    /// A colour of SVG.
    pub color: &'static str,
    /// Lengths of dashes and gaps, as in SVG; empty for a whole line.
    pub dash: &'static str,
    /// Horizontal and vertical values.
    pub points: Vec<(f64, f64)>,
}

/// A picture of panels.
#[derive(Debug)]
pub struct Picture {
    /// Stands above all.
    pub title: String,
    /// Stands below the title.
    pub subtitle: String,
    /// Panels of a row.
    pub columns: usize,
    /// From left to right, row by row.
    pub panels: Vec<Panel>,
}

/// Sizes in pixels: a panel's field, what surrounds it, and a line of text.
const FIELD: (f64, f64) = (470.0, 380.0);
const LEFT: f64 = 80.0;
const HEADER: f64 = 62.0;
const ABOVE_FIELD: f64 = 34.0;
const RIGHT: f64 = 24.0;
const ROW: f64 = 18.0;
const BELOW_FIELD: f64 = 64.0;
const LEGEND_COLUMNS: usize = 2;

impl Display for Picture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let legend = self.panels.iter().map(|panel| panel.legend().count().div_ceil(LEGEND_COLUMNS)).max();
        let columns = self.columns.min(self.panels.len()).max(1);
        let cell_width = LEFT + FIELD.0 + RIGHT;
        let cell_height = ABOVE_FIELD + FIELD.1 + BELOW_FIELD + ROW * (legend.unwrap_or(0) + 1) as f64;
        let width = columns as f64 * cell_width;
        let height = HEADER + self.panels.len().div_ceil(columns).max(1) as f64 * cell_height;
        writeln!(
            f,
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="sans-serif" font-size="13" fill="black">"#
        )?;
        writeln!(f, r#"<rect width="100%" height="100%" fill="white"/>"#)?;
        text(f, (LEFT, 30.0), r#"font-size="18" font-weight="bold""#, &self.title)?;
        text(f, (LEFT, 52.0), r##"fill="#555""##, &self.subtitle)?;
        for (i, panel) in self.panels.iter().enumerate() {
            let left = LEFT + (i % columns) as f64 * cell_width;
            let top = HEADER + ABOVE_FIELD + (i / columns) as f64 * cell_height;
            writeln!(f, r#"<g transform="translate({left} {top})">"#)?;
            panel.draw(f)?;
            writeln!(f, "</g>")?;
        }
        writeln!(f, "</svg>")
    }
}

impl Panel {
    fn legend(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(|line| !line.name.is_empty())
    }

    fn draw(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = |of: fn(&(f64, f64)) -> f64| self.lines.iter().flat_map(|line| &line.points).map(of);
        let (x, y) = (Axis::powers(values(|p| p.0), self.x_base, &[1.0]), Axis::decades(values(|p| p.1)));
        text(f, (0.0, -14.0), r#"font-weight="bold""#, &self.title)?;
        for &tick in &x.ticks {
            let at = x.place(tick) * FIELD.0;
            grid(f, (at, 0.0), (at, FIELD.1))?;
            text(f, (at, FIELD.1 + 18.0), r#"text-anchor="middle""#, &(self.x_label)(tick))?;
        }
        for &tick in &y.ticks {
            let at = (1.0 - y.place(tick)) * FIELD.1;
            grid(f, (0.0, at), (FIELD.0, at))?;
            text(f, (-8.0, at + 4.0), r#"text-anchor="end""#, &number(tick))?;
        }
        text(f, (FIELD.0 / 2.0, FIELD.1 + 42.0), r#"text-anchor="middle""#, self.x_title)?;
        let (middle, turned) = (-FIELD.1 / 2.0, r#"text-anchor="middle" transform="rotate(-90)""#);
        text(f, (middle, -58.0), turned, self.y_title)?;
        writeln!(f, r##"<rect width="{}" height="{}" fill="none" stroke="#888"/>"##, FIELD.0, FIELD.1)?;
        let place = |&(a, b): &(f64, f64)| (x.place(a) * FIELD.0, (1.0 - y.place(b)) * FIELD.1);
        for line in &self.lines {
            line.draw(f, &line.points.iter().map(place).collect::<Vec<_>>(), true)?;
        }
        for (i, line) in self.legend().enumerate() {
            let left = (i % LEGEND_COLUMNS) as f64 * FIELD.0 / LEGEND_COLUMNS as f64;
            let top = FIELD.1 + BELOW_FIELD + ROW * (i / LEGEND_COLUMNS) as f64;
            line.draw(f, &[(left, top), (left + 34.0, top)], false)?;
            text(f, (left + 42.0, top + 4.0), "", &line.name)?;
        }
        Ok(())
    }
}

impl Line {
    fn draw(&self, f: &mut fmt::Formatter<'_>, points: &[(f64, f64)], dots: bool) -> fmt::Result {
        let path = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ");
        let (color, dash) = (self.color, self.dash);
        writeln!(
            f,
            r#"<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2" stroke-dasharray="{dash}"/>"#
        )?;
        if dots {
            for (x, y) in points {
                writeln!(f, r#"<circle cx="{x:.1}" cy="{y:.1}" r="2.5" fill="{color}"/>"#)?;
            }
        }
        Ok(())
    }
}

/// A logarithmic axis.
struct Axis {
    ticks: Vec<f64>,
}

impl Axis {
    /// From a power of 10 to one that holds the values, with ticks at 2 and 5 between them where
    /// that is not many.
    fn decades(values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.collect();
        let coarse = Self::powers(values.iter().copied(), 10.0, &[1.0]);
        if coarse.ticks.len() > 5 { coarse } else { Self::powers(values.into_iter(), 10.0, &[1.0, 2.0, 5.0]) }
    }

    /// From a power of `base` to one that holds the values, with ticks at `steps` times each power.
    fn powers(values: impl Iterator<Item = f64>, base: f64, steps: &[f64]) -> Self {
        let (mut least, mut most) = (f64::MAX, 0.0f64);
        for value in values.filter(|v| *v > 0.0) {
            (least, most) = (least.min(value), most.max(value));
        }
        if most == 0.0 {
            (least, most) = (1.0, base);
        }
        // The logarithm of a power is not always whole; a hair's breadth must not cost a whole
        // step.
        let first = (least.ln() / base.ln() + 1e-9).floor() as i32;
        let last = ((most.ln() / base.ln() - 1e-9).ceil() as i32).max(first + 1);
        let below = (first..last).flat_map(|power| steps.iter().map(move |step| step * base.powi(power)));
        Self { ticks: below.chain([base.powi(last)]).collect() }
    }

    /// Where a value lies, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let (first, last) = (self.ticks[0], self.ticks[self.ticks.len() - 1]);
        (value.max(first) / first).ln() / (last / first).ln()
    }
}

/// A picture takes no other file's place; that is better known before the measurements than after.
pub fn free_to_write(file: &Path) -> Result<(), Failure> {
    if file.symlink_metadata().is_ok() {
        return Err(Failure::new(
            Kind::Usage,
            format!("{} exists; name a new file for the plot", file.display()),
        ));
    }
    Ok(())
}

/// Writes a picture into a new file.
pub fn write_new(file: &Path, text: &str) -> Result<(), Failure> {
    let written = OpenOptions::new().write(true).create_new(true).open(file);
    let written: io::Result<()> = written.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(Failure::io(format!("writing {}", file.display())))
}

fn grid(f: &mut fmt::Formatter<'_>, from: (f64, f64), to: (f64, f64)) -> fmt::Result {
    writeln!(
        f,
        r##"<line x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}" stroke="#ddd"/>"##,
        from.0, from.1, to.0, to.1
    )
}

fn text(f: &mut fmt::Formatter<'_>, at: (f64, f64), how: &str, what: &str) -> fmt::Result {
    let what = what.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    writeln!(f, r#"<text x="{:.1}" y="{:.1}" {how}>{what}</text>"#, at.0, at.1)
}

/// A number as an axis shows it: 0.01 to 1,000,000.
pub fn number(value: f64) -> String {
    if value < 1.0 {
        return format!("{}", (value * 1000.0).round() / 1000.0);
    }
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(points: &[(f64, f64)]) -> Line {
        Line { name: "a < b".into(), color: "red", dash: "", points: points.to_vec() }
    }

    fn picture(lines: Vec<Line>) -> String {
        let title = "Latency & more".to_owned();
        let panel =
            Panel { title, x_title: "bytes", x_base: 4.0, y_title: "µs", x_label: |x| x.to_string(), lines };
        Picture { title: "A".into(), subtitle: "B".into(), columns: 2, panels: vec![panel] }.to_string()
    }

    /// Every element is closed, and nothing but markup is between angle brackets.
    fn assert_well_formed(svg: &str) {
        let mut open = Vec::new();
        for tag in svg.split('<').skip(1).map(|rest| rest.split_once('>').expect("a tag ends").0) {
            assert!(tag.matches('"').count() % 2 == 0, "{tag}");
            let name = tag.trim_start_matches('/').split(' ').next().unwrap();
            match (tag.starts_with('/'), tag.ends_with('/')) {
                (true, _) => assert_eq!(open.pop(), Some(name)),
                (_, true) => {}
                _ => open.push(name),
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn points_lie_in_the_field_and_text_is_escaped() {
        let svg = picture(vec![line(&[(1024.0, 0.5), (4096.0, 37.0), (4194304.0, 9000.0)]), line(&[])]);
        assert_well_formed(&svg);
        assert!(svg.contains("a &lt; b") && svg.contains("Latency &amp; more"));
        let of = |name: &str| -> Vec<f64> {
            let parts = svg.split(name).skip(1);
            parts.map(|rest| rest[..rest.find('"').unwrap()].parse().unwrap()).collect()
        };
        let (x, y) = (of("cx=\""), of("cy=\""));
        assert_eq!((x.len(), x[0], x[2]), (3, 0.0, FIELD.0));
        assert!(y.iter().all(|y| (0.0..=FIELD.1).contains(y)) && y[0] > y[1] && y[1] > y[2], "{y:?}");
    }

    #[test]
    fn a_picture_of_nothing_is_a_picture() {
        assert_well_formed(&picture(Vec::new()));
        assert_well_formed(&picture(vec![line(&[(4096.0, 10.0)])]));
    }

    #[test]
    fn axes_have_round_ends() {
        let ticks = |values: &[f64]| Axis::decades(values.iter().copied()).ticks;
        assert_eq!(ticks(&[30.0, 70.0]), [10.0, 20.0, 50.0, 100.0]);
        assert_eq!(ticks(&[1000.0]), [1000.0, 2000.0, 5000.0, 10000.0]);
        assert_eq!(ticks(&[3.0, 200_000.0]), [1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6]);
        assert_eq!(Axis::powers([1024.0, 4096.0].into_iter(), 4.0, &[1.0]).ticks, [1024.0, 4096.0]);
        assert_eq!([number(0.01), number(500.0), number(1e6)], ["0.01", "500", "1,000,000"]);
    }

    #[test]
    fn a_plot_takes_nobodys_place() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("plot.svg");
        free_to_write(&file).unwrap();
        write_new(&file, "first").unwrap();
        assert_eq!(free_to_write(&file).unwrap_err().kind, Kind::Usage);
        assert!(write_new(&file, "second").is_err());
        assert_eq!(std::fs::read(&file).unwrap(), b"first");
    }
}
