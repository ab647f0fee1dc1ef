//! Writes the seeds: inputs made by the real encoders, from which a fuzzer starts.
//!
//! ```sh
//! cd fuzz && RUSTFLAGS="--cfg fuzzing" cargo +nightly run --example seeds
//! ```

use std::fs;
use std::path::Path;

use brooklet::fuzzing::{
    Change, Does, encode_manifest, encode_record, part_key, sample_manifests, write_piece,
};
use brooklet::{Bounds, io::SECTOR};
use brooklet_fuzz::log;
use brooklet_fuzz::store::samples;
use brooklet_wal::{Codec, Header};

fn main() -> std::io::Result<()> {
    superblocks()?;
    blocks()?;
    runs()?;
    formats()?;
    traces()?;
    arguments()?;
    entries()?;
    imports()?;
    parts()?;
    archives()?;
    commits()?;
    stores()?;
    resp()?;
    logs()
}

fn seed(target: &str, name: &str, parts: &[&[u8]]) -> std::io::Result<()> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    fs::create_dir_all(&dir)?;
    fs::write(dir.join(name), parts.concat())
}

/// A patch at an offset, as `brooklet_fuzz::patches` takes it.
fn patch(at: usize, bytes: &[u8]) -> Vec<u8> {
    let head = [(at as u32 | 1 << 31).to_le_bytes().as_slice(), &[bytes.len() as u8]].concat();
    [&head, bytes].concat()
}

