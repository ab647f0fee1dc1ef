//! A server whose store has its log in a bucket: it serves each time that its host owns the store.

use std::path::Path;

use brooklet::Options;
use brooklet_replica::Part;
use brooklet_server::redis::Elsewhere;
use brooklet_server::{Addresses, CancellationToken, Config};

use super::{Guard, Member, Open, Replication};
use crate::failure::Failure;
use crate::serve::settings::Given;

/// What such a server needs.
pub struct Lives<'a> {
    pub given: &'a Given,
    pub config: &'a Config,
    pub path: &'a Path,
    pub has_ring: bool,
    pub stop: CancellationToken,
}

impl Lives<'_> {
    /// Serves until a signal, or until the host may own the store no more. A host of a cluster
    /// stands by again once it has left its shard to another host.
    pub fn serve(
        self,
        options: &Options,
        open: Open<'_>,
        mut ready: impl FnMut(&Addresses),
    ) -> Result<(), Failure> {
        super::check_file(self.path, self.has_ring)?;
        let mut config = self.config.clone();
        let member = Member::start(self.given, &self.stop)?;
        if let Some(member) = member.clone() {
            let find = move |space: &str| member.part(|part| part.elsewhere(space));
            config.settings.elsewhere = Some(Elsewhere::new(find));
        }
        while !self.stop.is_cancelled() {
            let life = self.stop.child_token();
            (config.hurry, config.lease) = (CancellationToken::new(), None);
            // Before a folder of a bucket is made. The owner would end for a host that cannot
            // serve. A standby may have the addresses of the owner, which leaves them with its end.
            if self.given.standby != Some(true) && member.is_none() {
                config.check_addresses().map_err(crate::serve::refused)?;
            }
            let replication = Replication::of(self.given, &config, self.path, &life, member.clone())?;
            let Some(store) = replication.open(options, open)? else { return Ok(()) };
            let guard: Guard = replication.guard(store.clone())?;
            config.lease = guard.lease();
            let ready = |addresses: &Addresses| {
                if let Some(member) = &member {
                    member.part(Part::open);
                }
                ready(addresses);
            };
            let served = brooklet_server::serve(store, &config, ready, life);
            let left_to = member.as_ref().and_then(|member| member.part(Part::end_serving));
            guard.end(left_to.as_deref())?;
            served.map_err(crate::serve::refused)?;
            if left_to.is_none() {
                break;
            }
            tracing::info!("the store is closed here: this host stands by again");
        }
        Ok(())
    }
}
