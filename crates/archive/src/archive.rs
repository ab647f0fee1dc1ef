//! The archive of a store, on the side that writes it.
//!
//! Backups have numbers. The record of a backup is created under a name that only one host can
//! create. So two hosts that write to the same archive notice the conflict, and the later host
//! stops. A backup refers only to objects of the previous backup and to objects that it uploaded
//! itself, under names of its own. So an abandoned or interrupted backup leaves the archive whole.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
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
use crate::leftovers;
use crate::note::{Memory, Note};
use crate::objects::Created;
use crate::parts::Parts;
use crate::prune::{self, Pruned};
use crate::record::{HEAD, Object, Place, Record, RecordHead, Upload, name_of};
use crate::records::{expect_no_next, read_record};
use crate::request::PAUSES;
use crate::shipping::{Beginning, Shipped, Shipping};
use crate::upload::{OBJECT, Uploading};

/// Memory for reading ahead in offloaded data, in bytes, if the caller sets no [`Parts`].
const READ_AHEAD: usize = 32 << 20;

/// The archive of a store, for the host that writes it; see [`Archive::new`].
#[derive(Debug)]
pub struct Archive {
    bucket: Bucket,
    note: Note,
    owner: String,
    take_over: bool,
    /// The archive's store, once a call has named a store.
    store: Option<u128>,
    /// The last known backup, if this host may continue from that backup.
    latest: Option<Record>,
    shipping: Option<Shipping>,
    parts: Option<Parts>,
    opened: bool,
    /// Whether an upload may have been given up that left objects: by this process, or by an
    /// earlier one.
    has_leftovers: bool,
}

/// A backup of a store: its number, its moment and its size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Archived {
    /// Number of the backup that has the store's contents. Of a [`plan`](Archive::plan): the number
    /// that the backup would get.
    pub number: u64,
    /// End of the backup in the store's log; see [`View::lsn`].
    pub lsn: u64,
    /// Time of the backup in milliseconds since the Unix epoch, by the store's clock.
    pub taken_ms: u64,
    /// Whether the backup is new. If nothing has changed, the last backup is reported again.
    pub is_new: bool,
    /// Whether the store can be restored to every moment between the previous backup and this one.
    /// `true` if the store is [followed](Archive::follow), and no commit was lost to shipping since
    /// the previous backup.
    pub is_covered: bool,
    /// Number of parts that are new in the backup.
    pub new_parts: usize,
    /// Size of the new parts in bytes.
    pub new_bytes: u64,
    /// Number of objects that the new parts take.
    pub new_objects: u64,
    /// Number of parts of the whole store.
    pub parts: usize,
    /// Size of the whole store's parts in bytes.
    pub bytes: u64,
    /// Number of parts that are damaged in the store and were never backed up while they were
    /// sound. The backup has the readable ones as they are, and marks all of them.
    /// [`Store::damage`] names the damaged parts. A [`plan`](Archive::plan) reports the number of
    /// the last backup.
    pub damaged_parts: usize,
}

