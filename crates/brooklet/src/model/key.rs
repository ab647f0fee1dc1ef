//! A log's key in memory. A short key is stored with the log's state, so that comparing the key
//! reads no other memory.

use std::fmt;
use std::ops::Deref;

use crate::error::Error;
use crate::limits::MAX_KEY;

/// The longest key that is stored in place, in bytes. A [`Key`] then has the size of three words.
const SHORT: usize = 22;

/// The bytes of a key.
pub(crate) struct Key(Bytes);

enum Bytes {
    Short { len: u8, bytes: [u8; SHORT] },
    Long(Box<[u8]>),
}

const _: () = assert!(size_of::<Key>() == 3 * size_of::<usize>());

impl Key {
    /// Returns the bytes of memory that the key takes outside of its own struct.
    pub fn bytes_apart(&self) -> usize {
        match &self.0 {
            Bytes::Short { .. } => 0,
            Bytes::Long(bytes) => bytes.len(),
        }
    }
}

impl From<&[u8]> for Key {
    fn from(key: &[u8]) -> Self {
        let mut bytes = [0; SHORT];
        Self(match bytes.get_mut(..key.len()) {
            Some(short) => {
                short.copy_from_slice(key);
                Bytes::Short { len: key.len() as u8, bytes }
            }
            None => Bytes::Long(key.into()),
        })
    }
}

impl Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Short { len, bytes } => &bytes[..usize::from(*len)],
            Bytes::Long(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Returns an error for a key that no log may have.
pub(crate) fn check_key(key: &[u8]) -> Result<(), Error> {
    if key.is_empty() || key.len() > MAX_KEY { Err(Error::InvalidKey { len: key.len() }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_what_it_was_made_of_however_long() {
        for len in 0..=1024 {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8 ^ 0x5a).collect();
            let key = Key::from(&bytes[..]);
            assert_eq!(*key, bytes[..]);
            assert_eq!(key.bytes_apart(), if len > SHORT { len } else { 0 });
        }
    }
}
