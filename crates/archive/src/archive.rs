//! The archive of a store, on the side that writes it.
//!
//! Backups have numbers, and the record of each is created under a name that only one can create:
//! so two hosts that write to the same archive notice, and the one that comes later stops. What a
//! backup refers to is what the one before refers to, or what it uploaded itself, under a name of
//! its own: so whatever was given up, and whoever was stopped in the midst of it, what is there
//! stays whole.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use brooklet::io::seeded::bug;
use brooklet::io::system_seed;
use brooklet::{Moment, OffloadReport, Part, PartName, Progress, Store, View};

use crate::backups::{find_latest, moment_of};
use crate::bucket::Bucket;
use crate::error::Error;
use crate::note::{Memory, Note};
use crate::objects::Created;
use crate::parts::Parts;
use crate::prune::{self, Pruned};
use crate::record::{HEAD, Place, Record, RecordHead, Upload, name_of};
use crate::records::{expect_no_next, read_record};
use crate::shipping::{Beginning, Shipped, Shipping};
use crate::upload::{OBJECT, Uploading};

/// Memory for reading ahead in what was offloaded, where nothing else was said.
const READ_AHEAD: usize = 32 << 20;

/// Tries to create a record whose fate is not known.
const TRIES: usize = 4;

/// The archive of a store, for the host that writes it; see [`Archive::new`].
#[derive(Debug)]
pub struct Archive {
    bucket: Bucket,
    note: Note,
    owner: String,
    take_over: bool,
    /// The store that it is of, once one was seen.
    store: Option<u128>,
    /// The last backup, as far as is known, if it is one to go on from.
    latest: Option<Record>,
    shipping: Option<Shipping>,
    parts: Option<Parts>,
    opened: bool,
}

/// What was backed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Archived {
    /// The number of the backup that the store is in; of a [`plan`](Archive::plan), that it would
    /// be in.
    pub number: u64,
    /// Up to where in the store's log; see [`View::lsn`].
    pub lsn: u64,
    /// When the backup was taken, in milliseconds since the Unix epoch, by the store's clock.
    pub taken_ms: u64,
    /// Whether it is a new one: where nothing has changed, the last one still holds.
    pub is_new: bool,
    /// Whether the store can be restored to every moment between the backup before and this one:
    /// where the store is [followed](Archive::follow), and nothing was lost to shipping since.
    pub is_covered: bool,
    /// Parts that are new in it.
    pub new_parts: usize,
    /// Their bytes.
    pub new_bytes: u64,
    /// Objects that those take.
    pub new_objects: u64,
    /// Parts of the whole store.
    pub parts: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Parts that are damaged in the store, and were never backed up when they were sound: the
    /// backup has them as they are, as far as they can be read, and marks them. [`Store::damage`]
    /// names them. A [`plan`](Archive::plan) reports those of the last backup.
    pub damaged_parts: usize,
}

impl Archive {
    /// An archive in a bucket, to which this host writes. It is of the first store that is given to
    /// it. `note` is a file in which it notes which backups are its own, best beside the store;
    /// `owner` is what other hosts are told. Nothing is asked of the bucket yet.
    pub fn new(bucket: Bucket, note: impl AsRef<Path>, owner: impl Into<String>) -> Result<Self, Error> {
        let note = Note::open(note.as_ref())?;
        Ok(Self {
            bucket,
            note,
            owner: owner.into(),
            take_over: false,
            store: None,
            latest: None,
            shipping: None,
            parts: None,
            opened: false,
        })
    }

    /// Goes on from the last backup also where another host wrote it, or nothing is noted. That
    /// host's next backup then fails.
    pub fn take_over(mut self) -> Self {
        self.take_over = true;
        self
    }

    /// Has the store read what is [offloaded](Self::offload) by way of these; by default with 32
    /// MiB of memory, and no cache.
    pub fn with_parts(mut self, parts: Parts) -> Self {
        self.parts = Some(parts);
        self
    }

    /// The bucket.
    pub fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    /// What [`backup`](Self::backup) would do; nothing is written to the bucket.
    ///
    /// # Errors
    /// The same errors as [`backup`](Self::backup).
    pub fn plan(&mut self, store: &Store) -> Result<Archived, Error> {
        self.expect(store.info()?.id)?;
        let view = store.view()?;
        view.expect_whole()?;
        self.look(view.store_id())?;
        Ok(self.survey(&view)?.0)
    }

