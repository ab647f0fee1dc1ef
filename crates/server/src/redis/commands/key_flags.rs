//! How commands use their keys, in Redis's words: the flags of `COMMAND GETKEYSANDFLAGS`.

use bytes::Bytes;

use super::{Access, Spec};

/// How a command that writes uses a key.
#[derive(Clone, Copy)]
enum Use {
    /// It adds parts to the value.
    Insert,
    /// It removes parts of the value.
    Delete,
    /// It replaces the value, whatever the value was.
    Overwrite,
    /// It creates the value, and does nothing if the key exists.
    Create,
    /// It deletes the key, whatever the value was.
    Remove,
    /// It changes the value.
    Update,
}

/// Commands that create or extend a value.
const INSERTING: [&str; 9] = [
    "append",
    "hsetnx",
    "linsert",
    "lpush",
    "lpushx",
    "rpush",
    "rpushx",
    "xgroup|create",
    "xgroup|createconsumer",
];
/// Commands that remove parts of a value, or take the value away.
const DELETING: [&str; 21] = [
    "blmove",
    "blmpop",
    "blpop",
    "brpop",
    "brpoplpush",
    "getdel",
    "hdel",
    "lmove",
    "lmpop",
    "lpop",
    "lrem",
    "ltrim",
    "rename",
    "renamenx",
    "rpop",
    "rpoplpush",
    "xautoclaim",
    "xdel",
    "xgroup|delconsumer",
    "xgroup|destroy",
    "xtrim",
];
const OVERWRITING: [&str; 4] = ["mset", "psetex", "set", "setex"];
const CREATING: [&str; 2] = ["msetnx", "setnx"];
const REMOVING: [&str; 2] = ["del", "unlink"];

/// Returns how a command uses its first key, or the further ones.
fn used(spec: &Spec, is_first: bool) -> Use {
    let is_of = |names: &[&str]| names.contains(&spec.name);
    match is_first {
        true if is_of(&INSERTING) => Use::Insert,
        true if is_of(&DELETING) => Use::Delete,
        _ if is_of(&OVERWRITING) => Use::Overwrite,
        _ if is_of(&CREATING) => Use::Create,
        _ if is_of(&REMOVING) => Use::Remove,
        false => match spec.name {
            "blmove" | "brpoplpush" | "lmove" | "rpoplpush" => Use::Insert,
            "blmpop" | "blpop" | "brpop" | "lmpop" => Use::Delete,
            "copy" | "rename" | "sort" => Use::Overwrite,
            "renamenx" => Use::Create,
            _ => Use::Update,
        },
        true => Use::Update,
    }
}

/// Returns the keys of a request, each with its flags.
pub fn key_flags<'a>(spec: &Spec, request: &'a [Bytes]) -> Vec<(&'a Bytes, Vec<&'static str>)> {
    let flags = |(at, (key, access)): (usize, (&'a Bytes, Access))| {
        let used = used(spec, at == 0);
        let (reads, writes) = access.needs(request);
        let mut flags = vec![match used {
            _ if !writes => "RO",
            Use::Remove => "RM",
            Use::Overwrite | Use::Create if !reads => "OW",
            _ => "RW",
        }];
        if reads {
            flags.push("access");
        }
        if writes {
            flags.push(match used {
                Use::Insert | Use::Create => "insert",
                Use::Delete | Use::Remove => "delete",
                Use::Overwrite | Use::Update => "update",
            });
        }
        (key, flags)
    };
    spec.accesses(request).enumerate().map(flags).collect()
}

#[cfg(test)]
mod tests {
    use super::super::resolve;
    use super::*;

    /// As Redis 7.0.15 answers.
    #[test]
    fn keys_have_the_flags_of_redis() {
        let told = |request: &str| {
            let words: Vec<Bytes> = request.split(' ').map(|word| Bytes::from(word.to_owned())).collect();
            let found = key_flags(resolve(&words).unwrap(), &words);
            let text = |(key, flags): (&Bytes, Vec<&str>)| {
                format!("{}:{}", String::from_utf8_lossy(key), flags.join("+"))
            };
            found.into_iter().map(text).collect::<Vec<_>>().join(" ")
        };
        for (request, expected) in [
            ("GET a", "a:RO+access"),
            ("EXISTS a b", "a:RO b:RO"),
            ("SET a b", "a:OW+update"),
            ("SET a b GET", "a:RW+access+update"),
            ("MSET a 1 b 2", "a:OW+update b:OW+update"),
            ("MSETNX a 1 b 2", "a:OW+insert b:OW+insert"),
            ("DEL a b", "a:RM+delete b:RM+delete"),
            ("APPEND a b", "a:RW+insert"),
            ("INCR a", "a:RW+access+update"),
            ("GETDEL a", "a:RW+access+delete"),
            ("LSET a 0 x", "a:RW+update"),
            ("LTRIM a 0 1", "a:RW+delete"),
            ("LMOVE a b LEFT LEFT", "a:RW+access+delete b:RW+insert"),
            ("BLPOP a b 0", "a:RW+access+delete b:RW+access+delete"),
            ("LMPOP 2 a b LEFT", "a:RW+access+delete b:RW+access+delete"),
            ("COPY a b", "a:RO+access b:OW+update"),
            ("RENAME a b", "a:RW+access+delete b:OW+update"),
            ("RENAMENX a b", "a:RW+access+delete b:OW+insert"),
            ("SORT a STORE b", "a:RO+access b:OW+update"),
            ("HSETNX a f v", "a:RW+insert"),
            ("HINCRBY a f 1", "a:RW+access+update"),
            ("XADD a * f v", "a:RW+update"),
            ("XACK a g 1", "a:RW+update"),
            ("XAUTOCLAIM a g c 0 0", "a:RW+delete"),
            ("XGROUP CREATE a g 0", "a:RW+insert"),
            ("XREADGROUP GROUP g c STREAMS a b > >", "a:RO+access b:RO+access"),
            ("EVAL x 2 a b", "a:RW+access+update b:RW+access+update"),
            ("EVAL_RO x 1 a", "a:RO+access"),
            ("EVAL x 0", ""),
        ] {
            assert_eq!(told(request), expected, "{request}");
        }
    }
}
