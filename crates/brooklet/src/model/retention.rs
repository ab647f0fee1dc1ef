//! Retention: the limits of a log, as users set them.

use std::time::Duration;

use crate::error::Error;

/// The largest limit of entries or bytes. No count can be larger.
pub(super) const MOST: u64 = 1 << 62;
/// The longest age: a thousand years.
pub(super) const LONGEST: Duration = Duration::from_secs(31_557_600 * 1000);

/// The limits of a log. The log keeps its newest entries, within each limit that is set. See
/// [`Store::set_retention`].
///
/// Without a limit, the default, a log keeps all entries.
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
    /// The most bytes of all payloads together, at most 2^62. The log keeps its newest entry,
    /// however large the entry is. A damaged entry counts with its share of the unknown bytes. If
    /// the device fails to read entries that a commit is about to drop, the store refuses the
    /// commit with [`Error::Io`]: try again, or lift the limit.
    pub bytes: Option<u64>,
    /// The time for which the log keeps an entry after its commit, by the wall clock: whole
    /// milliseconds, at least one, at most a thousand years. An entry expires later than this time
    /// by up to 1/64 of the age, or by up to 1 ms. If the age was longer at the entry's commit, the
    /// delay is up to 1/64 of the longer age. Such an entry expires no later than an entry that was
    /// committed when the age was shortened.
    pub age: Option<Duration>,
}

impl Retention {
    /// Creates a retention without a limit.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the number of entries to `most`.
    pub fn entries(mut self, most: u64) -> Self {
        self.entries = Some(most);
        self
    }

    /// Limits the bytes of all payloads together to `most`.
    pub fn bytes(mut self, most: u64) -> Self {
        self.bytes = Some(most);
        self
    }

    /// Limits the age of entries to `longest`.
    pub fn age(mut self, longest: Duration) -> Self {
        self.age = Some(longest);
        self
    }

    /// Returns whether a limit is set.
    pub fn is_limited(&self) -> bool {
        *self != Self::default()
    }

    /// Returns an error if a limit is invalid.
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
                "an age of {age:?}: use whole milliseconds, from 1 ms to 1,000 years, or no limit"
            )),
            None => Ok(()),
        }
    }
}
