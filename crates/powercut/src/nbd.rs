//! A server of network block devices, whose one export is a [`Drive`].
//!
//! The part of the NBD protocol (`doc/proto.md` of the NetworkBlockDevice project) that a virtual
//! machine's disk needs, all numbers big-endian:
//!
//! | step | bytes |
//! | --- | --- |
//! | server's greeting | `NBDMAGIC`, `IHAVEOPT`, u16 flags (fixed newstyle, no zeroes) |
//! | client's answer | u32 flags |
//! | option | `IHAVEOPT`, u32 option, u32 length, data |
//! | its reply | u64 magic, u32 option, u32 kind, u32 length, data |
//! | request | u32 magic, u16 flags, u16 command, u64 cookie, u64 offset, u32 length, data of a write |
//! | its reply | u32 magic, u32 error, u64 cookie, data of a read |
//!
//! `GO`, `INFO` and `EXPORT_NAME` find the export under any name. Several threads carry out
//! requests, and answer each request when it ends. A write with `FUA` is durable when it is
//! answered; `FLUSH` makes all previously answered writes durable; `TRIM` is a hint, which the
//! server ignores.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

use brooklet::io::Persist;

use crate::drive::Drive;

const GREETING: u64 = 0x4e42_444d_4147_4943;
const OPTION: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;

const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 2;

const OPT_EXPORT_NAME: u32 = 1;
const OPT_ABORT: u32 = 2;
const OPT_INFO: u32 = 6;
const OPT_GO: u32 = 7;

const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const REP_ERR_UNSUP: u32 = 1 << 31 | 1;
const REP_ERR_INVALID: u32 = 1 << 31 | 3;
const INFO_EXPORT: u16 = 0;

/// Flags of the export: it supports flushes, `FUA` and trims.
const EXPORT_FLAGS: u16 = 1 | 1 << 2 | 1 << 3 | 1 << 5;

const CMD_READ: u16 = 0;
const CMD_WRITE: u16 = 1;
const CMD_DISC: u16 = 2;
const CMD_FLUSH: u16 = 3;
const CMD_TRIM: u16 = 4;
const CMD_FLAG_FUA: u16 = 1;

const EIO: u32 = 5;
const EINVAL: u32 = 22;

/// Longest accepted option and transfer, in bytes.
const MAX_OPTION: u32 = 4096;
const MAX_TRANSFER: u32 = 32 << 20;
/// Number of requests of a connection that are carried out at once.
const THREADS: usize = 3;

/// A server that lives as long as the process; each connection uses the drive that is served at its
/// beginning.
#[derive(Clone)]
pub struct Server {
    drive: Arc<Mutex<Arc<Drive>>>,
}

impl Server {
    /// Listens at `socket`, and serves `drive`.
    pub fn start(socket: &Path, drive: Arc<Drive>) -> io::Result<Self> {
        let listener = UnixListener::bind(socket)?;
        let server = Self { drive: Arc::new(Mutex::new(drive)) };
        let serving = server.clone();
        thread::Builder::new().name("nbd".into()).spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let drive = serving.drive.lock().unwrap_or_else(PoisonError::into_inner).clone();
                // A client that ends without a goodbye was killed, as the test intends.
                thread::spawn(move || drop(converse(client, &drive)));
            }
        })?;
        Ok(server)
    }

    /// Serves another drive from the next connection on.
    pub fn serve(&self, drive: Arc<Drive>) {
        *self.drive.lock().unwrap_or_else(PoisonError::into_inner) = drive;
    }
}

/// Serves a client until it leaves.
fn converse(mut client: UnixStream, drive: &Drive) -> io::Result<()> {
    if !negotiate(&mut client, drive.size())? {
        return Ok(());
    }
    let replies = Mutex::new(client.try_clone()?);
    let (sender, requests) = mpsc::sync_channel::<Request>(64);
    let requests = Mutex::new(requests);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let next = requests.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(request) = next else { return };
                    let reply = request.carry_out(drive);
                    let mut replies = replies.lock().unwrap_or_else(PoisonError::into_inner);
                    // The thread that reads notices a client that has gone.
                    let _ = replies.write_all(&reply);
                }
            });
        }
        let sender = sender;
        while let Some(request) = Request::read(&mut client)? {
            sender.send(request).expect("the threads outlive the sender");
        }
        Ok(())
    })
}