fn entries() -> std::io::Result<()> {
    seed("entries", "tsv", &[&[0], b"oak\tquercus\nash\tfraxinus\n\nelm"])?;
    let json = br#"{"key": "a\u00e9", "value": {"n": [1, 2.5]}}"#;
    seed("entries", "json", &[&[1], json, b"\n", br#"{"value_base16": "00fF", "key_base16": ""}"#])?;
    seed("entries", "lengths", &[&[2], &[1, 0, 0, 0, 7, 2, 0, 0, 0, 8, 9], &[0; 8]])
}

fn imports() -> std::io::Result<()> {
    let log = br#"{"key": "a", "first": 3, "next": 4, "entries": 1, "retention": {"age_ms": 2000}}"#;
    let entry = br#"{"key": "a", "seq": 3, "text": "b\u0041"}"#;
    let other = br#"{"key_base16": "00fF", "json": {"n": [1, 2.5]}}"#;
    seed("import", "json", &[&[0], log, b"\n", entry, b"\n", other])?;
    seed("import", "csv", &[&[1], b"payload,key\n\"x, \"\"y\"\"\n\",a\n,b\n"])?;
    seed("import", "export", &[&[2], &[0, 0, 0, 1, 3], &[1, 1, 0, 1, b'x'], &[255, 0, 8, 1, 2]])?;
    seed("import", "made", &[&[3], &[6, 6, 0, b'a', 1, 0, 2, 0, 0, 2], &[7, 5, 0, b'a', 1, 1, 1, b'x', 0]])
}

fn parts() -> std::io::Result<()> {
    seed("parts", "sound", &[&[0, 0]])?;
    seed("parts", "part", &[&[2, 0], &[90, 0, 1, 7]])?;
    seed("parts", "table", &[&[1, 0], &100u32.to_le_bytes(), &[2, 9, 9]])?;
    seed("parts", "head", &[&[1, 0], &28u32.to_le_bytes(), &[3, 9, 9, 9]])
}

fn archives() -> std::io::Result<()> {
    seed("archive", "sound", &[&[1]])?;
    seed("archive", "record", &[&[2], &300u32.to_le_bytes(), &[2, 9, 9]])?;
    seed("archive", "head", &[&[2], &60u32.to_le_bytes(), &[3, 9, 9, 9]])?;
    seed("archive", "object", &[&[4], &60u32.to_le_bytes(), &[0; 36], &200u32.to_le_bytes(), &[3, 9, 9, 9]])?;
    let note = b"brooklet archive 1\n12 0123456789abcdef0123456789abcdef\nfedcba9876543210fedcba9876543210\n";
    seed("archive", "note", &[&[255], note])?;
    seed("archive", "nothing-noted", &[&[255], b"brooklet archive 1\n-\n"])
}

fn commits() -> std::io::Result<()> {
    seed("commits", "sound", &[&[0]])?;
    seed("commits", "until", &[&[2]])?;
    seed("commits", "head", &[&[1], &30u32.to_le_bytes(), &[3, 9, 9, 9]])?;
    seed("commits", "record", &[&[1], &60u32.to_le_bytes(), &[2, 9, 9]])
}

fn resp() -> std::io::Result<()> {
    let say = |who: u8, line: &str| [&[who, line.len() as u8 + 2], line.as_bytes(), b"\r\n"].concat();
    let talk = |name: &str, lines: &[&str]| {
        let mut said: Vec<Vec<u8>> = Vec::new();
        for (n, line) in lines.iter().enumerate() {
            // Now and then the store goes on, and time goes by.
            said.push(say(line.starts_with("BL").into(), line));
            said.push(vec![3, n as u8]);
        }
        seed("resp", name, &said.iter().map(Vec::as_slice).collect::<Vec<_>>())
    };
    talk(
        "lists",
        &[
            "BLPOP l 0",
            "RPUSH l a b c",
            "LPUSH l d",
            "LSET l 0 x",
            "LTRIM l 0 1",
            "LMOVE l k LEFT RIGHT",
            "LREM l 0 b",
        ],
    )?;
    talk(
        "streams",
        &[
            "XADD s * f v",
            "XGROUP CREATE s g 0",
            "XREADGROUP GROUP g c STREAMS s >",
            "XADD s MAXLEN 1 * f v",
            "XDEL s 1-1",
            "XACK s g 1-1",
        ],
    )?;
    talk(
        "values",
        &[
            "SET a 1 PX 50",
            "INCR a",
            "HSET h f v g w",
            "HDEL h f",
            "RENAME h k",
            "COPY k l",
            "EXPIRE k 1",
            "SETRANGE a 9 x",
        ],
    )?;
    talk(
        "transactions",
        &[
            "WATCH a",
            "MULTI",
            "SET a 1",
            "SELECT 3",
            "RPUSH l x",
            "EXEC",
            "FLUSHALL",
            "MSET a 1 b 2",
            "SCAN 0",
        ],
    )?;
    seed(
        "resp",
        "arrays",
        &[&[0, 24], b"*3\r\n$5\r\nRPUSH\r\n$1\r\nl\r\n$1", &[0, 5], b"\r\nx\r\n", &[2, 4], b"*9\r\n"],
    )
}

fn superblocks() -> std::io::Result<()> {
    let size = (1u64 << 30).to_le_bytes();
    for (n, sample) in samples().iter().enumerate() {
        let slot = |copy: usize| &sample.image[copy * SECTOR..copy * SECTOR + 176];
        seed("superblock", &format!("sound-{n}"), &[&[7], &size, &[9, 1], slot(0), slot(1), slot(2)])?;
    }
    let mut newer = samples()[0].image[..176].to_vec();
    newer[8] = 4;
    let old = &samples()[1].image[..176];
    seed("superblock", "newer", &[&[7], &size, &[0, 0], &newer, old])?;
    // The first sectors of the golden store of version 3, each behind its number.
    let golden = include_bytes!("../../crates/brooklet/tests/golden/v3.store");
    let slot = |copy: usize| &golden[4 + copy * (4 + SECTOR) + 4..][..176];
    seed("superblock", "apart", &[&[7], &size, &[9, 1], slot(0), slot(1), slot(2)])?;
    seed("superblock", "note", &[&[0], &size, &[0, 0], b"process 7 (brooklet)"])
}

fn blocks() -> std::io::Result<()> {
    let header = Header { store: 42, epoch: 1, seq: 1, ..Header::default() };
    let even: Vec<u8> = [vec![0xa0, 0x3e], vec![7; 8000]].concat();
    let brief = &b"\x05hello\x00\x02hi"[..];
    for (name, payload, codec) in
        [("raw", brief, Codec::Raw), ("lz4", &even, Codec::Lz4), ("zstd", &even, Codec::Zstd)]
    {
        let block = brooklet_wal::fuzzing::seal(payload, 3, Header { codec, ..header });
        let stored = Header::decode(&block).map_or(0, |(header, _)| header.stored_len as usize);
        seed("block", name, &[&[0], &block[..96 + stored]])?;
        seed("block", &format!("payload-{name}"), &[&[1, codec as u8], payload])?;
        let mut older = block[..96 + stored].to_vec();
        older[4] = 1;
        seed("block", &format!("{name}-version-1"), &[&[0], &older])?;
    }
    let lengths: Vec<u8> = (1..24).map(|n| n * 11).collect();
    // Clean or not, resealed or not, with blocks of all codecs; and with those of version 1.
    for flags in [24u8, 25, 26, 27, 28 | 2] {
        let flip = patch(40, &[0x55]);
        seed("block", &format!("ring-{flags}"), &[&[2, flags, 3, 5, 20], &lengths[..20]])?;
        seed("block", &format!("ring-{flags}-flip"), &[&[2, flags, 1, 0, 9], &lengths[..9], &flip])?;
    }
    seed("block", "ring-lap", &[&[2, 8, 2, 9, 23], &[90; 23]])
}

fn runs() -> std::io::Result<()> {
    for (n, shape) in
        [[0, 0, 0], [1, 0, 0xa0], [40, 0x3f, 0xa0], [120, 0x5b, 0xa1], [90, 0xf0, 0x02]].iter().enumerate()
    {
        for flags in [1, 3] {
            seed("run", &format!("shape-{n}-{flags}"), &[&[flags], shape])?;
            let patches = [patch(3, &[0xff]), patch(200, &[0, 0, 0, 0])].concat();
            seed("run", &format!("patched-{n}-{flags}"), &[&[flags], shape, &patches])?;
        }
        let sample =
            brooklet_fuzz::codex::sample(&mut arbitrary::Unstructured::new(shape)).expect("three bytes");
        if sample.file.len() < 8000 {
            seed("run", &format!("file-{n}"), &[&[0], &sample.file])?;
        }
    }
    Ok(())
}

fn formats() -> std::io::Result<()> {
    for (n, manifest) in sample_manifests().iter().enumerate() {
        let (bytes, _) = encode_manifest(manifest);
        seed("manifest", &format!("runs-{n}"), &[&[0], &bytes[..bytes.len() - 8]])?;
    }
    let before = Some(Bounds { first: 3, next: 900 });
    let change = |key: &[u8], does, before, payload: &[u8]| Change {
        key: key.to_vec(),
        does,
        before,
        terms: None,
        payload: payload.to_vec(),
    };
    let record = [
        change(b"a", Does::Append(900), before, b"hello"),
        change(b"a", Does::Trim(900), None, b""),
        change(b"b", Does::Truncate(5), before, b""),
        change(b"c", Does::Delete, None, b""),
        change(b"d", Does::Entries(8), None, b""),
        change(b"d", Does::Bytes(0), None, b""),
        change(b"d", Does::Age(1001), None, b""),
        change(b"d", Does::Mark(1 << 40), None, b""),
        change(b"f", Does::Begin(1 << 50), None, b""),
        // Ten entries, 100 bytes of which 50 are held, a second with two marks.
        Change {
            terms: Some(vec![7, 10, 100, 50, 232, 7, 2, 3, 128, 8, 2, 16]),
            ..change(b"e", Does::Held(40), before, b"")
        },
    ];
    seed("manifest", "record", &[&[1], &encode_record(&record).0])?;
    seed("manifest", "record-one", &[&[1], &encode_record(&record[..1]).0])?;
    let bounds = Some(Bounds { first: 2, next: 9 });
    let payloads: Vec<Vec<u8>> = (3..9).map(|n| vec![n; 3000]).collect();
    for (n, (key, value)) in write_piece(b"log\0", bounds, 3, &payloads).into_iter().enumerate() {
        seed("manifest", &format!("key-{n}"), &[&[4], &key])?;
        let format = if n == 0 { 2 } else { 3 };
        seed("manifest", &format!("part-{n}"), &[&[format], &value])?;
    }
    let brief: Vec<Vec<u8>> = (3..9).map(|n| vec![n; n.into()]).collect();
    seed("manifest", "head-brief", &[&[2], &write_piece(b"k", bounds, 3, &brief)[0].1])?;
    seed("manifest", "head-gone", &[&[2], &write_piece(b"k", None, 0, &[])[0].1])?;
    seed("manifest", "key-plain", &[&[4], &part_key(b"doc/7", None)])
}

fn traces() -> std::io::Result<()> {
    let trace = r#"{"kind": 1, "startContent": "größe", "endContent": "Gr😀ße!", "txns": [
 {"time": "", "patches": [[5, 0, "!"], [0, 1, "G"]]}, {"patches": []}, {"patches": [[2, 1, "😀"]]}]}"#;
    let history = "a\t1\t\"x\\ny\"\nb\t1\t\"z\"\na\t2\t\"D\\u00e9\\n\"\n";
    for (name, flags, text) in [("trace", 0, trace), ("history", 1, history)] {
        for more in [0, 2, 4] {
            seed("trace", &format!("{name}-{more}"), &[&[flags | more], text.as_bytes()])?;
        }
        let mut zipped = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        std::io::Write::write_all(&mut zipped, text.as_bytes())?;
        seed("trace", &format!("{name}-gz"), &[&[flags], &zipped.finish()?])?;
    }
    Ok(())
}

