//! A FUSE file system with one file, whose bytes are a [`Drive`].
//!
//! The file may have several names, because a store is created under one name and gets its final
//! name by a link. Names are durable immediately; bytes are durable only after an `fsync`. Every
//! read and write reaches this file system (`FOPEN_DIRECT_IO`), direct or not: the page cache above
//! would hide the drive's errors and outlive its power.
//!
//! Data sync by flag (`O_DSYNC`, `RWF_DSYNC`) has no effect: for direct I/O, the kernel does not
//! pass the flag on.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brooklet::io::Persist;
use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use crate::drive::Drive;

/// The only file.
const FILE: INodeNo = INodeNo(2);
/// Lifetime of the kernel's caches: it caches nothing.
const TTL: Duration = Duration::ZERO;
/// Number of requests served at once.
const THREADS: usize = 3;

/// The names of the file.
pub type Names = Arc<Mutex<BTreeSet<OsString>>>;

/// Mounts a file system whose file is `drive` on the directory `at`.
pub fn mount(drive: Arc<Drive>, names: Names, at: &Path) -> io::Result<BackgroundSession> {
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("brooklet-powercut".into())];
    config.n_threads = Some(THREADS);
    fuser::spawn_mount(OneFile { drive, names }, at, &config)
}

struct OneFile {
    drive: Arc<Drive>,
    names: Names,
}

impl OneFile {
    fn names(&self) -> MutexGuard<'_, BTreeSet<OsString>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self) -> FileAttr {
        FileAttr { size: self.drive.size(), nlink: self.names().len() as u32, ..attributes(FILE) }
    }

    fn attr(&self, ino: INodeNo) -> FileAttr {
        if ino == FILE { self.file() } else { attributes(INodeNo::ROOT) }
    }

    fn grow(&self, size: u64) -> io::Result<()> {
        if size > self.drive.size() { self.drive.grow(size) } else { Ok(()) }
    }
}

/// Attributes that never change.
fn attributes(ino: INodeNo) -> FileAttr {
    let (kind, perm) =
        if ino == FILE { (FileType::RegularFile, 0o600) } else { (FileType::Directory, 0o700) };
    FileAttr {
        ino,
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm,
        nlink: 2,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn errno(error: &io::Error) -> Errno {
    match error.kind() {
        io::ErrorKind::StorageFull => Errno::ENOSPC,
        io::ErrorKind::InvalidInput => Errno::EINVAL,
        _ => Errno::EIO,
    }
}

fn end(result: io::Result<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

fn open_flags() -> FopenFlags {
    FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
}

impl Filesystem for OneFile {
    fn lookup(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if self.names().contains(name) {
            reply.entry(&TTL, &self.file(), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attr(ino));
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match size.map_or(Ok(()), |size| self.drive.resize(size)) {
            Ok(()) => reply.attr(&TTL, &self.attr(ino)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Refuses a second file: the file system has no room.
    fn create(
        &self,
        _req: &Request,
        _parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        if !self.names().is_empty() {
            return reply.error(Errno::ENOSPC);
        }
        self.names().insert(name.to_owned());
        reply.created(&TTL, &self.file(), Generation(0), FileHandle(0), open_flags());
    }

    fn link(&self, _req: &Request, _ino: INodeNo, _newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        if self.names().insert(newname.to_owned()) {
            reply.entry(&TTL, &self.file(), Generation(0));
        } else {
            reply.error(Errno::EEXIST);
        }
    }

    fn rename(
        &self,
        _req: &Request,
        _parent: INodeNo,
        name: &OsStr,
        _newparent: INodeNo,
        newname: &OsStr,
        _flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if self.names().remove(name) {
            self.names().insert(newname.to_owned());
            reply.ok();
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn unlink(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if self.names().remove(name) { reply.ok() } else { reply.error(Errno::ENOENT) }
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), open_flags());
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut data = vec![0; size as usize];
        match self.drive.read(offset, &mut data) {
            Ok(len) => reply.data(&data[..len]),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let grown = self.grow(offset + data.len() as u64);
        match grown.and_then(|()| self.drive.write(offset, data, Persist::Cached)) {
            Ok(len) => reply.written(len as u32),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn fallocate(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if mode != 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        end(self.grow(offset + length), reply);
    }

    /// Sent at every close; it is not a sync and promises nothing.
    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        end(self.drive.flush(), reply);
    }

    fn fsyncdir(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        for (i, name) in self.names().iter().enumerate().skip(offset as usize) {
            if reply.add(FILE, i as u64 + 1, FileType::RegularFile, name) {
                break;
            }
        }
        reply.ok();
    }
}
