//! Cursors: move through a run in key order, from table to table.

use std::sync::Arc;

use brooklet_codex::{Cursor, DataBlock, Prefetch};
use bytes::Bytes;

use crate::error::Error;
use crate::format::run_entry::{Chunk, chunk_key};
use crate::run::Run;
use crate::run::table::{Table, TableReader};

/// The blocks of a run that another thread reads ahead for a cursor.
pub(crate) trait RunPrefetch: Send + Sync {
    /// Reports that the cursor seeks a codex key.
    fn seek(&self, key: &[u8]);
    /// Returns the blocks of the table at this index.
    fn of_table(&self, table: usize) -> Box<dyn Prefetch>;
}

/// A cursor in a run: at a codex entry, or at no entry.
pub(crate) struct RunCursor {
    run: Arc<Run>,
    /// The index of the cursor's table; past the last table at the end.
    at: usize,
    cursor: Option<Cursor<TableReader>>,
    ahead: Option<Box<dyn RunPrefetch>>,
}

impl RunCursor {
    /// Creates a cursor before the first entry, without a read.
    pub fn new(run: Arc<Run>) -> Self {
        Self { run, at: 0, cursor: None, ahead: None }
    }

    pub fn run(&self) -> &Arc<Run> {
        &self.run
    }

    /// Has the cursor take its blocks from another thread.
    pub fn read_ahead(&mut self, ahead: Box<dyn RunPrefetch>) {
        if let Some(cursor) = &mut self.cursor {
            cursor.prefetch(ahead.of_table(self.at));
        }
        self.ahead = Some(ahead);
    }

    /// Moves to the first entry whose key is `key` or greater. Returns `false` if no such entry
    /// exists.
    pub fn seek(&mut self, key: &[u8]) -> Result<bool, Error> {
        if let Some(ahead) = &self.ahead {
            ahead.seek(key);
        }
        let at = self.run.place_of(key).unwrap_or(0);
        // A cursor that stays in its table keeps its block.
        if at != self.at {
            (self.at, self.cursor) = (at, None);
        }
        let found = self.go(|cursor| cursor.seek(key))?;
        if found { Ok(true) } else { self.next_table() }
    }

    /// Returns the chunk that holds entry `seq` of a log, and does not cache its block. This is for
    /// callers that read all entries once.
    pub fn chunk(&mut self, key: &[u8], seq: u64) -> Result<Chunk, Error> {
        let place = chunk_key(key, seq);
        let at = self.run.place_of(&place).ok_or_else(|| self.run.malformed(key))?;
        if at != self.at {
            (self.at, self.cursor) = (at, None);
        }
        let found = self.go(|cursor| cursor.seek_le(&place))?;
        let found = if found { Some((self.key().to_vec(), self.value()?)) } else { None };
        self.run.decode_chunk(key, seq, found)
    }

    /// Moves to the next entry. Returns `false` if no such entry exists.
    pub fn next(&mut self) -> Result<bool, Error> {
        let found = self.go(Cursor::next)?;
        if found { Ok(true) } else { self.next_table() }
    }

    /// Moves to the first entry of the next block. Returns `false` if no such entry exists.
    pub fn skip_block(&mut self) -> Result<bool, Error> {
        let found = self.go(Cursor::skip_block)?;
        if found { Ok(true) } else { self.next_table() }
    }

    /// Returns the block of the entry, and the index of its table; `None` if the cursor is at no
    /// entry.
    pub fn block(&self) -> Option<(usize, DataBlock)> {
        Some((self.at, self.cursor.as_ref()?.block()?))
    }

    /// Returns the key range that cannot be read, after a move from `key` failed. The range begins
    /// at the first key and ends before the second key, or at the end of the run.
    pub fn hole(&mut self, key: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
        self.at = self.run.place_of(key).unwrap_or(0);
        self.cursor = None;
        // The unreadable part may be the block of the key, something in that block, or the block
        // after it.
        let stands = self.go(|cursor| cursor.seek_le(key)).is_ok();
        let begin = if stands && self.go(Cursor::next).is_err() { self.next_block(key) } else { None };
        let begin = begin.unwrap_or_else(|| key.to_vec());
        let end = self.next_block(&begin);
        (begin, end)
    }

    /// Returns the first key of the block after the block of `key`.
    fn next_block(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        (self.at, self.cursor) = (self.run.place_of(key).unwrap_or(0), None);
        let mut next = None;
        let found = self.go(|cursor| {
            next = cursor.next_block(key)?;
            Ok(next.is_some())
        });
        let table = || self.coming().first().map(|table| table.meta.first.clone());
        if found.is_ok_and(|found| found) { next } else { table() }
    }

    fn next_table(&mut self) -> Result<bool, Error> {
        while self.table().is_some() {
            (self.at, self.cursor) = (self.at + 1, None);
            if self.go(Cursor::seek_first)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn table(&self) -> Option<&Arc<Table>> {
        self.run.tables.get(self.at)
    }

    /// Moves within the table. The cursor is at no entry after the last one.
    fn go(
        &mut self,
        action: impl FnOnce(&mut Cursor<TableReader>) -> brooklet_codex::Result<bool>,
    ) -> Result<bool, Error> {
        let Some(table) = self.run.tables.get(self.at) else { return Ok(false) };
        let cursor = match &mut self.cursor {
            Some(cursor) => cursor,
            none => {
                let cursor = none.insert(Cursor::new(TableReader::new(table)?));
                if let Some(ahead) = &self.ahead {
                    cursor.prefetch(ahead.of_table(self.at));
                }
                cursor
            }
        };
        action(cursor).map_err(|error| table.error(error))
    }

    /// Returns whether the cursor is at an entry.
    pub fn valid(&self) -> bool {
        self.cursor.as_ref().is_some_and(Cursor::valid)
    }

    /// Returns the key of the entry; empty if the cursor is at no entry.
    pub fn key(&self) -> &[u8] {
        self.cursor.as_ref().map_or(&[], Cursor::key)
    }

    /// Returns the value of the entry; empty if the cursor is at no entry.
    pub fn value(&self) -> Result<Bytes, Error> {
        match (&self.cursor, self.table()) {
            (Some(cursor), Some(table)) => cursor.value().map_err(|error| table.error(error)),
            _ => Ok(Bytes::new()),
        }
    }

    /// Returns the bytes of the cursor's table from the block of the current entry on.
    pub fn left(&self) -> u64 {
        let before = self.cursor.as_ref().map_or(0, Cursor::offset);
        self.table().map_or(0, |table| table.meta.extent.saturating_sub(before))
    }

    /// Returns the tables after the cursor's table.
    pub fn coming(&self) -> &[Arc<Table>] {
        self.run.tables.get(self.at + 1..).unwrap_or_default()
    }

    /// Returns the tables before the cursor's table.
    pub fn passed(&self) -> &[Arc<Table>] {
        &self.run.tables[..self.at.min(self.run.tables.len())]
    }
}
