//! Colours of what people read: of good news, bad news and warnings.

use clap::ColorChoice;
use console::{StyledObject, style};

/// Returns the choice for the parser, so that one rule holds for all texts: the parser's own rule
/// colours its help on a terminal that has no colours if the variable CI is set.
pub fn choice() -> ColorChoice {
    let wanted = console::colors_enabled() || console::colors_enabled_stderr();
    if wanted { ColorChoice::Auto } else { ColorChoice::Never }
}

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
