//! Updates: decoding of bytes that may be anything, and the sets of ids that updates hold.

use std::panic::catch_unwind;
use std::sync::Arc;

use yrs::encoding::read::{Cursor, Error, Read};
use yrs::updates::decoder::{Decode, Decoder};
use yrs::{Any, ClientID, ID, IdSet, Update};

/// Least number of bytes that a client has in an update: number of blocks, id, clock.
const CLIENT: u64 = 3;
/// Most levels of arrays and maps in a value. yrs decodes a value by recursion, and a thread whose
/// stack ends aborts the process.
const MOST_LEVELS: usize = 128;
/// The kinds of blocks whose length is a number of values that follow.
const LISTS: [u8; 2] = [2, 8];
const BUFFER: u8 = 116;
const ARRAY: u8 = 117;
const MAP: u8 = 118;
const STRING: u8 = 119;

/// Decodes an update in lib0 v1 encoding. Returns the defect if the bytes are anything else, also
/// if bytes follow the update.
pub(crate) fn decode(bytes: &[u8]) -> Result<Update, String> {
    read(bytes).map(|(update, _)| update)
}

/// Returns the ids on which the blocks of an update build, apart from those of the update itself.
pub(crate) fn needed(bytes: &[u8]) -> Result<Vec<ID>, String> {
    let (update, mut needed) = read(bytes)?;
    let own = update.insertions(true);
    needed.retain(|id| !own.contains(id));
    needed.sort_unstable();
    needed.dedup();
    Ok(needed)
}

/// Decodes an update, and returns also the ids that its blocks name.
fn read(bytes: &[u8]) -> Result<(Update, Vec<ID>), String> {
    // yrs reserves memory for as many clients as the bytes name.
    let clients: u64 = Cursor::new(bytes).read_var::<u32>().map_err(|error| error.to_string())?.into();
    if clients.saturating_mul(CLIENT) > bytes.len() as u64 {
        return Err(format!("{} bytes cannot hold {clients} clients", bytes.len()));
    }
    // yrs panics at some invalid bytes, for example at a client id of more than 53 bits.
    catch_unwind(|| {
        let mut reader = Reader { cursor: Cursor::new(bytes), info: 0, named: Vec::new() };
        let update = Update::decode(&mut reader).map_err(|error| error.to_string())?;
        match reader.cursor.has_content() {
            false => Ok((update, reader.named)),
            true => Err("bytes follow its end".into()),
        }
    })
    .unwrap_or_else(|_| Err("yrs panicked while it decoded the bytes".into()))
}

/// Reads an update for yrs, and checks each value before yrs decodes it.
struct Reader<'a> {
    cursor: Cursor<'a>,
    /// The kind of the block that is read.
    info: u8,
    /// The ids that blocks name: of their neighbours, and of their parents.
    named: Vec<ID>,
}

impl Reader<'_> {
    fn id(&mut self) -> Result<ID, Error> {
        let id = ID::new(ClientID::new(self.read_var()?), self.read_var()?);
        self.named.push(id);
        Ok(id)
    }
}

impl Read for Reader<'_> {
    fn read_u8(&mut self) -> Result<u8, Error> {
        self.cursor.read_u8()
    }

    fn read_exact(&mut self, len: usize) -> Result<&[u8], Error> {
        self.cursor.read_exact(len)
    }
}

/// The encoding lib0 v1, as `DecoderV1` of yrs reads it.
impl Decoder for Reader<'_> {
    fn reset_ds_cur_val(&mut self) {}

    fn read_ds_clock(&mut self) -> Result<u32, Error> {
        self.read_var()
    }

    fn read_ds_len(&mut self) -> Result<u32, Error> {
        self.read_var()
    }

    fn read_left_id(&mut self) -> Result<ID, Error> {
        self.id()
    }

    fn read_right_id(&mut self) -> Result<ID, Error> {
        self.id()
    }

    fn read_client(&mut self) -> Result<ClientID, Error> {
        Ok(ClientID::new(self.read_var()?))
    }

    fn read_info(&mut self) -> Result<u8, Error> {
        self.info = self.read_u8()?;
        Ok(self.info)
    }

    fn read_parent_info(&mut self) -> Result<bool, Error> {
        Ok(self.read_var::<u32>()? == 1)
    }

    fn read_type_ref(&mut self) -> Result<u8, Error> {
        self.read_u8()
    }

    fn read_len(&mut self) -> Result<u32, Error> {
        let len = self.read_var()?;
        let left = self.cursor.buf.len() - self.cursor.next;
        // yrs reserves memory for as many values as the block names.
        match LISTS.contains(&(self.info & 0xf)) && len as usize > left {
            true => Err(Error::EndOfBuffer(len as usize)),
            false => Ok(len),
        }
    }

    fn read_any(&mut self) -> Result<Any, Error> {
        check(Cursor { buf: self.cursor.buf, next: self.cursor.next })?;
        Any::decode(&mut self.cursor)
    }

    fn read_json(&mut self) -> Result<Any, Error> {
        Any::from_json(self.read_string()?)
    }

    fn read_key(&mut self) -> Result<Arc<str>, Error> {
        Ok(self.read_string()?.into())
    }

    fn read_to_end(&mut self) -> Result<&[u8], Error> {
        Ok(&self.cursor.buf[self.cursor.next..])
    }
}

/// Refuses a value that is nested too deep, or that names more parts than the bytes have: yrs
/// reserves memory for the parts of each array and map.
fn check(mut cursor: Cursor<'_>) -> Result<(), Error> {
    // The arrays and maps that are open: the number of parts that follow, and whether it is a map.
    let mut open = vec![(1, false)];
    while let Some((left, is_map)) = open.last_mut() {
        if *left == 0 {
            open.pop();
            continue;
        }
        *left -= 1;
        if *is_map {
            cursor.read_string()?;
        }
        match cursor.read_u8()? {
            BUFFER | STRING => _ = cursor.read_buf()?,
            kind @ (ARRAY | MAP) => {
                if open.len() > MOST_LEVELS {
                    let what = format!("a value has more than {MOST_LEVELS} levels of arrays and maps");
                    return Err(Error::Custom(what));
                }
                open.push((cursor.read_var::<usize>()?, kind == MAP));
            }
            120 | 121 | 126 | 127 => {}
            122 | 123 => _ = cursor.read_exact(8)?,
            124 => _ = cursor.read_exact(4)?,
            125 => _ = cursor.read_var::<i64>()?,
            _ => return Err(Error::UnexpectedValue),
        }
    }
    Ok(())
}

/// The ids that updates insert and delete.
#[derive(Default)]
pub(crate) struct Ids {
    inserted: IdSet,
    deleted: IdSet,
}

impl Ids {
    /// Adds the ids of an update.
    pub fn add(&mut self, update: &Update) {
        insert(&mut self.inserted, &update.insertions(true));
        insert(&mut self.deleted, update.delete_set());
    }

    /// Returns whether `other` has all of these ids.
    pub fn are_in(&self, other: &Self) -> bool {
        self.inserted.diff(&other.inserted).is_empty() && self.deleted.diff(&other.deleted).is_empty()
    }
}

/// Adds ids to a set, in time that depends on the added ids rather than on the set.
fn insert(set: &mut IdSet, added: &IdSet) {
    for (client, ranges) in added.iter() {
        for range in ranges {
            set.insert(ID::new(*client, range.start), range.end - range.start);
        }
    }
}
