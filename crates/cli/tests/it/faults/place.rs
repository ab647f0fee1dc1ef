//! Where a store is: read-only file systems, forbidden directories, names of odd bytes, and things
//! that are no files.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::unlocked;
use crate::faults::fault;
use crate::faults::machine::{Ext4, Mount, as_root, is_root, run};
use crate::faults::writer::{BROOKLET, Log};

/// Read-only from before, and an attempt to make it so under an open store. What was left unclosed
/// is read all the same.
#[test]
fn read_only_file_system() {
    fault("read-only file system", || {
        for ext4 in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let at = dir.path().join("m");
            let _disk =
                if ext4 { Some(Ext4::make(&dir.path().join("image"), 32 << 20, &at, &[])?) } else { None };
            let mount = if ext4 { None } else { Some(Mount::tmpfs(&at, "size=32M")?) };
            let remount = |how: &str| run("mount", &["-o", &format!("remount,{how}"), at.to_str().unwrap()]);
            let mut log = Log::create(at.join("s"), 900);
            let mut writer = log.start();
            assert!(writer.append(300));
            let busy = remount("ro").expect_err("a file is open for writing");
            assert!(busy.contains("busy"), "{busy}");
            assert!(writer.append(100), "the attempt does no harm");
            writer.child.kill().unwrap();
            log.take(writer);
            unlocked(&log.store);
            remount("ro")?;
            log.append(&[], 1).refused(&[4, 7], "Read-only file system");
            log.reads();
            log.run(&[], &["list"]).ok();
            let missing = Log { store: at.join("new"), first: 0, acked: 0 };
            missing.run(&[], &["append", "log", "x"]).refused(&[4, 7], "Read-only file system");
            remount("rw")?;
            log.holds();
            drop(mount);
        }
        Ok(6)
    });
}

/// Runs a copy of the command as somebody who owns nothing, where this process may become that.
fn as_nobody(program: &Path, args: &[&str], store: &Path) -> Output {
    let mut command = Command::new(program);
    command.arg(args[0]).arg(store).args(&args[1..]).env("RUST_LOG", "error");
    // Else a profile, where one is taken, would be refused in words of its own.
    command.env("LLVM_PROFILE_FILE", "/dev/null").current_dir("/");
    if is_root() {
        command.uid(65_534).gid(65_534);
    }
    command.output().unwrap()
}

#[test]
fn no_permission() {
    fault("no permission", || {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("brooklet");
        fs::copy(BROOKLET, &program).unwrap();
        let room = dir.path().join("room");
        fs::create_dir(&room).unwrap();
        let mut log = Log::create(room.join("s"), 10);
        let mode = |path: &Path, mode: u32| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        mode(dir.path(), 0o755);
        let refused = |args: &[&str], store: &Path| {
            let output = as_nobody(&program, args, store);
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(
                output.status.code() == Some(4) && told.contains("Permission denied"),
                "{args:?}: {output:?}"
            );
            assert!(told.contains(store.to_str().unwrap()), "{told}");
        };
        mode(&room, 0o555);
        refused(&["append", "log", "x"], &room.join("new"));
        assert_eq!(fs::read_dir(&room).unwrap().count(), 1);
        mode(&log.store, 0o000);
        refused(&["list"], &log.store);
        refused(&["append", "log", "x"], &log.store);
        mode(&log.store, 0o444);
        refused(&["append", "log", "x"], &log.store);
        let listed = as_nobody(&program, &["list"], &log.store);
        assert!(listed.status.success(), "reading is allowed: {listed:?}");
        mode(&room, 0o000);
        refused(&["list"], &log.store);
        mode(&room, 0o755);
        mode(&log.store, 0o644);
        log.holds();
        Ok(6)
    });
}

#[test]
fn odd_names() {
    fault("odd names", || {
        let names: [&[u8]; 8] = [
            b"with a space",
            b"new\nline",
            b"-dash",
            b"\xff\xfe not text",
            "\u{1f4a7} \u{202e}".as_bytes(),
            b"'$(quoted)\"\\",
            b"\t\x07\x1b[31m",
            &[b'n'; 200],
        ];
        for name in names {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join(OsString::from_vec(name.to_vec()));
            let mut log = Log::create(&path, 40);
            assert!(path.exists());
            log.holds();
            // Its name by itself, from where it lies.
            let mut command = Command::new(BROOKLET);
            command.args(["list", "--"]).arg(path.file_name().unwrap()).current_dir(dir.path());
            assert!(command.output().unwrap().status.success());
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left there");
        }
        let dir = tempfile::tempdir().unwrap();
        for len in [255, 300] {
            let log = Log { store: dir.path().join("n".repeat(len)), first: 0, acked: 0 };
            log.run(&[], &["append", "log", "x"]).refused(&[2, 7], "File name too long");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        Ok(names.len() as u32 + 2)
    });
}

/// Nothing is opened that waits, answers or rings a bell when it is opened; nothing that is not
/// ours is touched.
#[test]
fn no_files() {
    fault("things that are no files", || {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        run("mkfifo", &[at("pipe").to_str().unwrap()])?;
        let _listener = UnixListener::bind(at("socket")).unwrap();
        fs::write(at("letter"), "Dear reader, ".repeat(20_000)).unwrap();
        fs::write(at("short"), "x").unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        symlink("circle", at("circle")).unwrap();
        let mut things = 0;
        for (path, words) in [
            (at("pipe"), "neither a file nor a block device"),
            (at("socket"), "neither a file nor a block device"),
            ("/dev/null".into(), "neither a file nor a block device"),
            ("/dev/full".into(), "neither a file nor a block device"),
            (dir.path().into(), "it is a directory"),
            (at("letter"), "does not start with a superblock"),
            (at("short"), "it has 1 bytes"),
            (at("circle"), "symbolic links"),
            (at("letter/below"), "Not a directory"),
            (at("none/below"), "No such file"),
        ] {
            let log = Log { store: path, first: 0, acked: 0 };
            log.run(&[], &["list"]).refused(&[4, 7], words);
            log.run(&[], &["append", "log", "x"]).refused(&[4, 7], words);
            things += 1;
        }
        // What is not there yet is made where the link leads.
        let dangling = Log { store: at("dangling"), first: 0, acked: 0 };
        dangling.run(&[], &["list"]).refused(&[4, 7], "it is a symbolic link to");
        dangling.run(&[], &["append", "log", "x"]).ok();
        dangling.run(&[], &["list"]).ok();
        assert_eq!(fs::read(at("letter")).unwrap().len(), 260_000);
        let mut log = Log::create(at("s"), 30);
        symlink("s", at("link")).unwrap();
        log.store = at("link");
        log.holds();
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
        Ok(things + 1)
    });
}

/// Mounted over, the store is out of sight; the process that has it open goes on, and it is there
/// again afterwards.
#[test]
fn mounted_over() {
    fault("mounted over", || {
        as_root()?;
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("m");
        fs::create_dir(&at).unwrap();
        let mut log = Log::create(at.join("s"), 100);
        let mut writer = log.start();
        assert!(writer.append(50));
        let mount = Mount::tmpfs(&at, "size=1M")?;
        log.run(&[], &["list"]).refused(&[4], "No such file");
        assert!(writer.append(50));
        log.take(writer).ok();
        drop(mount);
        log.holds();
        Ok(1)
    });
}
