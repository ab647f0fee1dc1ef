//! The records of backups, read from a bucket by their numbers.

use bytes::Bytes;

use crate::bucket::Bucket;
use crate::error::Error;
use crate::record::{Defect, HEAD, Record, RecordHead, TOMBSTONE, VERSION, name_of};

/// Fails if another backup follows this one: another host wrote it.
pub(crate) fn expect_no_next(bucket: &Bucket, number: u64) -> Result<(), Error> {
    let next = number + 1;
    if bucket.get(&name_of(next), Some(HEAD as u64))?.is_none() {
        return Ok(());
    }
    let owner = read_record(bucket, next).map_or("another host".into(), |record| record.owner);
    Err(Error::Owned { owner, number: next })
}

pub(crate) fn read_record(bucket: &Bucket, number: u64) -> Result<Record, Error> {
    let data = read(bucket, number, None)?;
    Record::decode(&data)
        .and_then(|record| is_of(number, record.number).map(|()| record))
        .map_err(error_of(bucket, number))
}

pub(crate) fn head_of(bucket: &Bucket, number: u64, data: &[u8]) -> Result<RecordHead, Error> {
    RecordHead::decode(data)
        .and_then(|head| is_of(number, head.number).map(|()| head))
        .map_err(error_of(bucket, number))
}

pub(crate) fn read(bucket: &Bucket, number: u64, most: Option<u64>) -> Result<Bytes, Error> {
    let none =
        || Error::NoBackup(format!("{bucket} holds no backup {number}: it never existed, or was removed"));
    bucket.get(&name_of(number), most)?.filter(|data| data[..] != TOMBSTONE[..]).ok_or_else(none)
}

pub(crate) fn is_of(number: u64, found: u64) -> Result<(), Defect> {
    if number == found { Ok(()) } else { Err("it is the record of another backup".into()) }
}

fn error_of(bucket: &Bucket, number: u64) -> impl FnOnce(Defect) -> Error {
    let object = bucket.full(&name_of(number));
    move |defect| match defect {
        Defect::Version(found) => Error::NewerFormat { object, found, known: VERSION },
        Defect::Other(what) => Error::Damaged { object, what: what.into() },
    }
}
