//! The table of all commands.

use super::flags::{
    ADMIN, BLOCKING, CONTAINER, CONTROLS_TRANSACTION, DANGEROUS, FAST, FOR_SUBSCRIBERS, NOT_IN_TRANSACTION,
    PUSHES, READ, WITHOUT_AUTH, WRITE,
};
use super::spec::Where::{Counted, Nowhere, Range, Sort, Streams};
use super::spec::{Keys, Where};
use super::{Access, Call, Channels, Done, Spec};
use super::{
    acl, blocking, claims, command, connection, groups, hashes, info, keys, latency, lists, pubsub, scans,
    scripts, server, sort, streams, strings, transactions, xinfo, xread,
};

type Handler = fn(&mut Call<'_>) -> Done;

/// The group that a command belongs to, as a category of rights.
#[derive(Clone, Copy)]
enum Group {
    None = 0,
    Keyspace = 1,
    /// Lists, sets and sorted sets.
    Sorted = 1 << 3 | 1 << 4 | 1 << 5,
    List = 1 << 5,
    Hash = 1 << 6,
    String = 1 << 7,
    Stream = 1 << 11,
    Pubsub = 1 << 12,
    Connection = 1 << 18,
    Transaction = 1 << 19,
    Scripting = 1 << 20,
}

const fn spec(
    name: &'static str,
    arity: i32,
    flags: u32,
    group: Group,
    keys: Keys,
    handler: Handler,
) -> Spec {
    let mut categories = group as u32;
    if flags & READ != 0 {
        categories |= 1 << 1;
    }
    if flags & WRITE != 0 {
        categories |= 1 << 2;
    }
    if flags & ADMIN != 0 {
        categories |= 1 << 13 | 1 << 17;
    }
    if flags & BLOCKING != 0 {
        categories |= 1 << 16;
    }
    if flags & DANGEROUS != 0 {
        categories |= 1 << 17;
    }
    categories |= if flags & FAST != 0 { 1 << 14 } else { 1 << 15 };
    Spec { name, arity, handler, keys, channels: Channels::None, flags, categories }
}

/// Returns a command of publish and subscribe.
const fn topic(name: &'static str, arity: i32, flags: u32, channels: Channels, handler: Handler) -> Spec {
    let spec = spec(name, arity, flags, Group::Pubsub, NONE, handler);
    Spec { channels, ..spec }
}

/// Flags of the commands that change subscriptions.
const CHANGES: u32 = FOR_SUBSCRIBERS | PUSHES;

const ONE: Where = Range(1, 1, 1);
const SECOND: Where = Range(2, 2, 1);
const ALL: Where = Range(1, -1, 1);
const NONE: Keys = looks(Nowhere);
const KEY_OF_SET: Keys = keys_of(ONE, Access::Set);

const fn keys_of(place: Where, access: Access) -> Keys {
    Keys { place, first: access, further: access }
}

const fn looks(place: Where) -> Keys {
    keys_of(place, Access::Look)
}

const fn reads(place: Where) -> Keys {
    keys_of(place, Access::Read)
}

const fn writes(place: Where) -> Keys {
    keys_of(place, Access::Write)
}

const fn both(place: Where) -> Keys {
    keys_of(place, Access::Both)
}

/// Returns the keys of a command that takes from the first key and writes the second.
const fn pair(first: Access) -> Keys {
    Keys { place: Range(1, 2, 1), first, further: Access::Write }
}

/// Returns the keys of SORT, which reads the first and writes the result.
const fn pair_of_sort() -> Keys {
    Keys { place: Sort, first: Access::Read, further: Access::Write }
}

/// All commands; subcommands follow their command.
pub static TABLE: [Spec; 242] = [
    spec("acl", -2, CONTAINER, Group::None, NONE, acl::acl),
    spec("acl|cat", -2, 0, Group::None, NONE, acl::acl),
    spec("acl|deluser", -3, ADMIN, Group::None, NONE, acl::acl),
    spec("acl|dryrun", -4, ADMIN, Group::None, NONE, acl::acl),
    spec("acl|genpass", -2, 0, Group::None, NONE, acl::acl),
    spec("acl|getuser", 3, ADMIN, Group::None, NONE, acl::acl),
    spec("acl|help", 2, 0, Group::None, NONE, acl::acl),
    spec("acl|list", 2, ADMIN, Group::None, NONE, acl::acl),
    spec("acl|load", 2, ADMIN, Group::None, NONE, acl::acl),
    spec("acl|log", -2, ADMIN, Group::None, NONE, acl::acl),
    spec("acl|save", 2, ADMIN, Group::None, NONE, acl::acl),
    spec("acl|setuser", -3, ADMIN, Group::None, NONE, acl::acl),
    spec("acl|users", 2, ADMIN, Group::None, NONE, acl::acl),
    spec("acl|whoami", 2, 0, Group::None, NONE, acl::acl),
    spec("append", 3, WRITE | FAST, Group::String, writes(ONE), strings::append),
    spec("auth", -2, FAST | WITHOUT_AUTH, Group::Connection, NONE, connection::auth),
    spec("bgrewriteaof", 1, ADMIN, Group::None, NONE, server::bgrewriteaof),
    spec("bgsave", -1, ADMIN, Group::None, NONE, server::bgsave),
    spec("blmove", 6, WRITE | BLOCKING, Group::List, pair(Access::Both), lists::blmove),
    spec("blmpop", -5, WRITE | BLOCKING, Group::List, both(Counted(2)), lists::blmpop),
    spec("blpop", -3, WRITE | BLOCKING, Group::List, both(Range(1, -2, 1)), lists::blpop),
    spec("brpop", -3, WRITE | BLOCKING, Group::List, both(Range(1, -2, 1)), lists::brpop),
    spec("brpoplpush", 4, WRITE | BLOCKING, Group::List, pair(Access::Both), lists::brpoplpush),
    spec("client", -2, CONTAINER, Group::None, NONE, connection::client),
    spec("client|getname", 2, 0, Group::Connection, NONE, connection::client),
    spec("client|help", 2, 0, Group::Connection, NONE, connection::client),
    spec("client|id", 2, 0, Group::Connection, NONE, connection::client),
    spec("client|info", 2, 0, Group::Connection, NONE, connection::client),
    spec("client|kill", -3, ADMIN, Group::Connection, NONE, connection::client),
    spec("client|list", -2, ADMIN, Group::Connection, NONE, connection::client),
    spec("client|no-evict", 3, ADMIN, Group::Connection, NONE, connection::client),
    spec("client|no-touch", 3, 0, Group::Connection, NONE, connection::client),
    spec("client|pause", -3, ADMIN, Group::Connection, NONE, connection::client),
    spec("client|reply", 3, 0, Group::Connection, NONE, connection::client),
    spec("client|setinfo", 4, 0, Group::Connection, NONE, connection::client),
    spec("client|setname", 3, 0, Group::Connection, NONE, connection::client),
    spec("client|unblock", -3, ADMIN, Group::Connection, NONE, connection::client),
    spec("client|caching", 3, 0, Group::Connection, NONE, connection::client),
    spec("client|getredir", 2, 0, Group::Connection, NONE, connection::client),
    spec("client|tracking", -3, 0, Group::Connection, NONE, connection::client),
    spec("client|trackinginfo", 2, 0, Group::Connection, NONE, connection::client),
    spec("client|unpause", 2, ADMIN, Group::Connection, NONE, connection::client),
    spec("command", -1, CONTAINER, Group::Connection, NONE, command::command),
    spec("command|count", 2, 0, Group::Connection, NONE, command::command),
    spec("command|docs", -2, 0, Group::Connection, NONE, command::command),
    spec("command|getkeys", -4, 0, Group::Connection, NONE, command::command),
    spec("command|getkeysandflags", -4, 0, Group::Connection, NONE, command::command),
    spec("command|info", -2, 0, Group::Connection, NONE, command::command),
    spec("command|list", -2, 0, Group::Connection, NONE, command::command),
    spec("config", -2, CONTAINER, Group::None, NONE, server::config),
    spec("config|get", -3, ADMIN, Group::None, NONE, server::config),
    spec("config|help", 2, 0, Group::None, NONE, server::config),
    spec("config|resetstat", 2, ADMIN, Group::None, NONE, server::config),
    spec("config|rewrite", 2, ADMIN, Group::None, NONE, server::config),
    spec("config|set", -4, ADMIN, Group::None, NONE, server::config),
    spec("copy", -3, WRITE, Group::Keyspace, pair(Access::Read), keys::copy),
    spec("dbsize", 1, READ | FAST, Group::Keyspace, NONE, keys::dbsize),
    spec("decr", 2, WRITE | FAST, Group::String, both(ONE), strings::decr),
    spec("decrby", 3, WRITE | FAST, Group::String, both(ONE), strings::decrby),
    spec("del", -2, WRITE, Group::Keyspace, writes(ALL), keys::del),
    spec("discard", 1, FAST | CONTROLS_TRANSACTION, Group::Transaction, NONE, transactions::discard),
    spec("echo", 2, FAST, Group::Connection, NONE, connection::echo),
    spec("eval", -3, 0, Group::Scripting, both(Counted(2)), scripts::eval),
    spec("eval_ro", -3, 0, Group::Scripting, reads(Counted(2)), scripts::eval_ro),
    spec("evalsha", -3, 0, Group::Scripting, both(Counted(2)), scripts::evalsha),
    spec("evalsha_ro", -3, 0, Group::Scripting, reads(Counted(2)), scripts::evalsha_ro),
    spec("exec", 1, CONTROLS_TRANSACTION, Group::Transaction, NONE, transactions::exec),
    spec("exists", -2, READ | FAST, Group::Keyspace, looks(ALL), keys::exists),
    spec("expire", -3, WRITE | FAST, Group::Keyspace, writes(ONE), keys::expire),
    spec("expireat", -3, WRITE | FAST, Group::Keyspace, writes(ONE), keys::expireat),
    spec("expiretime", 2, READ | FAST, Group::Keyspace, reads(ONE), keys::expiretime),
    spec("flushall", -1, DANGEROUS | WRITE, Group::Keyspace, NONE, keys::flushall),
    spec("flushdb", -1, DANGEROUS | WRITE, Group::Keyspace, NONE, keys::flushdb),
    spec("function", -2, CONTAINER, Group::None, NONE, server::function),
    spec("function|delete", 3, WRITE, Group::Scripting, NONE, server::function),
    spec("function|dump", 2, 0, Group::Scripting, NONE, server::function),
    spec("function|flush", -2, WRITE, Group::Scripting, NONE, server::function),
    spec("function|kill", 2, 0, Group::Scripting, NONE, server::function),
    spec("function|list", -2, 0, Group::Scripting, NONE, server::function),
    spec("function|load", -3, WRITE, Group::Scripting, NONE, server::function),
    spec("function|restore", -3, WRITE, Group::Scripting, NONE, server::function),
    spec("function|stats", 2, 0, Group::Scripting, NONE, server::function),
    spec("get", 2, READ | FAST, Group::String, reads(ONE), strings::get),
    spec("getdel", 2, WRITE | FAST, Group::String, both(ONE), strings::getdel),
    spec("getex", -2, WRITE | FAST, Group::String, both(ONE), strings::getex),
    spec("getrange", 4, READ, Group::String, reads(ONE), strings::getrange),
    spec("getset", 3, WRITE | FAST, Group::String, both(ONE), strings::getset),
    spec("hdel", -3, WRITE | FAST, Group::Hash, writes(ONE), hashes::hdel),
    spec("hello", -1, FAST | WITHOUT_AUTH, Group::Connection, NONE, connection::hello),
    spec("hexists", 3, READ | FAST, Group::Hash, looks(ONE), hashes::hexists),
    spec("hget", 3, READ | FAST, Group::Hash, reads(ONE), hashes::hget),
    spec("hgetall", 2, READ, Group::Hash, reads(ONE), hashes::hgetall),
    spec("hincrby", 4, WRITE | FAST, Group::Hash, both(ONE), hashes::hincrby),
    spec("hincrbyfloat", 4, WRITE | FAST, Group::Hash, both(ONE), hashes::hincrbyfloat),
    spec("hkeys", 2, READ, Group::Hash, reads(ONE), hashes::hkeys),
    spec("hlen", 2, READ | FAST, Group::Hash, looks(ONE), hashes::hlen),
    spec("hmget", -3, READ | FAST, Group::Hash, reads(ONE), hashes::hmget),
    spec("hmset", -4, WRITE | FAST, Group::Hash, writes(ONE), hashes::hmset),
    spec("hrandfield", -2, READ, Group::Hash, reads(ONE), hashes::hrandfield),
    spec("hscan", -3, READ, Group::Hash, reads(ONE), scans::hscan),
    spec("hset", -4, WRITE | FAST, Group::Hash, writes(ONE), hashes::hset),
    spec("hsetnx", 4, WRITE | FAST, Group::Hash, writes(ONE), hashes::hsetnx),
    spec("hstrlen", 3, READ | FAST, Group::Hash, looks(ONE), hashes::hstrlen),
    spec("hvals", 2, READ, Group::Hash, reads(ONE), hashes::hvals),
    spec("incr", 2, WRITE | FAST, Group::String, both(ONE), strings::incr),
    spec("incrby", 3, WRITE | FAST, Group::String, both(ONE), strings::incrby),
    spec("incrbyfloat", 3, WRITE | FAST, Group::String, both(ONE), strings::incrbyfloat),
    spec("info", -1, DANGEROUS, Group::None, NONE, info::info),
    spec("keys", 2, DANGEROUS | READ, Group::Keyspace, NONE, keys::keys),
    spec("lastsave", 1, ADMIN | FAST, Group::None, NONE, server::lastsave),
    spec("latency", -2, CONTAINER, Group::None, NONE, latency::latency),
    spec("latency|doctor", 2, ADMIN, Group::None, NONE, latency::latency),
    spec("latency|help", 2, 0, Group::None, NONE, latency::latency),
    spec("latency|histogram", -2, ADMIN, Group::None, NONE, latency::latency),
    spec("latency|history", 3, ADMIN, Group::None, NONE, latency::latency),
    spec("latency|latest", 2, ADMIN, Group::None, NONE, latency::latency),
    spec("latency|reset", -2, ADMIN, Group::None, NONE, latency::latency),
    spec("lindex", 3, READ, Group::List, reads(ONE), lists::lindex),
    spec("linsert", 5, WRITE, Group::List, writes(ONE), lists::linsert),
    spec("llen", 2, READ | FAST, Group::List, looks(ONE), lists::llen),
    spec("lmove", 5, WRITE, Group::List, pair(Access::Both), lists::lmove),
    spec("lmpop", -4, WRITE, Group::List, both(Counted(1)), lists::lmpop),
    spec("lpop", -2, WRITE | FAST, Group::List, both(ONE), lists::lpop),
    spec("lpos", -3, READ, Group::List, reads(ONE), lists::lpos),
    spec("lpush", -3, WRITE | FAST, Group::List, writes(ONE), lists::lpush),
    spec("lpushx", -3, WRITE | FAST, Group::List, writes(ONE), lists::lpushx),
    spec("lrange", 4, READ, Group::List, reads(ONE), lists::lrange),
    spec("lrem", 4, WRITE, Group::List, writes(ONE), lists::lrem),
    spec("lset", 4, WRITE, Group::List, writes(ONE), lists::lset),
    spec("ltrim", 4, WRITE, Group::List, writes(ONE), lists::ltrim),
    spec("memory", -2, CONTAINER, Group::None, NONE, latency::memory),
    spec("memory|doctor", 2, 0, Group::None, NONE, latency::memory),
    spec("memory|help", 2, 0, Group::None, NONE, latency::memory),
    spec("memory|malloc-stats", 2, 0, Group::None, NONE, latency::memory),
    spec("memory|purge", 2, 0, Group::None, NONE, latency::memory),
    spec("memory|stats", 2, 0, Group::None, NONE, latency::memory),
    spec("memory|usage", -3, READ, Group::None, looks(SECOND), latency::memory),
    spec("mget", -2, READ | FAST, Group::String, reads(ALL), strings::mget),
    spec("module", -2, CONTAINER, Group::None, NONE, server::module),
    spec("module|list", 2, ADMIN, Group::None, NONE, server::module),
    spec("module|load", -3, ADMIN, Group::None, NONE, server::module),
    spec("module|loadex", -3, ADMIN, Group::None, NONE, server::module),
    spec("module|unload", 3, ADMIN, Group::None, NONE, server::module),
    spec("move", 3, WRITE | FAST, Group::Keyspace, both(ONE), keys::move_key),
    spec("mset", -3, WRITE, Group::String, writes(Range(1, -1, 2)), strings::mset),
    spec("msetnx", -3, WRITE, Group::String, writes(Range(1, -1, 2)), strings::msetnx),
    spec("multi", 1, FAST | CONTROLS_TRANSACTION, Group::Transaction, NONE, transactions::multi),
    spec("object", -2, CONTAINER, Group::None, NONE, keys::object),
    spec("object|encoding", 3, READ, Group::Keyspace, looks(SECOND), keys::object),
    spec("object|freq", 3, READ, Group::Keyspace, looks(SECOND), keys::object),
    spec("object|help", 2, 0, Group::Keyspace, NONE, keys::object),
    spec("object|idletime", 3, READ, Group::Keyspace, looks(SECOND), keys::object),
    spec("object|refcount", 3, READ, Group::Keyspace, looks(SECOND), keys::object),
    spec("persist", 2, WRITE | FAST, Group::Keyspace, writes(ONE), keys::persist),
    spec("pexpire", -3, WRITE | FAST, Group::Keyspace, writes(ONE), keys::pexpire),
    spec("pexpireat", -3, WRITE | FAST, Group::Keyspace, writes(ONE), keys::pexpireat),
    spec("pexpiretime", 2, READ | FAST, Group::Keyspace, reads(ONE), keys::pexpiretime),
    spec("ping", -1, FAST | FOR_SUBSCRIBERS, Group::Connection, NONE, connection::ping),
    spec("psetex", 4, WRITE, Group::String, writes(ONE), strings::psetex),
    spec("pttl", 2, READ | FAST, Group::Keyspace, reads(ONE), keys::pttl),
    spec(
        "quit",
        -1,
        FAST | WITHOUT_AUTH | CONTROLS_TRANSACTION | FOR_SUBSCRIBERS,
        Group::Connection,
        NONE,
        connection::quit,
    ),
    spec("randomkey", 1, READ, Group::Keyspace, NONE, keys::randomkey),
    spec("rename", 3, WRITE, Group::Keyspace, pair(Access::Both), keys::rename),
    spec("renamenx", 3, WRITE | FAST, Group::Keyspace, pair(Access::Both), keys::renamenx),
    spec(
        "reset",
        1,
        FAST | WITHOUT_AUTH | CONTROLS_TRANSACTION | FOR_SUBSCRIBERS,
        Group::Connection,
        NONE,
        connection::reset,
    ),
    spec("role", 1, ADMIN | FAST, Group::None, NONE, server::role),
    spec("rpop", -2, WRITE | FAST, Group::List, both(ONE), lists::rpop),
    spec("rpoplpush", 3, WRITE, Group::List, pair(Access::Both), lists::rpoplpush),
    spec("rpush", -3, WRITE | FAST, Group::List, writes(ONE), lists::rpush),
    spec("rpushx", -3, WRITE | FAST, Group::List, writes(ONE), lists::rpushx),
    spec("save", 1, ADMIN | NOT_IN_TRANSACTION, Group::None, NONE, server::save),
    spec("scan", -2, READ, Group::Keyspace, NONE, scans::scan),
    spec("script", -2, CONTAINER, Group::None, NONE, scripts::script),
    spec("script|debug", 3, 0, Group::Scripting, NONE, scripts::script),
    spec("script|exists", -3, 0, Group::Scripting, NONE, scripts::script),
    spec("script|flush", -2, 0, Group::Scripting, NONE, scripts::script),
    spec("script|help", 2, 0, Group::Scripting, NONE, scripts::script),
    spec("script|kill", 2, 0, Group::Scripting, NONE, scripts::script),
    spec("script|load", 3, 0, Group::Scripting, NONE, scripts::script),
    spec("select", 2, FAST, Group::Connection, NONE, connection::select),
    spec("set", -3, WRITE, Group::String, KEY_OF_SET, strings::set),
    spec("setex", 4, WRITE, Group::String, writes(ONE), strings::setex),
    spec("setnx", 3, WRITE | FAST, Group::String, writes(ONE), strings::setnx),
    spec("setrange", 4, WRITE, Group::String, writes(ONE), strings::setrange),
    spec("shutdown", -1, ADMIN | NOT_IN_TRANSACTION, Group::None, NONE, server::shutdown),
    spec("slowlog", -2, CONTAINER, Group::None, NONE, server::slowlog),
    spec("slowlog|get", -2, ADMIN, Group::None, NONE, server::slowlog),
    spec("slowlog|len", 2, ADMIN, Group::None, NONE, server::slowlog),
    spec("slowlog|reset", 2, ADMIN, Group::None, NONE, server::slowlog),
    spec("sort", -2, WRITE | DANGEROUS, Group::Sorted, pair_of_sort(), sort::sort),
    spec("sort_ro", -2, READ | DANGEROUS, Group::Sorted, reads(ONE), sort::sort_ro),
    spec("strlen", 2, READ | FAST, Group::String, looks(ONE), strings::strlen),
    spec("substr", 4, READ, Group::String, reads(ONE), strings::getrange),
    spec("time", 1, FAST, Group::None, NONE, server::time),
    spec("touch", -2, READ | FAST, Group::Keyspace, looks(ALL), keys::exists),
    spec("ttl", 2, READ | FAST, Group::Keyspace, reads(ONE), keys::ttl),
    spec("type", 2, READ | FAST, Group::Keyspace, looks(ONE), keys::kind),
    spec("unlink", -2, WRITE | FAST, Group::Keyspace, writes(ALL), keys::del),
    spec("unwatch", 1, FAST, Group::Transaction, NONE, transactions::unwatch),
    spec("wait", 3, 0, Group::Connection, NONE, blocking::wait),
    spec("waitaof", 4, 0, Group::Connection, NONE, blocking::waitaof),
    spec("watch", -2, FAST | CONTROLS_TRANSACTION, Group::Transaction, looks(ALL), transactions::watch),
    spec("xack", -4, WRITE | FAST, Group::Stream, writes(ONE), groups::xack),
    spec("xadd", -5, WRITE | FAST, Group::Stream, writes(ONE), streams::xadd),
    spec("xautoclaim", -6, WRITE | FAST, Group::Stream, writes(ONE), claims::xautoclaim),
    spec("xclaim", -6, WRITE | FAST, Group::Stream, writes(ONE), claims::xclaim),
    spec("xdel", -3, WRITE | FAST, Group::Stream, writes(ONE), streams::xdel),
    spec("xgroup", -2, CONTAINER, Group::None, NONE, groups::xgroup),
    spec("xgroup|create", -5, WRITE, Group::Stream, writes(SECOND), groups::xgroup),
    spec("xgroup|createconsumer", 5, WRITE, Group::Stream, writes(SECOND), groups::xgroup),
    spec("xgroup|delconsumer", 5, WRITE, Group::Stream, writes(SECOND), groups::xgroup),
    spec("xgroup|destroy", 4, WRITE, Group::Stream, writes(SECOND), groups::xgroup),
    spec("xgroup|help", 2, 0, Group::Stream, NONE, groups::xgroup),
    spec("xgroup|setid", -5, WRITE, Group::Stream, writes(SECOND), groups::xgroup),
    spec("xinfo", -2, CONTAINER, Group::None, NONE, xinfo::xinfo),
    spec("xinfo|consumers", 4, READ, Group::Stream, reads(SECOND), xinfo::xinfo),
    spec("xinfo|groups", 3, READ, Group::Stream, reads(SECOND), xinfo::xinfo),
    spec("xinfo|help", 2, 0, Group::Stream, NONE, xinfo::xinfo),
    spec("xinfo|stream", -3, READ, Group::Stream, reads(SECOND), xinfo::xinfo),
    spec("xlen", 2, READ | FAST, Group::Stream, looks(ONE), streams::xlen),
    spec("xpending", -3, READ, Group::Stream, reads(ONE), groups::xpending),
    spec("xrange", -4, READ, Group::Stream, reads(ONE), streams::xrange),
    spec("xread", -4, READ | BLOCKING, Group::Stream, reads(Streams), xread::xread),
    spec("xreadgroup", -7, WRITE | BLOCKING, Group::Stream, reads(Streams), xread::xreadgroup),
    spec("xrevrange", -4, READ, Group::Stream, reads(ONE), streams::xrevrange),
    spec("xsetid", -3, WRITE | FAST, Group::Stream, writes(ONE), streams::xsetid),
    spec("xtrim", -4, WRITE, Group::Stream, writes(ONE), streams::xtrim),
    // Publish and subscribe.
    topic("psubscribe", -2, CHANGES, Channels::Patterns, pubsub::psubscribe),
    topic("publish", 3, FAST, Channels::First, pubsub::publish),
    spec("pubsub", -2, CONTAINER, Group::None, NONE, pubsub::pubsub),
    topic("pubsub|channels", -2, 0, Channels::None, pubsub::pubsub),
    spec("pubsub|help", 2, 0, Group::None, NONE, pubsub::pubsub),
    topic("pubsub|numpat", 2, 0, Channels::None, pubsub::pubsub),
    topic("pubsub|numsub", -2, 0, Channels::None, pubsub::pubsub),
    topic("pubsub|shardchannels", -2, 0, Channels::None, pubsub::pubsub),
    topic("pubsub|shardnumsub", -2, 0, Channels::None, pubsub::pubsub),
    topic("punsubscribe", -1, CHANGES, Channels::None, pubsub::punsubscribe),
    topic("spublish", 3, FAST, Channels::First, pubsub::spublish),
    topic("ssubscribe", -2, CHANGES, Channels::All, pubsub::ssubscribe),
    topic("subscribe", -2, CHANGES, Channels::All, pubsub::subscribe),
    topic("sunsubscribe", -1, CHANGES, Channels::None, pubsub::sunsubscribe),
    topic("unsubscribe", -1, CHANGES, Channels::None, pubsub::unsubscribe),
];
