//! The state besides keys that a transaction changes, such as `SELECT`: an undone transaction
//! restores it, too.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::Engine;
use crate::redis::client::Client;
use crate::redis::pubsub::Kind;
use crate::redis::settings::Settings;

/// The state before a transaction.
#[derive(Debug)]
pub struct Before {
    database: Bytes,
    subscriptions: [BTreeSet<Bytes>; 3],
    settings: Settings,
}

impl Engine {
    /// Keeps the state of a client and the settings, before a command of a transaction changes
    /// them.
    pub fn keep_before(&self, client: &mut Client) {
        if client.is_in_exec && client.before.is_none() {
            client.before = Some(Box::new(Before {
                database: client.database.clone(),
                subscriptions: Kind::ALL.map(|kind| client.subscriptions.of(kind).clone()),
                settings: self.settings.clone(),
            }));
        }
    }

    /// Restores what was kept; no other client has had a turn since then.
    pub(super) fn restore_before(&mut self, client: &mut Client) {
        let Some(before) = client.before.take() else { return };
        let Before { database, subscriptions, settings } = *before;
        client.database = database;
        self.settings = settings;
        for (kind, names) in Kind::ALL.into_iter().zip(subscriptions) {
            let now = client.subscriptions.of(kind).clone();
            for name in now.difference(&names) {
                self.topics.unsubscribe(client.id, &mut client.subscriptions, kind, name);
            }
            for name in names.difference(&now) {
                let again = self.topics.subscribe(client.id, &mut client.subscriptions, kind, name);
                debug_assert!(again.is_ok(), "it was within the limits: {again:?}");
            }
        }
    }
}
