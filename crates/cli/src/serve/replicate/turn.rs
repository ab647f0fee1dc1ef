//! What a standby does while it waits for its turn.

use std::cell::Cell;
use std::time::{Duration, Instant};

use brooklet_replica::{Followed, Place, Standing};
use brooklet_server::standby::{Owner, Standby, base_url, check_serving};

use super::Replication;
use super::warm::Warm;

/// Time between two looks at the log, and the one while the store is about to move.
const USUAL: Duration = Duration::from_millis(200);
const SOON: Duration = Duration::from_millis(20);
/// Time between two looks whether this host could serve.
const AGAIN: Duration = Duration::from_secs(1);

pub(super) struct InTurn<'a> {
    host: &'a Replication,
    pub file: Warm<'a>,
    ports: Option<&'a Standby>,
    /// When this host looked last whether it could serve, and the result.
    looked: Option<(Instant, bool)>,
    /// Set once the log should be read from its begin again.
    begins_again: &'a Cell<bool>,
    /// Whether it was reported that the place keeps no log.
    has_reported: bool,
}

impl<'a> InTurn<'a> {
    pub fn new(
        host: &'a Replication,
        file: Warm<'a>,
        ports: Option<&'a Standby>,
        begins_again: &'a Cell<bool>,
    ) -> Self {
        Self { host, file, ports, looked: None, begins_again, has_reported: false }
    }

    pub fn set_owner(&self, owner: Option<Owner>) {
        if let Some(ports) = self.ports {
            ports.set_owner(owner);
        }
    }
}

impl InTurn<'_> {
    /// Returns whether this host could serve, as of a moment ago: its owner leaves the shard to it.
    fn can_serve(&mut self) -> bool {
        if let Some((_, can)) = self.looked.filter(|(at, _)| at.elapsed() < AGAIN) {
            return can;
        }
        let file = self.file.options().clone().read_only(true).open(&self.host.path);
        let checked = file
            .map_err(brooklet_server::Error::Store)
            .and_then(|store| check_serving(&self.host.server, &store, self.ports.is_some()));
        if let Err(error) = &checked
            && self.looked.is_none_or(|(_, could)| could)
        {
            tracing::warn!(%error, "the shard is to move here, and this host could not serve it");
        }
        self.looked = Some((Instant::now(), checked.is_ok()));
        checked.is_ok()
    }
}

impl Standing for InTurn<'_> {
    fn take(&mut self, read: Followed) {
        if let Followed::Owner { name, address } = &read {
            // The last owner may have been this host, which serves nobody now.
            let url = base_url(address).ok().filter(|url| Some(url) != self.host.url.as_ref());
            self.set_owner(Some(Owner { name: name.clone(), url }));
        }
        if let Some(member) = &self.host.member {
            // The file may take a while.
            member.part(|part| part.stand_by(None));
        }
        self.file.take(read);
        self.begins_again.set(self.file.begins_again());
    }

    fn pause(&mut self, end: Option<Place>) -> Duration {
        let Some(member) = &self.host.member else { return USUAL };
        let is_near = member.part(|part| part.approaches())
            && end.is_some()
            && self.file.approach()
            && self.can_serve();
        member.part(|part| {
            part.stand_by(end.filter(|_| is_near));
            if part.is_moving() { SOON } else { USUAL }
        })
    }

    fn takes(&mut self, to: &str) -> bool {
        self.host.member.as_ref().is_none_or(|member| member.part(|part| part.takes(to)))
    }

    fn begins(&mut self) -> bool {
        let begins = self.host.begins();
        if !begins && !std::mem::replace(&mut self.has_reported, true) {
            // Hosts that all stand by would wait for one another for ever.
            let who = match self.host.member {
                Some(_) => "start the wanted host of the shard",
                None => "start one host without --standby, once",
            };
            tracing::warn!(place = %self.host.journal, "the place keeps no log of a store yet: {who}");
        }
        begins
    }
}