    /// Backs up all logs as they are now. Only parts that the last backup does not have are
    /// uploaded, about what the store wrote to its heap since; each is read and checked before.
    /// Where nothing has changed, no request is made.
    ///
    /// A part that is damaged ends no backup: see [`Archived::damaged_parts`]. Each later backup
    /// tries it again. Where something of the ring is lost, so that nobody knows what the logs held
    /// last, nothing is backed up.
    ///
    /// Reports to `progress`; where that returns `Break`, nothing is backed up. Space of the store
    /// that is read is not used again meanwhile. Takes up to 100 MiB of memory.
    ///
    /// # Errors
    /// [`Error::Owned`], [`Error::OtherStore`]; [`Error::Bucket`]; [`Error::Note`];
    /// [`Error::Store`] where the store cannot be read, or has no room for a checkpoint;
    /// [`Error::Cancelled`]. After any of them the archive has the backups that it had; the next
    /// one goes on from there.
    pub fn backup(
        &mut self,
        store: &Store,
        mut progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Archived, Error> {
        self.expect(store.info()?.id)?;
        // What is lost by now is lost to the time before the backup, and not to the time after it.
        self.shipping.iter_mut().for_each(Shipping::catch_up);
        let view = store.view()?;
        view.expect_whole()?;
        self.look(view.store_id())?;
        let (mut archived, new) = self.survey(&view)?;
        if !archived.is_new {
            return Ok(archived);
        }
        let bucket = &self.bucket;
        let beginning = self.shipping.as_mut().map(|shipping| shipping.close(bucket, &view)).transpose()?;
        archived.is_covered = beginning.as_ref().is_some_and(Beginning::is_closed);
        let upload = Upload { number: archived.number, drawn: draw() };
        let mut uploading = Uploading::new(&self.bucket, upload);
        let mut done = 0;
        let (mut parts, mut damaged) = (BTreeMap::new(), BTreeSet::new());
        for part in new {
            let name = part.name();
            let before = done;
            let taken = uploading.part(&part, self.there(&name).is_some(), &mut |bytes| {
                done = before + bytes;
                match progress(Progress::of_bytes(done, archived.new_bytes)) {
                    ControlFlow::Continue(()) => Ok(()),
                    ControlFlow::Break(()) => Err(Error::Cancelled { what: "the backup" }),
                }
            })?;
            parts.extend(taken.place.map(|place| (name, place)));
            if let Some(error) = taken.damage.filter(|_| !bug("damage-is-not-marked")) {
                tracing::warn!(%error, part = %name, "a damaged part is backed up as far as it can be read");
                damaged.insert(name);
            }
        }
        let mut objects = uploading.finish()?;
        archived.new_objects = objects.len() as u64;
        archived.damaged_parts = damaged.len();
        for part in view.parts() {
            let name = part.name();
            if let (false, Some((latest, place))) = (parts.contains_key(&name), self.there(&name)) {
                let bytes = place.start..place.start + name.len;
                for (at, _) in Record::pieces(OBJECT as u64, bytes) {
                    let key = (place.upload, at);
                    objects.insert(key, latest.objects[&key]);
                }
                parts.insert(name, place.clone());
            }
        }
        let record = Record {
            number: upload.number,
            drawn: upload.drawn,
            store: view.store_id(),
            taken: view.taken_ms(),
            object_len: OBJECT as u64,
            owner: self.owner.clone(),
            table: view.table(),
            objects,
            parts,
            damaged,
        };
        drop(view);
        self.create(record)?;
        if let (Some(shipping), Some(beginning)) = (&mut self.shipping, beginning) {
            shipping.rebase(upload, Moment { lsn: archived.lsn, time_ms: archived.taken_ms }, beginning);
        }
        Ok(archived)
    }

    /// From now on [`ship`](Self::ship) ships what is committed to the store, and so does
    /// [`backup`](Self::backup), behind the backup before: so that the store can be restored to any
    /// moment.
    ///
    /// # Errors
    /// [`Error::Store`] where the store is open for reading only; [`Error::OtherStore`].
    pub fn follow(&mut self, store: &Store) -> Result<(), Error> {
        self.expect(store.info()?.id)?;
        self.shipping = Some(Shipping::begin(store)?);
        Ok(())
    }

    /// Ships what was committed to a store that is [followed](Self::follow) since this was called
    /// last: one object, if it was anything. Returns `None` where that takes a
    /// [backup](Self::backup) first, and nothing is lost by it: at the beginning, and where much
    /// (256 MiB) was committed since the last one.
    ///
    /// # Errors
    /// [`Error::Lost`] until the next backup, where some commits are not to be had: more than is
    /// held in memory (64 MiB) before it was sent, or an import. They are in that backup, and no
    /// moment of the time in between can be restored. [`Error::Owned`]; [`Error::Bucket`]: then it
    /// is sent the next time.
    pub fn ship(&mut self) -> Result<Option<Shipped>, Error> {
        self.shipping.as_mut().map_or(Ok(None), |shipping| shipping.ship(&self.bucket))
    }

    /// Lets runs go from the store's volume until those that it holds take `most` bytes or less,
    /// the oldest first: from then on the store reads them from the bucket, and is opened with
    /// [`Parts`]. Only those go that the last backup has; each is read back and checked before. See
    /// [`Store::offload`], also about `progress`.
    ///
    /// What the store needs stays in the archive while it does, as each backup refers to it.
    /// Another host that takes the archive over, with the same store, does not know what this one
    /// needs.
    ///
    /// # Errors
    /// [`Error::Owned`], [`Error::OtherStore`]; [`Error::Bucket`]; [`Error::Note`];
    /// [`Error::Store`], also of what is missing or damaged in the bucket. What went until then is
    /// in the bucket, and all else as it was.
    pub fn offload(
        &mut self,
        store: &Store,
        most: u64,
        progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<OffloadReport, Error> {
        let id = store.info()?.id;
        self.expect(id)?;
        self.look(id)?;
        self.expect_latest()?;
        let Some(latest) = self.latest.clone() else { return Ok(OffloadReport::default()) };
        expect_no_next(&self.bucket, latest.number)?;
        let parts = self.parts.get_or_insert_with(|| Parts::new(&self.bucket, READ_AHEAD));
        let located = parts.of(Arc::new(latest));
        Ok(store.offload(most, |name| located.find(name), progress)?)
    }

    /// Removes backups that are older than `keep`, but for the newest of those, to which the store
    /// can be taken back from the beginning of that time on, and all that only they need. Ages are
    /// by the bucket's clock. With `dry_run` it only tells what would go.
    ///
    /// # Errors
    /// [`Error::Bucket`]; [`Error::Damaged`] where the oldest record that stays cannot be read.
    /// What is needed is there after any of them.
    pub fn prune(&mut self, keep: Duration, dry_run: bool) -> Result<Pruned, Error> {
        prune::prune(&self.bucket, keep, dry_run)
    }

    /// Refuses another store than the one that it is of.
    fn expect(&mut self, store: u128) -> Result<(), Error> {
        let archive = *self.store.get_or_insert(store);
        if archive == store || bug("any-store-is-taken") {
            return Ok(());
        }
        Err(Error::OtherStore { archive, store })
    }

    /// Finds the last backup, and whose it is.
    fn look(&mut self, store: u128) -> Result<(), Error> {
        let known = self.latest.as_ref().map(Record::upload).or(self.note.memory.last);
        if self.opened && self.note.memory.tried.is_empty() {
            return Ok(());
        }
        let Some(latest) = find_latest(&self.bucket, known.map(|known| known.number))? else {
            // Nothing is there, or no more.
            if self.note.memory.last.is_some() {
                self.note.memory = Memory::default();
            }
            self.latest = None;
            self.opened = true;
            return Ok(());
        };
        let record = read_record(&self.bucket, latest)?;
        if record.store != store {
            return Err(Error::OtherStore { archive: record.store, store });
        }
        if !self.note.memory.wrote(record.upload()) && !self.take_over {
            return Err(Error::Owned { owner: record.owner, number: record.number });
        }
        self.go_on_from(record)?;
        self.opened = true;
        Ok(())
    }

    /// Goes on from a backup.
    fn go_on_from(&mut self, record: Record) -> Result<(), Error> {
        if self.note.memory.last != Some(record.upload()) {
            self.note.set(Memory { last: Some(record.upload()), ..Memory::default() })?;
        }
        self.latest = Some(record);
        // Once: from here on the archive is this host's, until another one takes it over.
        self.take_over = false;
        Ok(())
    }

    /// Where the last backup has a part, damaged or not.
    fn there(&self, name: &PartName) -> Option<(&Record, &Place)> {
        let latest = self.latest.as_ref().filter(|latest| latest.object_len == OBJECT as u64)?;
        Some((latest, latest.parts.get(name)?))
    }

    /// What a backup of a view consists of, and what of it is new.
    fn survey(&self, view: &View) -> Result<(Archived, Vec<Part>), Error> {
        let parts = view.parts();
        let known =
            |name: &PartName| self.there(name).is_some_and(|(latest, _)| !latest.damaged.contains(name));
        let bytes = parts.iter().map(|part| part.name().len).sum();
        let count = parts.len();
        let mut new = parts;
        new.retain(|part| !known(&part.name()));
        let new_bytes = new.iter().map(|part| part.name().len).sum::<u64>();
        let next = self.latest.as_ref().map_or(0, |latest| latest.number + 1);
        let needed = self.shipping.as_ref().is_some_and(Shipping::needs_base);
        let unchanged = match &self.latest {
            Some(latest) if !needed && same_parts(latest, view) => {
                // What was committed may have left no trace in them.
                moment_of(&self.bucket, latest)?.lsn == view.lsn()
            }
            _ => false,
        };
        let archived = Archived {
            number: if unchanged { next - 1 } else { next },
            lsn: view.lsn(),
            taken_ms: view.taken_ms(),
            is_new: !unchanged,
            is_covered: unchanged && self.shipping.is_some(),
            new_parts: new.len(),
            new_bytes,
            new_objects: new_bytes.div_ceil(OBJECT as u64),
            parts: count,
            bytes,
            damaged_parts: self.latest.as_ref().map_or(0, |latest| latest.damaged.len()),
        };
        Ok((archived, new))
    }

    /// Looks whether the backup that this host goes on from is still there. Where it is not, others
    /// came after it, and may have gone, so that their numbers say nothing.
    fn expect_latest(&self) -> Result<(), Error> {
        let Some(latest) = &self.latest else { return Ok(()) };
        let found = self.bucket.get(&name_of(latest.number), Some(HEAD as u64))?;
        let found = found.and_then(|data| RecordHead::decode(&data).ok());
        if found.is_some_and(|found| found.drawn == latest.drawn) {
            return Ok(());
        }
        match find_latest(&self.bucket, Some(latest.number))? {
            Some(number) => Err(owned(number, Some(read_record(&self.bucket, number)?))),
            None => Err(owned(latest.number, None)),
        }
    }

    /// Makes a backup count, unless another host was first.
    fn create(&mut self, record: Record) -> Result<(), Error> {
        let mut memory =
            Memory { last: self.latest.as_ref().map(Record::upload), ..self.note.memory.clone() };
        memory.tried.insert(record.drawn);
        // Before anything is asked: what became of it must be told also by whoever comes after a
        // crash.
        self.note.set(memory)?;
        let (name, data) = (name_of(record.number), bytes::Bytes::from(record.encode()));
        self.expect_latest()?;
        let mut failed = None;
        for _ in 0..TRIES {
            match self.bucket.create(&name, data.clone()) {
                Ok(Created::Done) => return self.go_on_from(record),
                Ok(Created::Exists) => {}
                Err(error) if is_denied(&error) => return Err(error),
                Err(error) => failed = Some(error),
            }
            // A first try may have come through, and nobody heard of it.
            if let Some(found) = self.bucket.get(&name, None)? {
                if found == data {
                    return self.go_on_from(record);
                }
                return Err(owned(record.number, Record::decode(&found).ok()));
            }
        }
        Err(failed.expect("else it was created, or is there"))
    }
}

fn owned(number: u64, found: Option<Record>) -> Error {
    Error::Owned { owner: found.map_or("another host".into(), |found| found.owner), number }
}

fn is_denied(error: &Error) -> bool {
    use object_store::Error::{NotImplemented, NotSupported, PermissionDenied, Unauthenticated};
    let Error::Bucket { cause, .. } = error else { return false };
    matches!(
        cause,
        PermissionDenied { .. } | Unauthenticated { .. } | NotSupported { .. } | NotImplemented { .. }
    )
}

/// Whether a view reads from the same parts as a backup.
fn same_parts(record: &Record, view: &View) -> bool {
    let names: BTreeSet<PartName> = view.parts().iter().map(Part::name).collect();
    names.iter().eq(record.names())
}

fn draw() -> u128 {
    u128::from(system_seed()) << 64 | u128::from(system_seed())
}
