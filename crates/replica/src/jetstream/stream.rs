//! The stream of a log: how it is made, and which streams are refused.

use async_nats::jetstream::stream::{Config, DiscardPolicy, PersistenceMode, RetentionPolicy, StorageType};

use super::address::Address;

/// Returns the settings of a new stream: nothing but a request removes a message.
pub fn settings(address: &Address) -> Config {
    Config {
        name: address.stream.clone(),
        description: Some(
            "The log of a Brooklet store. Limits, and deletes by hand, would lose commits.".into(),
        ),
        subjects: vec![format!("{}.>", prefix(&address.stream))],
        storage: StorageType::File,
        num_replicas: address.replicas,
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::New,
        // An object of several parts is one step.
        allow_atomic_publish: true,
        // A look replaces the look before it.
        allow_rollup: true,
        deny_delete: true,
        ..Config::default()
    }
}

/// Returns the begin of all subjects of a stream.
pub fn prefix(stream: &str) -> String {
    format!("brooklet.{stream}")
}

/// Returns why a stream cannot keep a log, if so.
pub fn defect(found: &Config, wanted: &Config) -> Option<String> {
    let limited = |limit: i64| limit > 0;
    let defects = [
        (found.subjects != wanted.subjects, format!("its only subject must be {}", wanted.subjects[0])),
        (found.storage != StorageType::File, "it is in memory, and a restart would lose it".into()),
        (
            found.num_replicas < wanted.num_replicas,
            format!(
                "it has {} copies, and the address asks for {}: scale it by `nats stream edit`, or add ?replicas=N",
                found.num_replicas, wanted.num_replicas
            ),
        ),
        (found.retention != RetentionPolicy::Limits, "its retention removes messages".into()),
        (!found.max_age.is_zero(), "its max_age removes messages".into()),
        (
            limited(found.max_messages_per_subject) || found.discard_new_per_subject,
            "it has a limit for each subject".into(),
        ),
        (
            found.discard != DiscardPolicy::New && (limited(found.max_bytes) || limited(found.max_messages)),
            "its limits remove old messages: set `discard` to `new`".into(),
        ),
        (found.max_message_size > 0, "it has a limit of the size of messages".into()),
        (
            matches!(found.persist_mode, Some(PersistenceMode::Async)),
            "it acknowledges what is not on stable media: set `persist_mode` to `default`".into(),
        ),
        (found.no_ack, "it acknowledges nothing".into()),
        (found.sealed, "it is sealed".into()),
        (found.deny_purge, "it denies purges, by which the log is trimmed".into()),
        (!found.allow_rollup, "it needs allow_rollup_hdrs".into()),
        (!found.allow_atomic_publish, "it needs allow_atomic, of nats-server 2.12 or later".into()),
        (found.mirror.is_some() || found.sources.is_some(), "it copies other streams".into()),
        (found.subject_transform.is_some(), "it changes subjects".into()),
        (found.allow_message_ttl, "it lets messages expire".into()),
    ];
    let found = defects.into_iter().filter(|(is_there, _)| *is_there).map(|(_, defect)| defect);
    let found: Vec<_> = found.collect();
    (!found.is_empty()).then(|| found.join("; "))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn wanted() -> Config {
        settings(&Address::parse("nats://a/logs").unwrap())
    }

    #[test]
    fn a_stream_as_it_is_made_is_taken() {
        assert_eq!(defect(&wanted(), &wanted()), None);
        let served = Config { max_bytes: -1, max_messages: -1, max_message_size: -1, ..wanted() };
        assert_eq!(defect(&served, &wanted()), None);
        assert_eq!(defect(&Config { num_replicas: 5, max_bytes: 1 << 40, ..wanted() }, &wanted()), None);
    }

    #[test]
    fn streams_that_lose_messages_are_refused() {
        for (config, why) in [
            (Config { subjects: vec!["other.>".into()], ..wanted() }, "brooklet.logs.>"),
            (Config { storage: StorageType::Memory, ..wanted() }, "memory"),
            (Config { num_replicas: 1, ..wanted() }, "it has 1 copies, and the address asks for 3"),
            (Config { retention: RetentionPolicy::WorkQueue, ..wanted() }, "retention"),
            (Config { max_age: Duration::from_secs(1), ..wanted() }, "max_age"),
            (Config { max_messages_per_subject: 1, ..wanted() }, "each subject"),
            (Config { discard: DiscardPolicy::Old, max_bytes: 9, ..wanted() }, "discard"),
            (Config { max_message_size: 9, ..wanted() }, "size of messages"),
            (Config { persist_mode: Some(PersistenceMode::Async), ..wanted() }, "stable media"),
            (Config { deny_purge: true, ..wanted() }, "purges"),
            (Config { allow_atomic_publish: false, ..wanted() }, "2.12"),
        ] {
            let defect = defect(&config, &wanted()).unwrap_or_default();
            assert!(defect.contains(why), "{defect}");
        }
    }
}
