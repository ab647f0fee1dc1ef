//! Numbers and byte strings in entries: writers, and a reader that takes any bytes.

/// Longest encoding of a number, in bytes.
const MAX_NUMBER: usize = 10;

/// Appends a number in 7-bit groups, least significant first (LEB128).
pub(crate) fn put_number(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// Appends the length of a byte string, and the byte string.
pub(crate) fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    put_number(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}

/// A reader of the bytes of an entry. It returns parts of these bytes, so no length in the entry
/// leads to an allocation.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub fn byte(&mut self) -> Result<u8, String> {
        let byte = *self.bytes.get(self.at).ok_or_else(|| self.ended(1))?;
        self.at += 1;
        Ok(byte)
    }

    /// Reads a number, and refuses encodings that are longer than needed: each entry has one
    /// encoding.
    pub fn number(&mut self) -> Result<u64, String> {
        let mut number = 0_u64;
        for at in 0..MAX_NUMBER {
            let byte = self.byte()?;
            let group = u64::from(byte & 0x7f);
            if at == MAX_NUMBER - 1 && group > 1 || at > 0 && byte == 0 {
                return Err("a number is not encoded as this crate does it".into());
            }
            number |= group << (7 * at);
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err("a number is longer than 64 bits".into())
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], String> {
        let len = self.number()?;
        self.take(usize::try_from(len).unwrap_or(usize::MAX))
    }

    pub fn hash(&mut self) -> Result<u64, String> {
        let bytes = *self.bytes[self.at..].first_chunk().ok_or_else(|| self.ended(8))?;
        self.at += bytes.len();
        Ok(u64::from_le_bytes(bytes))
    }

    pub fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.bytes.len());
        let taken = &self.bytes[self.at..end.ok_or_else(|| self.ended(len))?];
        self.at += len;
        Ok(taken)
    }

    fn ended(&self, len: usize) -> String {
        format!("it ends after {} of {len} bytes", self.bytes.len() - self.at)
    }

    /// Returns all bytes that were not read.
    pub fn rest(self) -> &'a [u8] {
        &self.bytes[self.at..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back_and_have_one_encoding() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put_number(&mut bytes, number);
            assert_eq!(Reader::new(&bytes).number(), Ok(number));
        }
        for bytes in [&[0x80, 0x00][..], &[0xff; 10], &[0xff; 11], &[0x80], &[]] {
            assert!(Reader::new(bytes).number().is_err(), "{bytes:?}");
        }
        let mut bytes = Vec::new();
        put_bytes(&mut bytes, b"ab");
        assert_eq!(Reader::new(&bytes).bytes().unwrap(), &b"ab"[..]);
        assert!(Reader::new(&[0xff, 0xff, 3, b'a']).bytes().is_err());
    }
}
