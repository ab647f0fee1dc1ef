//! Retention: what a log keeps, as its users say it.

use std::time::Duration;

use crate::error::Error;

/// The largest limit of entries or bytes; nothing can have counted more.
const MOST: u64 = 1 << 62;
/// The longest age: a thousand years.
const LONGEST: Duration = Duration::from_secs(31_557_600 * 1000);

/// What a log keeps: its newest entries, within each of the limits that are set. See
/// [`Store::set_retention`].
///
/// Without a limit, the default, a log keeps everything.
///
/// ```
/// # fn main() -> Result<(), brooklet::Error> {
/// # let store = brooklet::Store::in_memory(1)?;
/// use brooklet::Retention;
/// use std::time::Duration;
///
/// let week = Duration::from_secs(7 * 24 * 3600);
/// store.set_retention("feed", Retention::new().entries(3).bytes(1 << 20).age(week))?.wait()?;
/// store.append_many("feed", ["a", "b", "c", "d"])?.wait()?;
/// assert_eq!(store.bounds("feed")?.first, 1); // "a" went as "d" came
/// assert_eq!(store.retention("feed")?.entries, Some(3));
///
/// store.set_retention("feed", Retention::new())?.wait()?; // from now on everything is kept
/// assert_eq!(store.bounds("feed")?.first, 1); // but what is gone stays gone
/// # Ok(())
/// # }
/// ```
///
/// [`Store::set_retention`]: crate::Store::set_retention
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retention {
    /// The most entries; 0 keeps none. At most 2^62.
    pub entries: Option<u64>,
    /// The most bytes of all payloads together. The newest entry stays, however large it is. At
    /// most 2^62. Damaged entries count as their share of all that is not known. Where the device
    /// fails to read entries that are about to go, the commit is refused with [`Error::Io`]: try
    /// again, or lift the limit.
    pub bytes: Option<u64>,
    /// How long entries are kept from their commit on, by the wall clock: in whole milliseconds, at
    /// least one, at most a thousand years. An entry goes a little later than that: by up to a 64th
    /// of the age, or a millisecond; where the age was longer as it came, by a 64th of that, but
    /// not later than if it came as the age was made shorter.
    pub age: Option<Duration>,
}

impl Retention {
    /// No limit.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the number of entries.
    pub fn entries(mut self, most: u64) -> Self {
        self.entries = Some(most);
        self
    }

    /// Limits the bytes of all payloads together.
    pub fn bytes(mut self, most: u64) -> Self {
        self.bytes = Some(most);
        self
    }

    /// Limits the age of entries.
    pub fn age(mut self, longest: Duration) -> Self {
        self.age = Some(longest);
        self
    }

    /// Whether there is a limit.
    pub fn is_limited(&self) -> bool {
        *self != Self::default()
    }

    /// Refuses limits that make no sense.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let wrong = |what: String| Err(Error::InvalidRetention(what));
        if let Some(n) = self.entries.filter(|&n| n > MOST) {
            return wrong(format!("a limit of {n} entries: use at most 2^62, or none"));
        }
        if let Some(n) = self.bytes.filter(|&n| n > MOST) {
            return wrong(format!("a limit of {n} bytes: use at most 2^62, or none"));
        }
        let lawful = |age: &Duration| {
            age.subsec_nanos().is_multiple_of(1_000_000) && !age.is_zero() && *age <= LONGEST
        };
        match self.age.filter(|age| !lawful(age)) {
            Some(age) => wrong(format!(
                "an age of {age:?}: use whole milliseconds, from one to a thousand years, or no limit"
            )),
            None => Ok(()),
        }
    }
}
