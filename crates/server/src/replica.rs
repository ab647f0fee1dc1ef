//! The store of a read replica: the source that shows the commits of another server, and its lag.
//! [`serve_replica`](crate::serve_replica) serves such a store.

use std::fmt::Write as _;
use std::time::Duration;

use axum::http::Uri;
use brooklet::Store;
use bytes::Bytes;
use serde_json::{Map, Value, json};

/// The host that owns the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// Name of the host, for people.
    pub name: String,
    /// URL at which HTTP clients reach the host, as [`base_url`](crate::standby::base_url) returns
    /// it; `None` if it is unknown.
    pub url: Option<String>,
}

/// The function that shows a block. Its arguments are the keys of the logs that the block changes,
/// and the function that makes the block visible.
pub type Beside = Box<dyn Fn(&[Bytes], &mut dyn FnMut()) + Send>;

/// The source of a read replica, which shows the commits of a log in a store.
pub trait Upstream: Send + Sync {
    /// Shows each further block from within `beside`, and returns the store. If a block is being
    /// shown, this ends before the call returns.
    fn attach(&self, beside: Beside) -> Store;

    /// Returns how far the store is behind.
    fn lag(&self) -> Lag;
}

/// How far a replica is behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// The place in the log up to which readers see all commits.
    pub shown: u64,
    /// The place up to which the log was read.
    pub read: u64,
    /// Age of the shown state: readers see all that the log had at the moment that long ago.
    pub age: Option<Duration>,
    /// Time since the last sign of an owner.
    pub silence: Option<Duration>,
    /// The owner of the store, as far as it is known.
    pub owner: Option<Owner>,
    /// Number of times that the file was made anew, or opened again after a failed write.
    pub made_anew: u64,
}

impl Lag {
    /// Time without a sign of the owner after which it counts as down.
    const DOWN: Duration = Duration::from_secs(10);

    /// Returns the bytes of the log that were read, and are not shown yet.
    pub fn bytes(&self) -> u64 {
        self.read.saturating_sub(self.shown)
    }

    /// Returns whether an owner showed a sign lately, as Redis reports the link to a master.
    pub fn is_up(&self) -> bool {
        self.silence.is_some_and(|silence| silence < Self::DOWN)
    }

    /// Returns host and port of the owner, as Redis names a master.
    pub fn master(&self) -> (String, u16) {
        let Some(owner) = &self.owner else { return ("?".into(), 0) };
        let url = owner.url.as_ref().and_then(|url| url.parse::<Uri>().ok());
        let host = url.as_ref().and_then(|url| url.host());
        let port = url.as_ref().and_then(|url| url.port_u16());
        (host.unwrap_or(&owner.name).to_owned(), port.unwrap_or(0))
    }

    /// Returns the lag as JSON, for the page and for `/readyz`.
    pub fn shown_as_json(&self) -> Map<String, Value> {
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        let value = json!({
            "owner": self.owner.as_ref().map(|owner| &owner.name),
            "owner_url": self.owner.as_ref().and_then(|owner| owner.url.as_ref()),
            "age_seconds": seconds(self.age),
            "silence_seconds": seconds(self.silence),
            "lag_bytes": self.bytes(),
            "place": self.shown,
            "made_anew": self.made_anew,
        });
        if let Value::Object(map) = value { map } else { Map::new() }
    }

    pub(crate) fn write_metrics(&self, text: &mut String) {
        let mut tell = |name: &str, kind: &str, help: &str, value: f64| {
            let name = format!("brooklet_replica_{name}");
            _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
        };
        tell("lag_bytes", "gauge", "Bytes of the log that were read and are not shown.", self.bytes() as f64);
        tell("place", "gauge", "Place in the log up to which readers see all commits.", self.shown as f64);
        let made_anew = "Times that the file was made anew, or opened again after a failed write.";
        tell("made_anew_total", "counter", made_anew, self.made_anew as f64);
        let times = [
            ("age_seconds", "Readers see all that the log had so long ago.", self.age),
            ("silence_seconds", "Time since the last sign of an owner.", self.silence),
        ];
        for (name, help, time) in times {
            if let Some(time) = time {
                tell(name, "gauge", help, time.as_secs_f64());
            }
        }
    }
}
