//! Permissions of files, in octal, as `chmod` takes them.

use std::fmt;
use std::str::FromStr;

#[cfg(feature = "serve")]
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The permissions of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode(pub u32);

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
        let mode = mode.filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
        mode.map(Self).ok_or_else(|| "use an octal number up to 777, such as 660".to_owned())
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:03o}", self.0)
    }
}

#[cfg(feature = "serve")]
impl Serialize for Mode {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(feature = "serve")]
impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal() {
        for (text, mode) in [("600", 0o600), ("0660", 0o660), ("0", 0)] {
            assert_eq!(text.parse(), Ok(Mode(mode)));
        }
        for wrong in ["", "888", "1777", "rw", "+7", "0o600"] {
            assert!(wrong.parse::<Mode>().is_err(), "{wrong}");
        }
        assert_eq!(Mode(0o7).to_string(), "007");
    }
}
