//! A device that does not answer: what is shown without it is shown, and no more threads than a few
//! wait for it.

use std::sync::{Arc, Condvar, Mutex};

use brooklet::Options;
use brooklet::io::{Layer, MemVolume, Volume};

use super::{Server, eventually};

/// Reads wait while it is held.
#[derive(Clone, Debug)]
struct Stuck(MemVolume, Arc<(Mutex<State>, Condvar)>);

#[derive(Debug, Default)]
struct State {
    held: bool,
    waiting: usize,
}

impl Stuck {
    fn hold(&self, held: bool) {
        self.1.0.lock().unwrap().held = held;
        self.1.1.notify_all();
    }

    /// Holds it until that is dropped, so that a test that fails ends.
    fn held(&self) -> Held<'_> {
        self.hold(true);
        Held(self)
    }

    fn waiting(&self) -> usize {
        self.1.0.lock().unwrap().waiting
    }
}

struct Held<'a>(&'a Stuck);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.hold(false);
    }
}

impl Layer for Stuck {
    fn below(&self) -> &dyn Volume {
        &self.0
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<usize> {
        let mut state = self.1.0.lock().unwrap();
        state.waiting += 1;
        let mut state = self.1.1.wait_while(state, |state| state.held).unwrap();
        state.waiting -= 1;
        drop(state);
        self.0.read_at(offset, buf)
    }
}

#[tokio::test]
async fn what_needs_no_device_is_shown_while_it_does_not_answer() {
    let volume = Stuck(MemVolume::new(1), Arc::default());
    let options = || Options::new().ring_size(1 << 20).max_payload(64 << 10);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    store.append("log", "entry").unwrap().wait().unwrap();
    store.checkpoint().unwrap();
    store.close().unwrap();
    drop(store);
    let server = Server::new().await;
    server.watch.ready(options().open_on(Arc::new(volume.clone())).unwrap());
    let held = volume.held();
    let client = server.client;
    let asked: Vec<_> =
        (0..24).map(|_| tokio::spawn(async move { client.ask("GET", "/api/logs").await.status })).collect();
    eventually("as many listings as may wait", async || volume.waiting() == 16).await;
    eventually("refusals of the others", async || {
        asked.iter().filter(|asked| asked.is_finished()).count() == 8
    })
    .await;
    for address in ["/", "/metrics", "/healthz", "/readyz", "/api/live"] {
        assert_eq!(server.get(address).await.status, 200, "{address}");
    }
    let refused = server.get("/api/log?key=log").await;
    assert!(refused.status == 503 && refused.body.contains("retry"), "{refused:?}");
    drop(held);
    let mut statuses = Vec::new();
    for asked in asked {
        statuses.push(asked.await.unwrap());
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [[200; 16].as_slice(), [503; 8].as_slice()].concat());
    assert_eq!(server.get("/api/log?key=log").await.status, 200);
}