impl Archive {
    /// Returns the archive in a bucket, to which this host writes. The archive belongs to the first
    /// store that a call names. `note` is the path of a file, best in the store's folder: the
    /// archive notes there which backups are this host's. `owner` names this host to other hosts.
    /// Makes no request to the bucket.
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
            has_leftovers: true,
        })
    }

    /// Lets the archive go on from the last backup even if another host wrote that backup, or the
    /// note is lost. The other host's next backup then fails.
    pub fn take_over(mut self) -> Self {
        self.take_over = true;
        self
    }

    /// Sets the [`Parts`] by which the store reads [offloaded](Self::offload) data. The default has
    /// 32 MiB of memory and no cache.
    pub fn with_parts(mut self, parts: Parts) -> Self {
        self.parts = Some(parts);
        self
    }

    /// Returns the bucket.
    pub fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    /// Reports the result that [`backup`](Self::backup) would have; writes nothing to the bucket.
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

    /// Backs up all logs as they are now. Uploads only the parts that the last backup does not
    /// have, about as many bytes as the store wrote to its heap since then. Reads and checks each
    /// part first. Makes no request if nothing has changed.
    ///
    /// A damaged part does not end the backup: see [`Archived::damaged_parts`]. Each later backup
    /// tries that part again. If the store has lost data of its ring, so that the last contents of
    /// the logs are unknown, the call fails and backs up nothing.
    ///
    /// Reports to `progress`; if `progress` returns `Break`, nothing is backed up. The store does
    /// not reuse the space of the parts during the call. Takes up to 100 MiB of memory.
    ///
    /// The first backup of an archive, and one after a backup that failed, also removes the objects
    /// that were uploaded for its number, and for the number before, by backups that were given up.
    /// In a folder, it removes files that a killed process was writing more than a day ago. That
    /// takes a list, and is left to a later backup where the bucket refuses it, or once `progress`
    /// returns `Break`.
    ///
    /// # Errors
    /// [`Error::Owned`], [`Error::OtherStore`]; [`Error::Bucket`]; [`Error::Note`];
    /// [`Error::Store`] where the store cannot be read, or has no room for a checkpoint;
    /// [`Error::Cancelled`]. After an error the archive still has its earlier backups, and the next
    /// backup goes on from there.
    pub fn backup(
        &mut self,
        store: &Store,
        mut progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Archived, Error> {
        let _span = tracing::info_span!("backup", bucket = %self.bucket).entered();
        self.expect(store.info()?.id)?;
        // Counts lost commits to the time before this backup, not to the time after it.
        self.shipping.iter_mut().for_each(Shipping::catch_up);
        let view = store.view()?;
        view.expect_whole()?;
        self.look(view.store_id())?;
        let (mut archived, new) = self.survey(&view)?;
        if !archived.is_new {
            return Ok(archived);
        }
        let bucket = &self.bucket;
        let beginning = self.shipping.as_mut().map(|shipping| shipping.close(bucket, &view)).transpose();
        let beginning = beginning.map_err(|error| self.unless_own(error))?;
        archived.is_covered = beginning.as_ref().is_some_and(Beginning::is_closed);
        let upload = Upload { number: archived.number, drawn: draw() };
        let has_leftovers = mem::replace(&mut self.has_leftovers, true);
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
                    ControlFlow::Break(()) => Err(cancelled()),
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
        self.add_known(&view, &mut parts, &mut objects);
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
        // The last uploads may have taken long. A host that is not the owner any more must not make
        // a backup: the next owner looks there for what its file lacks.
        if progress(Progress::of_bytes(archived.new_bytes, archived.new_bytes)).is_break() {
            return Err(cancelled());
        }
        let before = self.latest.as_ref().map(Record::upload);
        self.create(record)?;
        if let (Some(shipping), Some(beginning)) = (&mut self.shipping, beginning) {
            shipping.rebase(upload, Moment { lsn: archived.lsn, time_ms: archived.taken_ms }, beginning);
        }
        let mut go_on = || progress(Progress::of_bytes(archived.new_bytes, archived.new_bytes));
        self.has_leftovers = has_leftovers && !leftovers::remove(&self.bucket, before, upload, &mut go_on);
        Ok(archived)
    }

    /// Adds the parts of a view that the last backup has, and that were not uploaded anew.
    fn add_known(
        &self,
        view: &View,
        parts: &mut BTreeMap<PartName, Place>,
        objects: &mut BTreeMap<(Upload, u32), Object>,
    ) {
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
    }

    /// Begins to follow a store: [`ship`](Self::ship) and [`backup`](Self::backup) then ship its
    /// commits behind the previous backup. So the store can be restored to any moment.
    ///
    /// # Errors
    /// [`Error::Store`] where the store is open for reading only; [`Error::OtherStore`].
    pub fn follow(&mut self, store: &Store) -> Result<(), Error> {
        self.expect(store.info()?.id)?;
        self.shipping = Some(Shipping::begin(store)?);
        Ok(())
    }

    /// Ships the commits since the last call of a store that is [followed](Self::follow), as one
    /// object; ships nothing if nothing was committed. Returns `None` if a [backup](Self::backup)
    /// must come first: at the beginning, and after more than 256 MiB of commits since the last
    /// backup. No commit is lost in these cases.
    ///
    /// # Errors
    /// [`Error::Lost`] until the next backup, where some commits cannot be shipped: more than 64
    /// MiB of commits waited in memory, or logs were imported. The next backup has those commits,
    /// but no moment of the time in between can be restored. [`Error::Owned`]; [`Error::Bucket`]:
    /// the next call sends the object again.
    pub fn ship(&mut self) -> Result<Option<Shipped>, Error> {
        let _span = tracing::debug_span!("ship", bucket = %self.bucket).entered();
        // The answer to the creation of a backup may have been lost.
        if let Some(store) = self.store.filter(|_| !self.note.memory.tried.is_empty()) {
            self.look(store)?;
        }
        let shipped = self.shipping.as_mut().map_or(Ok(None), |shipping| shipping.ship(&self.bucket));
        shipped.map_err(|error| self.unless_own(error))
    }

    /// Removes runs from the store's volume, the oldest first, until the runs on the volume take
    /// `most` bytes or less. The store then reads the removed runs from the bucket, and must be
    /// opened with [`Parts`]. Removes only runs that the last backup has; reads each one back and
    /// checks it first. See [`Store::offload`], also about `progress`.
    ///
    /// The archive keeps the data that the store needs, as each backup refers to it. Another host
    /// that takes the archive over, with the same store, does not know which data this host needs.
    ///
    /// # Errors
    /// [`Error::Owned`], [`Error::OtherStore`]; [`Error::Bucket`]; [`Error::Note`];
    /// [`Error::Store`], also where an object in the bucket is missing or damaged. The runs that
    /// were removed before the error are in the bucket; all others are unchanged.
    pub fn offload(
        &mut self,
        store: &Store,
        most: u64,
        progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<OffloadReport, Error> {
        let _span = tracing::info_span!("offload", bucket = %self.bucket, most).entered();
        let id = store.info()?.id;
        self.expect(id)?;
        self.look(id)?;
        self.expect_latest()?;
        let Some(latest) = self.latest.clone() else { return Ok(OffloadReport::default()) };
        expect_no_next(&self.bucket, latest.number).map_err(|error| self.unless_own(error))?;
        let parts = self.parts.get_or_insert_with(|| Parts::new(&self.bucket, READ_AHEAD));
        let located = parts.of(Arc::new(latest));
        Ok(store.offload(most, |name| located.find(name), progress)?)
    }

    /// Removes backups that are older than `keep`, and all objects that only those backups need.
    /// Keeps the newest backup that is older than `keep`: with it the store can be restored as of
    /// the start of that time. Ages are by the bucket's clock, up to the newest backup. A backup
    /// with an earlier time than a backup before it has no known age: it stays until a later backup
    /// is old enough. With `dry_run`, only reports what would be removed.
    ///
    /// # Errors
    /// [`Error::Bucket`]; [`Error::Damaged`] where the oldest record that stays cannot be read.
    /// After an error the archive still has all objects that it needs.
    pub fn prune(&mut self, keep: Duration, dry_run: bool) -> Result<Pruned, Error> {
        self.prune_while(keep, dry_run, &|| ControlFlow::Continue(()))
    }

    /// [Prunes](Self::prune), until `go_on` returns `Break`. It is called before each request that
    /// removes something.
    ///
    /// # Errors
    /// The errors of [`prune`](Self::prune); [`Error::Cancelled`]. Objects of backups that are gone
    /// may then stay until a later call removes further backups.
    pub fn prune_while(
        &mut self,
        keep: Duration,
        dry_run: bool,
        go_on: &dyn Fn() -> ControlFlow<()>,
    ) -> Result<Pruned, Error> {
        let _span = tracing::info_span!("prune", bucket = %self.bucket, dry_run).entered();
        prune::prune(&self.bucket, keep, dry_run, go_on)
    }

    /// Refuses any store but the archive's own.
    fn expect(&mut self, store: u128) -> Result<(), Error> {
        let archive = *self.store.get_or_insert(store);
        if archive == store || bug("any-store-is-taken") {
            return Ok(());
        }
        Err(Error::OtherStore { archive, store })
    }

    /// Finds the last backup, and checks that it is this host's.
    fn look(&mut self, store: u128) -> Result<(), Error> {
        let known = self.latest.as_ref().map(Record::upload).or(self.note.memory.last);
        if self.opened && self.note.memory.tried.is_empty() {
            return Ok(());
        }
        let Some(latest) = find_latest(&self.bucket, known.map(|known| known.number))? else {
            // The bucket has no backups, or has lost them.
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

    /// Sets the backup that the archive goes on from.
    fn go_on_from(&mut self, record: Record) -> Result<(), Error> {
        if self.note.memory.last != Some(record.upload()) {
            self.note.set(Memory { last: Some(record.upload()), ..Memory::default() })?;
        }
        self.shipping.iter_mut().for_each(|shipping| shipping.expect_base(record.upload()));
        self.latest = Some(record);
        // The caller's permission holds once: from here on the archive belongs to this host, until
        // another host takes it over.
        self.take_over = false;
        Ok(())
    }

    /// Returns the place of a part in the last backup, damaged or not.
    fn there(&self, name: &PartName) -> Option<(&Record, &Place)> {
        let latest = self.latest.as_ref().filter(|latest| latest.object_len == OBJECT as u64)?;
        Some((latest, latest.parts.get(name)?))
    }

    /// Returns the figures of a backup of a view, and the parts that are new in it.
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
                // A commit may change nothing in the parts.
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

    /// Checks that the backup that this host continues from still exists. If that backup is gone,
    /// other hosts wrote backups after it, and may have removed theirs; so the numbers prove
    /// nothing.
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

    /// Returns the error of a call that found a backup of another host. If it is this host's own
    /// backup, whose creation took effect late, the next call continues from that backup.
    fn unless_own(&self, error: Error) -> Error {
        let Error::Owned { number, .. } = error else { return error };
        match read_record(&self.bucket, number) {
            Ok(found) if self.note.memory.wrote(found.upload()) => {
                let name = name_of(number);
                let source = "an earlier attempt of this host took effect late; try again".into();
                let doing = format!("creating {}", self.bucket.full(&name));
                Error::Bucket { doing, cause: object_store::Error::AlreadyExists { path: name, source } }
            }
            _ => error,
        }
    }

    /// Creates the record of a backup, unless another host was first.
    fn create(&mut self, record: Record) -> Result<(), Error> {
        let mut memory =
            Memory { last: self.latest.as_ref().map(Record::upload), ..self.note.memory.clone() };
        memory.tried.insert(record.drawn);
        // Stored before any request: after a crash, the next process must find out whether this
        // attempt succeeded.
        self.note.set(memory)?;
        let (name, data) = (name_of(record.number), bytes::Bytes::from(record.encode()));
        self.expect_latest()?;
        let mut pauses = PAUSES.iter();
        loop {
            let failed = match self.bucket.create(&name, data.clone()) {
                Ok(Created::Done) => return self.go_on_from(record),
                Ok(Created::Exists(error)) => error,
                Err(error) if is_denied(&error) => return Err(error),
                Err(error) => error,
            };
            // An earlier attempt may have succeeded although its answer was lost.
            if let Some(found) = self.bucket.get(&name, None)? {
                if found == data {
                    return self.go_on_from(record);
                }
                return Err(self.unless_own(owned(record.number, Record::decode(&found).ok())));
            }
            // A service may refuse a create before it shows the object of another one, and that
            // one may still fail.
            match pauses.next() {
                Some(pause) => self.bucket.pause(*pause)?,
                None => return Err(failed),
            }
        }
    }
}

fn owned(number: u64, found: Option<Record>) -> Error {
    Error::Owned { owner: found.map_or("another host".into(), |found| found.owner), number }
}

fn cancelled() -> Error {
    Error::Cancelled { what: "the backup" }
}

fn is_denied(error: &Error) -> bool {
    use object_store::Error::{NotImplemented, NotSupported, PermissionDenied, Unauthenticated};
    let Error::Bucket { cause, .. } = error else { return false };
    matches!(
        cause,
        PermissionDenied { .. } | Unauthenticated { .. } | NotSupported { .. } | NotImplemented { .. }
    )
}

/// Returns whether a view reads from the same parts as a backup.
fn same_parts(record: &Record, view: &View) -> bool {
    let names: BTreeSet<PartName> = view.parts().iter().map(Part::name).collect();
    names.iter().eq(record.names())
}

fn draw() -> u128 {
    u128::from(system_seed()) << 64 | u128::from(system_seed())
}
