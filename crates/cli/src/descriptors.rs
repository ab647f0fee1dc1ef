//! File descriptors: a server raises its limit, and takes no more connections than leave some for
//! the store.

use brooklet_server::Config;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for the store, its archive and the system.
const RESERVE: u64 = 128;

/// Raises the limit of descriptors, and lowers the numbers of connections to what the limit allows.
pub fn fit(config: &mut Config) {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    // Where the system refuses that, the limit stays as it is.
    let _ = setrlimit(Resource::Nofile, raised);
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let wanted = config.settings.max_clients;
    let (redis, http) = share(most, wanted, config.streams.max_connections, !config.http.is_empty());
    (config.settings.max_clients, config.streams.max_connections) = (redis, http);
    if redis < wanted && !config.redis.is_empty() {
        tracing::warn!(
            max_clients = redis,
            wanted,
            descriptors = most,
            "the system allows fewer descriptors than max-clients needs: raise the limit (ulimit -n), \
             or lower max-clients"
        );
    }
}

/// Shares the descriptors among the clients of Redis and of HTTP: Redis first, but a quarter is for
/// HTTP.
fn share(most: u64, redis: usize, http: usize, has_http: bool) -> (usize, usize) {
    let free = usize::try_from(most.saturating_sub(RESERVE)).unwrap_or(usize::MAX).max(2);
    let for_http = if has_http { http.min(free.div_ceil(4)) } else { 0 };
    let redis = redis.min(free - for_http);
    (redis, http.min(free - redis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_the_store() {
        assert_eq!(share(1 << 20, 10_000, 16_384, true), (10_000, 16_384));
        assert_eq!(share(20_128, 10_000, 16_384, true), (10_000, 10_000));
        assert_eq!(share(1_128, 10_000, 16_384, true), (750, 250));
        assert_eq!(share(1_128, 10_000, 16_384, false).0, 1_000);
        assert_eq!(share(u64::MAX, 10, 20, true), (10, 20));
        assert_eq!(share(0, 10, 20, true), (1, 1));
    }
}