/// Negotiates the export; returns `false` if the client wants none.
fn negotiate(client: &mut (impl Read + Write), size: u64) -> io::Result<bool> {
    let mut greeting = GREETING.to_be_bytes().to_vec();
    greeting.extend(OPTION.to_be_bytes());
    greeting.extend((FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
    client.write_all(&greeting)?;
    let flags = u32::from_be_bytes(read(client)?);
    let mut export = size.to_be_bytes().to_vec();
    export.extend(EXPORT_FLAGS.to_be_bytes());
    loop {
        if u64::from_be_bytes(read(client)?) != OPTION {
            return Err(broken("an option without its magic number"));
        }
        let option = u32::from_be_bytes(read(client)?);
        let len = u32::from_be_bytes(read(client)?);
        let data = read_vec(client, len, MAX_OPTION)?;
        match option {
            OPT_EXPORT_NAME => {
                if flags & u32::from(NO_ZEROES) == 0 {
                    export.extend([0; 124]);
                }
                client.write_all(&export)?;
                return Ok(true);
            }
            // The data holds at least a name's length, the name, and the number of information
            // requests.
            OPT_INFO | OPT_GO if data.len() < 6 => {
                client.write_all(&option_reply(option, REP_ERR_INVALID, &[]))?
            }
            OPT_INFO | OPT_GO => {
                let info = [&INFO_EXPORT.to_be_bytes()[..], &export].concat();
                client.write_all(&option_reply(option, REP_INFO, &info))?;
                client.write_all(&option_reply(option, REP_ACK, &[]))?;
                if option == OPT_GO {
                    return Ok(true);
                }
            }
            OPT_ABORT => {
                client.write_all(&option_reply(option, REP_ACK, &[]))?;
                return Ok(false);
            }
            _ => client.write_all(&option_reply(option, REP_ERR_UNSUP, &[]))?,
        }
    }
}

fn option_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut reply = OPTION_REPLY.to_be_bytes().to_vec();
    for number in [option, kind, data.len() as u32] {
        reply.extend(number.to_be_bytes());
    }
    reply.extend(data);
    reply
}

/// A request, with the data of a write.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    flags: u16,
    command: u16,
    cookie: u64,
    offset: u64,
    len: u32,
    data: Vec<u8>,
}

impl Request {
    /// Reads a request; returns `None` if the client disconnects properly.
    fn read(client: &mut impl Read) -> io::Result<Option<Self>> {
        if u32::from_be_bytes(read(client)?) != REQUEST {
            return Err(broken("a request without its magic number"));
        }
        let mut request = Self {
            flags: u16::from_be_bytes(read(client)?),
            command: u16::from_be_bytes(read(client)?),
            cookie: u64::from_be_bytes(read(client)?),
            offset: u64::from_be_bytes(read(client)?),
            len: u32::from_be_bytes(read(client)?),
            data: Vec::new(),
        };
        if request.command == CMD_WRITE {
            request.data = read_vec(client, request.len, MAX_TRANSFER)?;
        }
        Ok((request.command != CMD_DISC).then_some(request))
    }

    /// Carries out the request; returns the reply.
    fn carry_out(&self, drive: &Drive) -> Vec<u8> {
        let persist = if self.flags & CMD_FLAG_FUA == 0 { Persist::Cached } else { Persist::Durable };
        let done = match self.command {
            CMD_READ if self.len <= MAX_TRANSFER => {
                let mut data = vec![0; self.len as usize];
                match drive.read(self.offset, &mut data) {
                    Ok(len) if len == data.len() => Ok(data),
                    Ok(_) => Err(EINVAL),
                    Err(_) => Err(EIO),
                }
            }
            CMD_WRITE => match drive.write(self.offset, &self.data, persist) {
                Ok(len) if len == self.data.len() => Ok(Vec::new()),
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(EINVAL),
                _ => Err(EIO),
            },
            CMD_FLUSH => drive.flush().map(|()| Vec::new()).map_err(|_| EIO),
            CMD_TRIM => Ok(Vec::new()),
            _ => Err(EINVAL),
        };
        let mut reply = REPLY.to_be_bytes().to_vec();
        reply.extend(done.as_ref().err().unwrap_or(&0).to_be_bytes());
        reply.extend(self.cookie.to_be_bytes());
        reply.extend(done.unwrap_or_default());
        reply
    }
}

