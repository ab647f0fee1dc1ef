//! Databases are spaces: their classes hold for what clients do, and those that change by
//! themselves are none.

use std::time::Duration;

use brooklet::{Class, MemoryConfig, Retention, SpaceConfig, Store, WhenFull};
use brooklet_server::standby::check_serving;
use brooklet_server::{CancellationToken, Config, Error, serve};

use crate::redis::client::Server;

fn limited() -> SpaceConfig {
    SpaceConfig::new().retention(Retention::new().entries(3))
}

#[test]
fn a_database_is_acknowledged_as_its_space_says() {
    let store = Store::in_memory(1).unwrap();
    let soon = Class::Deferred(Duration::from_secs(60));
    store.create_space("1", SpaceConfig::new().class(soon)).unwrap();
    store.create_space("2", SpaceConfig::new().class(Class::Memory(MemoryConfig::new(1 << 20)))).unwrap();
    let server = Server::of(store.clone());
    let mut client = server.client();
    for database in ["1", "2", "0"] {
        assert_eq!(client.say(&format!("SELECT {database}")), "OK");
        assert_eq!(client.say("RPUSH l a b"), ":2");
        assert_eq!(client.say("LPUSH l z"), ":3");
        assert_eq!(client.say("LPOP l"), "z");
        assert_eq!(client.say("LRANGE l 0 -1"), "[a b]");
        assert_eq!(client.say("XADD s 1-1 f v"), "1-1");
        assert_eq!(client.say("XRANGE s - +"), "[[1-1 [f v]]]");
        assert_eq!(client.say("DBSIZE"), ":2");
        assert_eq!(store.bounds(format!("{database}/l")).unwrap().len(), 2);
    }
    // What is deferred is made durable for who asks.
    client.say("SELECT 1");
    client.say("RPUSH l c");
    assert_eq!(client.say("SAVE"), "OK");
    assert_eq!(client.say("WAITAOF 1 0 5000"), "[:1 :0]");
}

#[test]
fn spaces_that_change_by_themselves_are_no_databases() {
    let store = Store::in_memory(1).unwrap();
    let drops = MemoryConfig::new(1 << 20).when_full(WhenFull::DropOldest);
    store.create_space("kept", SpaceConfig::new()).unwrap();
    store.create_space("limited", limited()).unwrap();
    store.create_space("drops", SpaceConfig::new().class(Class::Memory(drops))).unwrap();
    let server = Server::of(store.clone());
    let mut client = server.client();
    assert_eq!(client.say("SELECT kept"), "OK");
    assert_eq!(client.say("RPUSH l a"), ":1");
    for (name, why) in [
        ("limited", "has a retention limit"),
        ("drops", "drops its oldest"),
        ("streams", "holds the HTTP streams"),
        ("documents", "holds the documents"),
    ] {
        let told = client.say(&format!("SELECT {name}"));
        assert!(told.starts_with("-ERR") && told.contains(why), "{name}: {told}");
        assert!(client.say(&format!("COPY l m DB {name}")).contains(why));
    }
    assert_eq!(client.say("LLEN l"), ":1", "it is where it was");
    drop(server);

    let store = Store::in_memory(2).unwrap();
    store.create_space("3", limited()).unwrap();
    let served = serve(store, &Config::default(), |_| panic!("it is not served"), CancellationToken::new());
    assert!(matches!(served, Err(Error::Config(why)) if why.contains("space 3 has a retention limit")));
}

/// In the old state no server started on such a store, although nobody could ask it for a stream.
#[test]
fn a_space_of_streams_that_drops_logs_is_refused_where_streams_are_served() {
    let drops = MemoryConfig::new(1 << 20).when_full(WhenFull::DropOldest);
    let store = |seed| {
        let store = Store::in_memory(seed).unwrap();
        store.create_space("streams", SpaceConfig::new().class(Class::Memory(drops))).unwrap();
        store
    };
    let server = Server::of(store(1));
    assert_eq!(server.client().say("RPUSH l a"), ":1");
    drop(server);
    let http = vec!["127.0.0.1:0".parse().unwrap()];
    let config = Config { redis: Vec::new(), http, ..Config::default() };
    let refused = Server::at(store(2), config.clone()).err();
    assert!(matches!(refused, Some(Error::Store(brooklet::Error::InvalidSpace(_)))), "{refused:?}");
    // So a standby does not take over a store that it could not serve.
    let check = |config: &Config| check_serving(config, &store(3), true);
    assert!(check(&config).is_err());
    assert!(check(&Config { http: Vec::new(), ..config }).is_ok());
}
