//! Colours of what people read: of good news, bad news and warnings.

use console::{StyledObject, style};

/// Shows good news in green, where the standard output is a terminal and NO_COLOR is not set.
pub fn good<D>(text: D) -> StyledObject<D> {
    style(text).green()
}

/// Shows bad news in red, in the same places.
pub fn bad<D>(text: D) -> StyledObject<D> {
    style(text).red().bold()
}

/// Shows a warning in yellow, in the same places.
pub fn warning<D>(text: D) -> StyledObject<D> {
    style(text).yellow()
}
