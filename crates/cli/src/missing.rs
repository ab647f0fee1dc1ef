//! Commands that this build was made without.

use crate::failure::{Failure, Kind};

/// The arguments of such a command, which are ignored.
#[cfg(not(feature = "replicate"))]
#[derive(clap::Args)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _arguments: Vec<String>,
}

/// Returns the failure of a command that needs a feature which this build lacks.
pub fn refuse(what: &str, feature: &str) -> Failure {
    let message = format!(
        "this build has no {what}: build the command with `--features {feature}`, or with `--features full`"
    );
    Failure::new(Kind::Usage, message)
}
