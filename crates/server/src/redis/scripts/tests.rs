//! The libraries against bytes that nobody meant, and against Lua's own functions.

use std::sync::Arc;

use brooklet::io::Rng;
use mlua::{Function, MultiValue, Table, Value};

use super::guard::Guard;
use super::vm::{Ended, Vm};

fn machine() -> Vm {
    let guard = Arc::new(Guard::new(Box::new(Default::default)));
    Vm::new(&guard, Arc::default()).unwrap()
}

fn eval(vm: &Vm, script: &str, argv: &[&[u8]]) -> Result<String, String> {
    let lua = vm.lua();
    let function = vm.function(script, script.as_bytes()).unwrap();
    let none = || lua.create_function(|_, _: MultiValue| Ok(())).unwrap();
    let argv = lua.create_sequence_from(argv.iter().map(|arg| lua.create_string(arg).unwrap())).unwrap();
    let given = (lua.create_table().unwrap(), argv);
    match vm.run(&function, given, (none(), none(), none())).unwrap() {
        Ended::Value(value) => Ok(format!("{value:?}")),
        Ended::Error(error, _) => Err(error),
    }
}

/// Changes, repeats or cuts bytes.
fn mutate(rng: &mut Rng, seed: &[u8]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=rng.below(3) {
        let at = rng.below(bytes.len() as u64 + 1) as usize;
        match rng.below(4) {
            0 => bytes.insert(at, rng.below(256) as u8),
            1 => bytes.truncate(at),
            2 => bytes.extend_from_within(at..),
            _ if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
            _ => {}
        }
    }
    bytes
}

/// Decodes bytes in each way; what decodes is encoded, decoded and encoded to the same length.
const DECODE: &str = "
    local ok, value = pcall(cmsgpack.unpack_one, ARGV[1], 0)
    ok, value = pcall(cmsgpack.unpack, ARGV[1])
    if ok then
        local packed = cmsgpack.pack(value)
        assert(#cmsgpack.pack((cmsgpack.unpack(packed))) == #packed, 'cmsgpack')
    end
    ok, value = pcall(cjson.decode, ARGV[1])
    if ok then
        local ok, text = pcall(cjson.encode, value)
        if ok then assert(#cjson.encode(cjson.decode(text)) == #text, 'cjson') end
    end
    pcall(struct.unpack, ARGV[2], ARGV[1])
    pcall(struct.size, ARGV[1])
    ok, value = pcall(struct.pack, ARGV[2], 1, 'abc', 2, 'def')
    if ok then pcall(struct.unpack, ARGV[2], value) end
    pcall(loadstring, ARGV[1])
    return 1";

#[test]
fn hostile_bytes_are_decoded_or_refused() {
    let (vm, mut rng) = (machine(), Rng::new(7));
    let seeds: [&[u8]; 6] = [
        br#"{"a":[1,-2.5e3,"x\u00e9\ud83d\ude00",null,true],"b":{"c":{}}}"#,
        b"\x83\xa1a\x93\x01\xcd\x01\x00\xcb\x3f\xf8\0\0\0\0\0\0\xa1b\xd9\x03abc\xa1c\x81\x01\xc0",
        b"\xdd\0\0\0\x02\xdf\0\0\0\x01\xa0\xff\xd3\xff\xff\xff\xff\xff\xff\xff\xfe",
        b"[[[[[[[[[[1]]]]]]]]]]",
        b"\x91\x91\x91\x91\x91\x91\x91\x91\xc3",
        b"return {a = 1, ['b'] = function(...) return ... end}",
    ];
    let formats: [&[u8]; 3] = [b">!4 b i3 s Bc0", b"<I16 d f x c3", b"!8lhT"];
    for _ in 0..6000 {
        let (seed, format) = (rng.below(6) as usize, rng.below(3) as usize);
        let (bytes, format) = (mutate(&mut rng, seeds[seed]), mutate(&mut rng, formats[format]));
        let done = eval(&vm, DECODE, &[&bytes, &format]);
        assert_eq!(done, Ok("Integer(1)".into()), "{} {}", bytes.escape_ascii(), format.escape_ascii());
    }
}

#[test]
fn patterns_match_as_in_the_matcher_of_lua() {
    let (vm, mut rng) = (machine(), Rng::new(9));
    let native: Table = vm.lua().globals().get("string").unwrap();
    let parts: [&str; 22] = [
        "a", "b", ".", "%a", "%d", "%W", "[ab]", "[^a]", "[a-c%]]", "*", "+", "-", "?", "(", ")", "()", "%1",
        "%b()", "%f[%w]", "^", "$", "%",
    ];
    let ours = "
        local find = {pcall(string.find, ARGV[1], ARGV[2])}
        local gsub = {pcall(string.gsub, ARGV[1], ARGV[2], '<%0>')}
        local out = {}
        for _, all in ipairs({find, gsub}) do
            if all[1] then for i = 1, 6 do out[#out + 1] = tostring(all[i]) end else out[#out + 1] = 'error' end
        end
        return table.concat(out, ',')";
    let find: Function = native.get("find").unwrap();
    let gsub: Function = native.get("gsub").unwrap();
    let shown = |called: mlua::Result<MultiValue>| match called {
        Ok(values) => {
            let text = |value: Option<&Value>| value.map_or("nil".into(), |value| value.to_string().unwrap());
            let all: Vec<String> = (0..5).map(|at| text(values.get(at))).collect();
            format!("true,{}", all.join(","))
        }
        Err(_) => "error".into(),
    };
    for _ in 0..20_000 {
        let pattern: String = (0..rng.below(7)).map(|_| parts[rng.below(22) as usize]).collect();
        let text: String = (0..rng.below(9)).map(|_| char::from(b"ab1()c "[rng.below(7) as usize])).collect();
        let theirs = [shown(find.call((&*text, &*pattern))), shown(gsub.call((&*text, &*pattern, "<%0>")))];
        let found = eval(&vm, ours, &[text.as_bytes(), pattern.as_bytes()]).unwrap();
        assert!(found.contains(&theirs.join(",")), "{text:?} {pattern:?}: {found} and not {theirs:?}");
    }
}