fn arguments() -> std::io::Result<()> {
    for (n, line) in [
        "append store log one two --snapshot --ring-size 64K",
        "append --no-create store log",
        "read store log --from 1 --to 9 --reverse --limit 3",
        "read store log --raw",
        "--json read store log",
        "trim store log --before 4",
        "trim store log --keep-last 4",
        "truncate store log --from 7",
        "delete store log",
        "list store prefix --limit 2 --json",
        "inspect store log",
        "check store",
        "checkpoint store",
        "compact store",
        "replay a.json.gz b.json --copies 2 --writers 3 --in-flight 4 --limit 5 --durability deferred",
        "replay --git history.tsv.gz --store s --ring-size 1G",
        "bench --rounds 1 --only lone --dir .",
        "bench wal --rounds 1 --dir .",
        "format /dev/sdx --ring-size 64M --force",
        "probe . --json",
        "demo",
        "--help",
        "help read",
        "--version",
        "apend store",
    ]
    .iter()
    .enumerate()
    {
        seed("arguments", &format!("line-{n}"), &[line.replace(' ', "\0").as_bytes()])?;
    }
    seed("arguments", "bytes", &[b"read\0s\xff\0\xfe"])
}

fn stores() -> std::io::Result<()> {
    for (which, sample) in samples().iter().enumerate() {
        let which = which as u8;
        for flags in [0, 4] {
            seed("store", &format!("sound-{which}-{flags}"), &[&[which, flags, 0, 0]])?;
        }
        // One patch in each thing that has a checksum: a byte of it anywhere, with and without the
        // sum made right.
        for n in (0..sample.seams.len()).step_by(9) {
            let aimed = [9, 0, n as u8, 0, 1, 3];
            for flags in [0, 5] {
                seed("store", &format!("seam-{which}-{n}-{flags}"), &[&[which, flags, 0, 0], &aimed])?;
            }
        }
        let fields =
            [(40, "ring"), (56, "trim"), (64, "seq"), (88, "acked"), (96, "clean"), (128, "next-run")];
        for (at, name) in fields {
            let patches = [patch(at, &[0]), patch(SECTOR + at, &[0]), patch(2 * SECTOR + at, &[0])].concat();
            seed("store", &format!("superblock-{which}-{name}"), &[&[which, 5, 0, 0], &patches])?;
        }
        let end = (sample.image.len() / 512 - 9) as u16;
        seed("store", &format!("cut-{which}"), &[&[which, 2], &end.to_le_bytes()])?;
    }
    Ok(())
}

