//! The upload of a backup: one byte string, cut into objects.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;

use brooklet::Part;
use bytes::{Bytes, BytesMut};
use twox_hash::XxHash3_64;

use crate::bucket::Bucket;
use crate::error::Error;
use crate::record::{Object, Place, TAIL, Upload};
use crate::request::Pending;

/// Size of an object in bytes: a gigabyte takes 64 of them, and a retry takes little time.
pub(crate) const OBJECT: usize = 16 << 20;

/// Number of objects that are uploaded at a time.
const AT_ONCE: usize = 4;

/// Number of bytes of a part that are read at once.
const READ: usize = 1 << 20;

/// A callback with the number of bytes of a part that were uploaded; its error ends the upload.
pub(crate) type Watch<'a> = &'a mut dyn FnMut(u64) -> Result<(), Error>;

/// The result for one part.
pub(crate) struct Taken {
    /// `None` if the archive has the part already, or the part could not be read.
    pub place: Option<Place>,
    /// The damage of the part.
    pub damage: Option<brooklet::Error>,
}

/// Reads all of a part; returns its damage, if any.
pub(crate) fn check(part: &Part, progress: Watch<'_>) -> Result<Option<brooklet::Error>, Error> {
    let mut told = Ok(());
    let mut verify = || {
        part.verify(|_| {
            told = progress(0);
            if told.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
    };
    let checked = match verify() {
        // A device that fails once may succeed on a retry; after a second failure the part counts
        // as damaged.
        Err(brooklet::Error::Io { .. }) if !part.is_offloaded() => verify(),
        checked => checked,
    };
    told?;
    match checked {
        Ok(()) => Ok(None),
        Err(error @ brooklet::Error::Damaged { .. }) => Ok(Some(error)),
        Err(error @ brooklet::Error::Io { .. }) if !part.is_offloaded() => Ok(Some(error)),
        Err(error) => Err(error.into()),
    }
}

/// An upload in progress.
pub(crate) struct Uploading {
    bucket: Bucket,
    upload: Upload,
    object: BytesMut,
    objects: BTreeMap<(Upload, u32), Object>,
    under_way: VecDeque<Pending<()>>,
}

impl Uploading {
    pub fn new(bucket: &Bucket, upload: Upload) -> Self {
        let (bucket, under_way) = (bucket.clone(), VecDeque::new());
        Self { bucket, upload, object: BytesMut::new(), objects: BTreeMap::new(), under_way }
    }

    /// Checks a part and uploads it. Does not upload a damaged part if `is_there`: the archive then
    /// has a damaged copy already. Reports the number of uploaded bytes to `progress`.
    pub fn part(&mut self, part: &Part, is_there: bool, progress: Watch<'_>) -> Result<Taken, Error> {
        let damage = check(part, progress)?;
        let place = match &damage {
            None => Some(self.send_part(part, progress)?),
            // The record marks the part as damaged, so that no reader trusts it.
            Some(brooklet::Error::Damaged { .. }) if !is_there => match self.send_part(part, progress) {
                Err(Error::Store(brooklet::Error::Damaged { .. } | brooklet::Error::Io { .. })) => None,
                place => Some(place?),
            },
            Some(_) => None,
        };
        Ok(Taken { place, damage })
    }

    fn send_part(&mut self, part: &Part, progress: Watch<'_>) -> Result<Place, Error> {
        let start = (self.objects.len() * OBJECT + self.object.len()) as u64;
        let len = part.name().len;
        let mut at = 0;
        while at < len {
            let data = part.read(at, READ.min((len - at) as usize))?;
            self.write(&data)?;
            at += data.len() as u64;
            progress(at)?;
        }
        let tail = part.read(len - TAIL as u64, TAIL)?;
        Ok(Place { upload: self.upload, start, tail: tail[..].try_into().expect("as long as asked for") })
    }

    fn write(&mut self, mut data: &[u8]) -> Result<(), Error> {
        while !data.is_empty() {
            if self.object.capacity() == 0 {
                self.object.reserve(OBJECT);
            }
            let (now, later) = data.split_at(data.len().min(OBJECT - self.object.len()));
            self.object.extend_from_slice(now);
            data = later;
            if self.object.len() == OBJECT {
                self.send()?;
            }
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), Error> {
        if self.under_way.len() == AT_ONCE {
            self.under_way.pop_front().expect("there are some").wait()?;
        }
        let data: Bytes = std::mem::take(&mut self.object).freeze();
        let place = u32::try_from(self.objects.len()).expect("an upload has fewer objects");
        let object = Object { len: data.len() as u32, sum: XxHash3_64::oneshot(&data) };
        self.objects.insert((self.upload, place), object);
        self.under_way.push_back(self.bucket.put(&self.upload.object(place), data));
        Ok(())
    }

    /// Waits until the upload is complete; returns its objects.
    pub fn finish(mut self) -> Result<BTreeMap<(Upload, u32), Object>, Error> {
        if !self.object.is_empty() {
            self.send()?;
        }
        self.under_way.into_iter().try_for_each(Pending::wait)?;
        Ok(self.objects)
    }
}