fn read<const N: usize>(client: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    client.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_vec(client: &mut impl Read, len: u32, most: u32) -> io::Result<Vec<u8>> {
    if len > most {
        return Err(broken("more at once than is taken"));
    }
    let mut bytes = vec![0; len as usize];
    client.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 1 << 20;

    /// A client whose conversation with a server of `drive` has got past the greeting.
    fn connect(drive: &Arc<Drive>) -> UnixStream {
        let (mut client, server) = UnixStream::pair().unwrap();
        let drive = drive.clone();
        thread::spawn(move || drop(converse(server, &drive)));
        assert_eq!(read(&mut client).unwrap(), *b"NBDMAGICIHAVEOPT\0\x03");
        client.write_all(&3u32.to_be_bytes()).unwrap();
        client
    }

    fn option(client: &mut UnixStream, option: u32, data: &[u8]) {
        client.write_all(b"IHAVEOPT").unwrap();
        client.write_all(&option.to_be_bytes()).unwrap();
        client.write_all(&(data.len() as u32).to_be_bytes()).unwrap();
        client.write_all(data).unwrap();
    }

    /// The kind and the data of a reply to an option.
    fn reply(client: &mut UnixStream, option: u32) -> (u32, Vec<u8>) {
        assert_eq!(u64::from_be_bytes(read(client).unwrap()), 0x3e889045565a9);
        assert_eq!(u32::from_be_bytes(read(client).unwrap()), option);
        let kind = u32::from_be_bytes(read(client).unwrap());
        let len = u32::from_be_bytes(read(client).unwrap());
        (kind, read_vec(client, len, MAX_OPTION).unwrap())
    }

    fn go(drive: &Arc<Drive>) -> UnixStream {
        let mut client = connect(drive);
        option(&mut client, OPT_GO, &[0, 0, 0, 1, b'x', 0, 0]);
        let (kind, info) = reply(&mut client, OPT_GO);
        assert_eq!((kind, &info[..2], &info[2..10]), (3, &[0, 0][..], &(SIZE as u64).to_be_bytes()[..]));
        assert_eq!(info[10..], [0, 0b10_1101]);
        assert_eq!(reply(&mut client, OPT_GO), (1, vec![]));
        client
    }

    /// The error, and `len` bytes if there was none.
    fn ask(
        client: &mut UnixStream,
        command: [u16; 2],
        offset: u64,
        data: Result<&[u8], u32>,
    ) -> (u32, Vec<u8>) {
        let [command, flags] = command;
        let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
        request.extend(flags.to_be_bytes());
        request.extend(command.to_be_bytes());
        request.extend(77_u64.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(data.map_or_else(|len| len, |data| data.len() as u32).to_be_bytes());
        request.extend(data.unwrap_or_default());
        client.write_all(&request).unwrap();
        assert_eq!(u32::from_be_bytes(read(client).unwrap()), 0x6744_6698);
        let error = u32::from_be_bytes(read(client).unwrap());
        assert_eq!(u64::from_be_bytes(read(client).unwrap()), 77);
        let len = if error == 0 { data.err().unwrap_or(0) } else { 0 };
        (error, read_vec(client, len, MAX_TRANSFER).unwrap())
    }

    /// Whether the server hangs up, maybe with something of ours unread.
    fn has_left(client: &mut UnixStream) -> bool {
        client.read(&mut [0]).map_or_else(|e| e.kind() == io::ErrorKind::ConnectionReset, |len| len == 0)
    }

    fn drive() -> Arc<Drive> {
        Arc::new(Drive::new(vec![0; SIZE], 1))
    }

    #[test]
    fn options_are_haggled_over() {
        let mut client = connect(&drive());
        option(&mut client, 8, b"structured replies");
        assert_eq!(reply(&mut client, 8), (REP_ERR_UNSUP, vec![]));
        option(&mut client, OPT_INFO, &[]);
        assert_eq!(reply(&mut client, OPT_INFO), (REP_ERR_INVALID, vec![]));
        option(&mut client, OPT_INFO, &[0; 6]);
        assert_eq!(reply(&mut client, OPT_INFO).0, REP_INFO);
        assert_eq!(reply(&mut client, OPT_INFO).0, REP_ACK);
        option(&mut client, OPT_EXPORT_NAME, b"any");
        assert_eq!(u64::from_be_bytes(read(&mut client).unwrap()), SIZE as u64);
        assert_eq!(u16::from_be_bytes(read(&mut client).unwrap()), EXPORT_FLAGS);
        assert_eq!(ask(&mut client, [CMD_READ, 0], 0, Err(16)), (0, vec![0; 16]));

        let mut client = connect(&drive());
        option(&mut client, OPT_ABORT, &[]);
        assert_eq!(reply(&mut client, OPT_ABORT).0, REP_ACK);
        assert!(has_left(&mut client), "the server leaves, too");
    }

    #[test]
    fn writes_are_durable_when_flushed_or_forced() {
        let drive = drive();
        let mut client = go(&drive);
        assert_eq!(ask(&mut client, [CMD_WRITE, 0], 512, Ok(&[1; 512])).0, 0);
        assert_eq!(ask(&mut client, [CMD_READ, 0], 0, Err(1024)).1[512..], [1; 512]);
        assert!((0..64).any(|_| drive.crash()[512..1024] == [0; 512]), "it may be lost");
        assert_eq!(ask(&mut client, [CMD_FLUSH, 0], 0, Err(0)).0, 0);
        assert_eq!(ask(&mut client, [CMD_WRITE, CMD_FLAG_FUA], 0, Ok(&[2; 512])).0, 0);
        let after = [[2; 512], [1; 512]].concat();
        assert!((0..64).all(|_| drive.crash()[..1024] == after));
    }

    #[test]
    fn what_cannot_be_is_an_error() {
        let drive = drive();
        let mut client = go(&drive);
        let end = SIZE as u64;
        assert_eq!(ask(&mut client, [CMD_WRITE, 0], end - 1, Ok(&[1; 2])).0, EINVAL);
        assert_eq!(ask(&mut client, [CMD_READ, 0], end - 1, Err(2)).0, EINVAL);
        assert_eq!(ask(&mut client, [CMD_READ, 0], 0, Err(u32::MAX)).0, EINVAL);
        assert_eq!(ask(&mut client, [99, 0], 0, Err(0)).0, EINVAL);
        assert_eq!(ask(&mut client, [CMD_TRIM, 0], 0, Ok(&[])).0, 0);
        drive.power_off();
        assert_eq!(ask(&mut client, [CMD_READ, 0], 0, Err(512)).0, EIO);
        assert_eq!(ask(&mut client, [CMD_WRITE, 0], 0, Ok(&[1; 512])).0, EIO);
        assert_eq!(ask(&mut client, [CMD_FLUSH, 0], 0, Err(0)).0, EIO);
    }

    #[test]
    fn nonsense_ends_the_conversation() {
        let mut client = connect(&drive());
        client.write_all(&[7; 16]).unwrap();
        assert!(has_left(&mut client));
        let mut client = go(&drive());
        client.write_all(&[7; 28]).unwrap();
        assert!(has_left(&mut client));
        let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
        bytes.extend([0, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 2, 0]);
        let trim = Request { flags: 1, command: 4, cookie: 9, offset: 512, len: 512, data: vec![] };
        assert_eq!(Request::read(&mut &bytes[..]).unwrap(), Some(trim));
        bytes[7] = CMD_DISC as u8;
        assert_eq!(Request::read(&mut &bytes[..]).unwrap(), None);
        assert!(Request::read(&mut &bytes[..20]).is_err());
    }
}
