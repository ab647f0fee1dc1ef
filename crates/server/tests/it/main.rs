//! What `server` promises, tested from outside: one binary, a module for each subject.

mod browsers;
mod documents;
mod documents_events;
mod http_client;
mod http_strangers;
mod redis;
mod streams;
mod streams_forks;
mod streams_limits;
mod streams_live;
mod streams_producers;
mod tls;
mod watch;
