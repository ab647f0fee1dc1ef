//! Marks, medians, and measuring in turns.

use std::fmt;

use crate::failure::Failure;

/// What a figure should reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mark {
    /// The ratio of figure to limit should be at most this.
    AtMost(f64),
    /// Or at least this.
    AtLeast(f64),
    /// The figure itself should reach this.
    Reach(f64),
    /// Or stay within this.
    Within(f64),
}

impl Mark {
    /// Whether a figure and its ratio to the limit reach it.
    pub fn holds(self, figure: f64, ratio: f64) -> bool {
        match self {
            Mark::AtMost(most) => ratio <= most,
            Mark::AtLeast(least) => ratio >= least,
            Mark::Reach(least) => figure >= least,
            Mark::Within(most) => figure <= most,
        }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mark::AtMost(most) => write!(f, "ratio at most {most}"),
            Mark::AtLeast(least) => write!(f, "ratio at least {least}"),
            Mark::Reach(figure) => write!(f, "at least {figure}"),
            Mark::Within(figure) => write!(f, "at most {figure}"),
        }
    }
}

/// The one in the middle, of some.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A figure by three digits or more.
pub fn plain(value: f64) -> String {
    let digits = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

/// Runs a measurement of figure and limit several times, in turn, and gives the medians.
pub fn paired(
    rounds: usize,
    mut round: impl FnMut(usize) -> Result<(f64, f64), Failure>,
) -> Result<(f64, f64), Failure> {
    let (mut figures, mut limits) = (Vec::new(), Vec::new());
    for i in 0..rounds {
        let (figure, limit) = round(i)?;
        figures.push(figure);
        limits.push(limit);
    }
    Ok((median(figures), median(limits)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_hold_up_to_their_bounds() {
        for (mark, figure, ratio, holds) in [
            (Mark::AtMost(1.1), 9.0, 1.1, true),
            (Mark::AtMost(1.1), 0.0, 1.2, false),
            (Mark::AtLeast(0.9), 0.0, 0.9, true),
            (Mark::AtLeast(0.9), 9.0, 0.8, false),
            (Mark::Reach(600.0), 600.0, 0.0, true),
            (Mark::Reach(600.0), 599.0, 9e9, false),
            (Mark::Within(64.0), 64.0, 9e9, true),
            (Mark::Within(64.0), 65.0, 0.0, false),
        ] {
            assert_eq!(mark.holds(figure, ratio), holds, "{mark}: {figure}, {ratio}");
        }
    }

    #[test]
    fn rounds_are_summed_up_by_their_medians() {
        let figures = paired(3, |i| Ok(([5.0, 1.0, 900.0][i], [1.0, 2.0, 3.0][i]))).ok();
        assert_eq!(figures, Some((5.0, 2.0)));
    }
}