fn logs() -> std::io::Result<()> {
    for (which, sample) in log::samples().iter().enumerate() {
        let which = which as u8;
        for size in [4, 6, 20] {
            seed("log", &format!("sound-{which}-{size}"), &[&[which, 4, 0, 0, size]])?;
        }
        // One patch in each thing that has a checksum, with and without the sum made right.
        for n in (0..sample.seams.len()).step_by(9) {
            let aimed = [9, 0, n as u8, 0, 1, 3];
            for flags in [0, 5] {
                seed("log", &format!("seam-{which}-{n}-{flags}"), &[&[which, flags, 0, 0, 9], &aimed])?;
            }
        }
        let fields = [
            (48, "acked"),
            (56, "flags"),
            (65, "trim"),
            (72, "seq"),
            (96, "first"),
            (105, "from"),
            (113, "offset"),
        ];
        for (at, name) in fields {
            let patches = [patch(at, &[1]), patch(SECTOR + at, &[1])].concat();
            seed("log", &format!("label-{which}-{name}"), &[&[which, 5, 0, 0, 7], &patches])?;
        }
        let end = (sample.image.len() / 512 - 9) as u16;
        seed("log", &format!("cut-{which}"), &[&[which, 2], &end.to_le_bytes(), &[0]])?;
    }
    Ok(())
}
