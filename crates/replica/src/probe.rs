//! The probe: does a bucket create objects as the protocol needs it?
//!
//! Many creators try the same new name at once, each with other contents. Exactly one may win, and
//! its contents must be there afterwards. A probe cannot prove that a service is atomic; it finds
//! services that ignore the condition, and most of those that check it before the write instead of
//! with it. Each endpoint of a service needs its own probe: a proxy may drop the condition.

use std::fmt::Display;

use bytes::Bytes;
use futures_util::future::join_all;

use crate::error::Error;
use crate::journal::{Created, Journal, Key};
use crate::place::Drawn;
use crate::shipper::draw;
use crate::standby::block_on_while;

/// Most races without a winner.
const TRIES: u32 = 4;

/// A probe of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Number of names.
    pub names: u32,
    /// Number of creators of each name.
    pub creators: u32,
}

impl Default for Probe {
    /// 4 names, with 32 creators each.
    fn default() -> Self {
        Self { names: 4, creators: 32 }
    }
}

impl Probe {
    /// Probes a bucket, and removes the objects of the probe: `names` × `creators` small writes,
    /// and a read for each name.
    ///
    /// # Errors
    /// [`Error::NotAtomic`], [`Error::NoList`]; [`Error::Bucket`] or [`Error::NoAnswer`] if the
    /// bucket cannot be written, as with credentials that may only read.
    pub async fn run(&self, journal: &(impl Journal + Display)) -> Result<(), Error> {
        expect_none(journal).await?;
        let Drawn(drawn) = draw();
        let (mut names, mut number) = (0, 0);
        while names < self.names {
            let key = Key::Probe(drawn, number);
            let result = self.race(journal, key).await;
            // The probe's result counts more than garbage.
            let removed = journal.remove(key).await;
            names += u32::from(result?);
            removed?;
            number += 1;
            if number > names + TRIES {
                let why =
                    format!("in {TRIES} races, none of the {} creators of an object won", self.creators);
                return Err(Error::NotAtomic { bucket: journal.to_string(), why });
            }
        }
        Ok(())
    }

    /// Probes a bucket like [`run`](Self::run), and waits on the caller's thread, which must not be
    /// a thread of a tokio runtime. Returns `false` if `goes_on` returned `false` meanwhile.
    ///
    /// # Errors
    /// The errors of [`run`](Self::run); [`Error::Thread`].
    pub fn wait(
        &self,
        journal: &(impl Journal + Display),
        goes_on: impl Fn() -> bool,
    ) -> Result<bool, Error> {
        Ok(block_on_while(self.run(journal), &goes_on)?.is_some())
    }

    /// Lets creators race for a name. Returns whether the race had a winner that knows of it.
    async fn race(&self, journal: &(impl Journal + Display), key: Key) -> Result<bool, Error> {
        let refuse = |why: String| Err(Error::NotAtomic { bucket: journal.to_string(), why });
        let contents = |creator: u32| Bytes::from(format!("creator {creator}"));
        let create = |creator| journal.create(key, contents(creator));
        let results = join_all((0..self.creators).map(create)).await;
        let (mut winners, mut unknown) = (Vec::new(), None);
        for (creator, result) in (0..).zip(results) {
            match result {
                Ok(Created::Done) => winners.push(creator),
                Ok(Created::Exists) => {}
                Err(error) if is_unsupported(&error) => {
                    return refuse(format!("it does not create objects conditionally ({error})"));
                }
                Err(error) => unknown = Some(error),
            }
        }
        if winners.len() > 1 {
            let (won, all) = (winners.len(), self.creators);
            return refuse(format!("{won} of {all} creators of one object won at once, and one must"));
        }
        let found = journal.read(key).await?;
        match (&winners[..], found, unknown) {
            ([winner], Some(found), _) if found == contents(*winner) => Ok(true),
            ([_], Some(_), _) => {
                refuse("the contents of a creator that lost replaced those of the winner".into())
            }
            ([_], None, _) => refuse("an object that was created is not there".into()),
            // The winner has heard nothing of it; or its library tried again, and met its own
            // object.
            (_, Some(_), _) | (_, None, None) => Ok(false),
            (_, None, Some(error)) => Err(error),
        }
    }
}

/// Reads an object that does not exist.
///
/// # Errors
/// [`Error::NoList`] if the bucket refuses that for lack of rights, which a log cannot do without.
pub(crate) async fn expect_none<J: Journal>(journal: &J) -> Result<(), Error> {
    use brooklet_archive::object_store::Error as Refusal;
    match journal.read(Key::Probe(draw().0, 0)).await {
        Err(
            error @ Error::Bucket {
                cause: Refusal::PermissionDenied { .. } | Refusal::Unauthenticated { .. },
                ..
            },
        ) => Err(Error::NoList { why: error.to_string() }),
        read => read.map(drop),
    }
}

fn is_unsupported(error: &Error) -> bool {
    use brooklet_archive::object_store::Error as Refusal;
    let Error::Bucket { cause, .. } = error else { return false };
    matches!(cause, Refusal::NotImplemented { .. } | Refusal::NotSupported { .. })
}
