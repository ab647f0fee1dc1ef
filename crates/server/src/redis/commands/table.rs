//! The table of all commands.

use super::Where::{Counted, Nowhere, Range, Streams};
use super::flags::{ADMIN, BLOCKING, CONTROLS_TRANSACTION, NOT_IN_TRANSACTION, READ, WITHOUT_AUTH, WRITE};
use super::{Call, Done, Spec, Where};
use super::{
    acl, blocking, connection, groups, hashes, keys, lists, scans, server, streams, strings, transactions,
    xinfo, xread,
};

type Handler = fn(&mut Call<'_>) -> Done;

/// The group that a command belongs to, as a category of rights.
#[derive(Clone, Copy)]
enum Group {
    Keyspace = 1,
    List = 1 << 5,
    Hash = 1 << 6,
    String = 1 << 7,
    Stream = 1 << 11,
    Server = 1 << 15,
    Connection = 1 << 18,
    Transaction = 1 << 19,
}

const fn spec(
    name: &'static str,
    arity: i32,
    flags: u32,
    group: Group,
    keys: Where,
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
    Spec { name, arity, handler, keys, flags, categories }
}

const ONE: Where = Range(1, 1, 1);
const ALL: Where = Range(1, -1, 1);

/// All commands, in the order of their names.
pub static TABLE: [Spec; 130] = [
    spec("acl", -2, ADMIN, Group::Server, Nowhere, acl::acl),
    spec("append", 3, WRITE, Group::String, ONE, strings::append),
    spec("auth", -2, WITHOUT_AUTH, Group::Connection, Nowhere, connection::auth),
    spec("bgrewriteaof", 1, ADMIN, Group::Server, Nowhere, server::bgrewriteaof),
    spec("bgsave", -1, ADMIN, Group::Server, Nowhere, server::bgsave),
    spec("blmove", 6, WRITE | BLOCKING, Group::List, Range(1, 2, 1), lists::blmove),
    spec("blmpop", -5, WRITE | BLOCKING, Group::List, Counted(2), lists::blmpop),
    spec("blpop", -3, WRITE | BLOCKING, Group::List, Range(1, -2, 1), lists::blpop),
    spec("brpop", -3, WRITE | BLOCKING, Group::List, Range(1, -2, 1), lists::brpop),
    spec("brpoplpush", 4, WRITE | BLOCKING, Group::List, Range(1, 2, 1), lists::brpoplpush),
    spec("client", -2, 0, Group::Connection, Nowhere, connection::client),
    spec("command", -1, 0, Group::Connection, Nowhere, server::command),
    spec("config", -2, ADMIN, Group::Server, Nowhere, server::config),
    spec("copy", -3, WRITE, Group::Keyspace, Range(1, 2, 1), keys::copy),
    spec("dbsize", 1, READ, Group::Keyspace, Nowhere, keys::dbsize),
    spec("decr", 2, WRITE, Group::String, ONE, strings::decr),
    spec("decrby", 3, WRITE, Group::String, ONE, strings::decrby),
    spec("del", -2, WRITE, Group::Keyspace, ALL, keys::del),
    spec("discard", 1, CONTROLS_TRANSACTION, Group::Transaction, Nowhere, transactions::discard),
    spec("echo", 2, 0, Group::Connection, Nowhere, connection::echo),
    spec("exec", 1, CONTROLS_TRANSACTION, Group::Transaction, Nowhere, transactions::exec),
    spec("exists", -2, READ, Group::Keyspace, ALL, keys::exists),
    spec("expire", -3, WRITE, Group::Keyspace, ONE, keys::expire),
    spec("expireat", -3, WRITE, Group::Keyspace, ONE, keys::expireat),
    spec("expiretime", 2, READ, Group::Keyspace, ONE, keys::expiretime),
    spec("flushall", -1, WRITE | ADMIN, Group::Keyspace, Nowhere, keys::flushall),
    spec("flushdb", -1, WRITE | ADMIN, Group::Keyspace, Nowhere, keys::flushdb),
    spec("function", -2, ADMIN, Group::Server, Nowhere, server::function),
    spec("get", 2, READ, Group::String, ONE, strings::get),
    spec("getdel", 2, WRITE, Group::String, ONE, strings::getdel),
    spec("getex", -2, WRITE, Group::String, ONE, strings::getex),
    spec("getrange", 4, READ, Group::String, ONE, strings::getrange),
    spec("getset", 3, WRITE, Group::String, ONE, strings::getset),
    spec("hdel", -3, WRITE, Group::Hash, ONE, hashes::hdel),
    spec("hello", -1, WITHOUT_AUTH, Group::Connection, Nowhere, connection::hello),
    spec("hexists", 3, READ, Group::Hash, ONE, hashes::hexists),
    spec("hget", 3, READ, Group::Hash, ONE, hashes::hget),
    spec("hgetall", 2, READ, Group::Hash, ONE, hashes::hgetall),
    spec("hincrby", 4, WRITE, Group::Hash, ONE, hashes::hincrby),
    spec("hincrbyfloat", 4, WRITE, Group::Hash, ONE, hashes::hincrbyfloat),
    spec("hkeys", 2, READ, Group::Hash, ONE, hashes::hkeys),
    spec("hlen", 2, READ, Group::Hash, ONE, hashes::hlen),
    spec("hmget", -3, READ, Group::Hash, ONE, hashes::hmget),
    spec("hmset", -4, WRITE, Group::Hash, ONE, hashes::hmset),
    spec("hrandfield", -2, READ, Group::Hash, ONE, hashes::hrandfield),
    spec("hscan", -3, READ, Group::Hash, ONE, scans::hscan),
    spec("hset", -4, WRITE, Group::Hash, ONE, hashes::hset),
    spec("hsetnx", 4, WRITE, Group::Hash, ONE, hashes::hsetnx),
    spec("hstrlen", 3, READ, Group::Hash, ONE, hashes::hstrlen),
    spec("hvals", 2, READ, Group::Hash, ONE, hashes::hvals),
    spec("incr", 2, WRITE, Group::String, ONE, strings::incr),
    spec("incrby", 3, WRITE, Group::String, ONE, strings::incrby),
    spec("incrbyfloat", 3, WRITE, Group::String, ONE, strings::incrbyfloat),
    spec("info", -1, 0, Group::Server, Nowhere, server::info),
    spec("keys", 2, READ, Group::Keyspace, Nowhere, keys::keys),
    spec("lastsave", 1, ADMIN, Group::Server, Nowhere, server::lastsave),
    spec("latency", -2, ADMIN, Group::Server, Nowhere, server::latency),
    spec("lindex", 3, READ, Group::List, ONE, lists::lindex),
    spec("linsert", 5, WRITE, Group::List, ONE, lists::linsert),
    spec("llen", 2, READ, Group::List, ONE, lists::llen),
    spec("lmove", 5, WRITE, Group::List, Range(1, 2, 1), lists::lmove),
    spec("lmpop", -4, WRITE, Group::List, Counted(1), lists::lmpop),
    spec("lpop", -2, WRITE, Group::List, ONE, lists::lpop),
    spec("lpos", -3, READ, Group::List, ONE, lists::lpos),
    spec("lpush", -3, WRITE, Group::List, ONE, lists::lpush),
    spec("lpushx", -3, WRITE, Group::List, ONE, lists::lpushx),
    spec("lrange", 4, READ, Group::List, ONE, lists::lrange),
    spec("lrem", 4, WRITE, Group::List, ONE, lists::lrem),
    spec("lset", 4, WRITE, Group::List, ONE, lists::lset),
    spec("ltrim", 4, WRITE, Group::List, ONE, lists::ltrim),
    spec("memory", -2, READ, Group::Server, Range(2, 2, 1), server::memory),
    spec("mget", -2, READ, Group::String, ALL, strings::mget),
    spec("module", -2, ADMIN, Group::Server, Nowhere, server::module),
    spec("move", 3, WRITE, Group::Keyspace, ONE, keys::move_key),
    spec("mset", -3, WRITE, Group::String, Range(1, -1, 2), strings::mset),
    spec("msetnx", -3, WRITE, Group::String, Range(1, -1, 2), strings::msetnx),
    spec("multi", 1, CONTROLS_TRANSACTION, Group::Transaction, Nowhere, transactions::multi),
    spec("object", -2, READ, Group::Keyspace, Range(2, 2, 1), keys::object),
    spec("persist", 2, WRITE, Group::Keyspace, ONE, keys::persist),
    spec("pexpire", -3, WRITE, Group::Keyspace, ONE, keys::pexpire),
    spec("pexpireat", -3, WRITE, Group::Keyspace, ONE, keys::pexpireat),
    spec("pexpiretime", 2, READ, Group::Keyspace, ONE, keys::pexpiretime),
    spec("ping", -1, 0, Group::Connection, Nowhere, connection::ping),
    spec("psetex", 4, WRITE, Group::String, ONE, strings::psetex),
    spec("pttl", 2, READ, Group::Keyspace, ONE, keys::pttl),
    spec("quit", -1, WITHOUT_AUTH | CONTROLS_TRANSACTION, Group::Connection, Nowhere, connection::quit),
    spec("randomkey", 1, READ, Group::Keyspace, Nowhere, keys::randomkey),
    spec("rename", 3, WRITE, Group::Keyspace, Range(1, 2, 1), keys::rename),
    spec("renamenx", 3, WRITE, Group::Keyspace, Range(1, 2, 1), keys::renamenx),
    spec("reset", 1, WITHOUT_AUTH | CONTROLS_TRANSACTION, Group::Connection, Nowhere, connection::reset),
    spec("role", 1, ADMIN, Group::Server, Nowhere, server::role),
    spec("rpop", -2, WRITE, Group::List, ONE, lists::rpop),
    spec("rpoplpush", 3, WRITE, Group::List, Range(1, 2, 1), lists::rpoplpush),
    spec("rpush", -3, WRITE, Group::List, ONE, lists::rpush),
    spec("rpushx", -3, WRITE, Group::List, ONE, lists::rpushx),
    spec("save", 1, ADMIN | NOT_IN_TRANSACTION, Group::Server, Nowhere, server::save),
    spec("scan", -2, READ, Group::Keyspace, Nowhere, scans::scan),
    spec("select", 2, 0, Group::Connection, Nowhere, connection::select),
    spec("set", -3, WRITE, Group::String, ONE, strings::set),
    spec("setex", 4, WRITE, Group::String, ONE, strings::setex),
    spec("setnx", 3, WRITE, Group::String, ONE, strings::setnx),
    spec("setrange", 4, WRITE, Group::String, ONE, strings::setrange),
    spec("shutdown", -1, ADMIN | NOT_IN_TRANSACTION, Group::Server, Nowhere, server::shutdown),
    spec("slowlog", -2, ADMIN, Group::Server, Nowhere, server::slowlog),
    spec("strlen", 2, READ, Group::String, ONE, strings::strlen),
    spec("substr", 4, READ, Group::String, ONE, strings::getrange),
    spec("time", 1, 0, Group::Server, Nowhere, server::time),
    spec("touch", -2, READ, Group::Keyspace, ALL, keys::exists),
    spec("ttl", 2, READ, Group::Keyspace, ONE, keys::ttl),
    spec("type", 2, READ, Group::Keyspace, ONE, keys::kind),
    spec("unlink", -2, WRITE, Group::Keyspace, ALL, keys::del),
    spec("unwatch", 1, 0, Group::Transaction, Nowhere, transactions::unwatch),
    spec("wait", 3, BLOCKING, Group::Server, Nowhere, blocking::wait),
    spec("waitaof", 4, BLOCKING, Group::Server, Nowhere, blocking::waitaof),
    spec("watch", -2, CONTROLS_TRANSACTION, Group::Transaction, ALL, transactions::watch),
    spec("xack", -4, WRITE, Group::Stream, ONE, groups::xack),
    spec("xadd", -5, WRITE, Group::Stream, ONE, streams::xadd),
    spec("xautoclaim", -6, WRITE, Group::Stream, ONE, groups::xautoclaim),
    spec("xclaim", -6, WRITE, Group::Stream, ONE, groups::xclaim),
    spec("xdel", -3, WRITE, Group::Stream, ONE, streams::xdel),
    spec("xgroup", -2, WRITE, Group::Stream, Range(2, 2, 1), groups::xgroup),
    spec("xinfo", -2, READ, Group::Stream, Range(2, 2, 1), xinfo::xinfo),
    spec("xlen", 2, READ, Group::Stream, ONE, streams::xlen),
    spec("xpending", -3, READ, Group::Stream, ONE, groups::xpending),
    spec("xrange", -4, READ, Group::Stream, ONE, streams::xrange),
    spec("xread", -4, READ | BLOCKING, Group::Stream, Streams, xread::xread),
    spec("xreadgroup", -7, WRITE | BLOCKING, Group::Stream, Streams, xread::xreadgroup),
    spec("xrevrange", -4, READ, Group::Stream, ONE, streams::xrevrange),
    spec("xsetid", -3, WRITE, Group::Stream, ONE, streams::xsetid),
    spec("xtrim", -4, WRITE, Group::Stream, ONE, streams::xtrim),
];
