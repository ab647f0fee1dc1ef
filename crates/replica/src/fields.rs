//! Fields of the objects' formats: little-endian numbers, texts with their length, and a checksum
//! of all before it at the end.

use twox_hash::XxHash3_64;

use crate::place::{Drawn, Epoch, Place, StoreId};

/// The reason why bytes are not the expected object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// A later version of Brooklet wrote the object, in this version of the format.
    Version(u32),
    /// The object belongs to another store.
    OtherStore(StoreId),
    /// The object is damaged, as the text says.
    Damaged(&'static str),
}

impl From<&'static str> for Defect {
    fn from(what: &'static str) -> Self {
        Defect::Damaged(what)
    }
}

/// The newest version of each format in this crate.
pub(crate) const VERSION: u32 = 1;

/// Longest text in an object, in bytes.
pub(crate) const TEXT: usize = 4096;

/// The fields of an object, as they are written.
pub(crate) struct Writing(Vec<u8>);

impl Writing {
    /// Begins an object: its magic number, the version, 4 bytes for the caller, and the store.
    pub fn begin(magic: &[u8; 8], small: [u8; 4], store: StoreId) -> Self {
        let mut data = Vec::with_capacity(128);
        data.extend_from_slice(magic);
        data.extend_from_slice(&VERSION.to_le_bytes());
        data.extend_from_slice(&small);
        data.extend_from_slice(&store.0.to_le_bytes());
        Self(data)
    }

    pub fn number(mut self, number: u64) -> Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    pub fn place(self, place: Place) -> Self {
        self.number(place.epoch.0).number(place.number)
    }

    pub fn drawn(mut self, drawn: Drawn) -> Self {
        self.0.extend_from_slice(&drawn.0.to_le_bytes());
        self
    }

    pub fn count(mut self, count: usize) -> Self {
        self.0.extend_from_slice(&(count as u32).to_le_bytes());
        self
    }

    /// Writes a text. A text beyond the limit is cut.
    pub fn text(mut self, text: &str) -> Self {
        let end = (0..=TEXT.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        self = self.count(end);
        self.0.extend_from_slice(&text.as_bytes()[..end]);
        self
    }

    /// Ends the object by its checksum.
    pub fn end(mut self) -> Vec<u8> {
        self.0.extend_from_slice(&XxHash3_64::oneshot(&self.0).to_le_bytes());
        self.0
    }
}

/// The fields of an object, as they are read.
pub(crate) struct Reading<'a>(&'a [u8]);

impl<'a> Reading<'a> {
    /// Checks magic number, version, checksum and store of an object. Returns the fields behind the
    /// store, and the 4 bytes before it.
    pub fn begin(data: &'a [u8], magic: &[u8; 8], store: StoreId) -> Result<(Self, [u8; 4]), Defect> {
        let mut fields = Self(data);
        if fields.take::<8>()? != *magic {
            return Err("it does not begin as it must".into());
        }
        let version = u32::from_le_bytes(fields.take()?);
        if version > VERSION {
            return Err(Defect::Version(version));
        }
        let (body, sum) = data.split_last_chunk::<8>().ok_or("it is too short")?;
        if version == 0 || XxHash3_64::oneshot(body) != u64::from_le_bytes(*sum) {
            return Err("its checksum does not match".into());
        }
        fields = Self(&body[12..]);
        let (small, found) = (fields.take()?, StoreId(u128::from_le_bytes(fields.take()?)));
        if found != store {
            return Err(Defect::OtherStore(found));
        }
        Ok((fields, small))
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Defect> {
        let (taken, rest) = self.0.split_first_chunk().ok_or("it is too short")?;
        self.0 = rest;
        Ok(*taken)
    }

    pub fn number(&mut self) -> Result<u64, Defect> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    pub fn place(&mut self) -> Result<Place, Defect> {
        Ok(Place { epoch: Epoch(self.number()?), number: self.number()? })
    }

    pub fn drawn(&mut self) -> Result<Drawn, Defect> {
        Ok(Drawn(u128::from_le_bytes(self.take()?)))
    }

    pub fn count(&mut self) -> Result<usize, Defect> {
        Ok(u32::from_le_bytes(self.take()?) as usize)
    }

    pub fn text(&mut self) -> Result<String, Defect> {
        let len = self.count()?;
        if len > TEXT || len > self.0.len() {
            return Err("a text is too long".into());
        }
        let (text, rest) = self.0.split_at(len);
        self.0 = rest;
        Ok(std::str::from_utf8(text).map_err(|_| "a text is not UTF-8")?.into())
    }

    pub fn end(self) -> Result<(), Defect> {
        if self.0.is_empty() { Ok(()) } else { Err("it is too long".into()) }
    }
}
