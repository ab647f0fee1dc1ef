//! Tests of requests for a document whose writer waits.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use brooklet::io::Clock;
use serde_json::json;
use tokio::task::{JoinHandle, yield_now};

use super::*;

/// Longer than anything here takes, however busy the machine is.
const FOREVER: Duration = Duration::from_secs(120);

/// A clock at which those who ask for the time of day wait while a test holds the lock.
#[derive(Debug, Default)]
struct Held {
    lock: Mutex<()>,
    asked: AtomicUsize,
}

impl Clock for Held {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn wall(&self) -> Duration {
        self.asked.fetch_add(1, Ordering::Relaxed);
        drop(self.lock.lock());
        Duration::ZERO
    }
}

/// Sends a request, and returns the wait for its status.
fn ask(face: &Arc<Face>, method: &str, path: &str) -> JoinHandle<Result<StatusCode, Problem>> {
    let request = Request::builder().method(method).uri(format!("{PREFIX}{path}"));
    let request = request.header("if-match", "*").header("content-type", "application/merge-patch+json");
    let (face, request) = (face.clone(), request.body(Body::from("{}")).unwrap());
    tokio::spawn(async move { face.answer(request).await.map(|response| response.status()) })
}

/// Sends so many requests for a document whose writer waits, each with a method and a path. Returns
/// what `look` finds meanwhile.
fn beside_requests_that_wait<T>(
    config: &Config,
    (count, method, path): (usize, &str, &str),
    look: impl AsyncFnOnce(&Arc<Face>) -> T,
) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = Store::in_memory(1).unwrap();
    let face = Face::new(&store, config, Limits::new(config), None, CancellationToken::new()).unwrap();
    let clock = Arc::new(Held::default());
    let mut face = Arc::into_inner(face).unwrap();
    let options = Options::new(format!("{SPACE}/")).clock(clock.clone());
    face.documents = Documents::open(&store, Json::new(), options).unwrap();
    let face = Arc::new(face);
    for name in ["stuck", "free"] {
        face.documents.create(name, name, &json!({}).into()).unwrap();
    }
    // The writer has the document in use when it asks for the time.
    let (held, before) = (clock.lock.lock().unwrap(), clock.asked.load(Ordering::Relaxed));
    let (found, writer, waiting) = runtime.block_on(async {
        let writer = ask(&face, "PATCH", "stuck");
        let asks = async {
            while clock.asked.load(Ordering::Relaxed) == before {
                yield_now().await;
            }
        };
        tokio::time::timeout(FOREVER, asks).await.expect("the writer asks for the time");
        let waiting: Vec<_> = (0..count).map(|_| ask(&face, method, path)).collect();
        for _ in 0..1000 {
            yield_now().await;
        }
        (look(&face).await, writer, waiting)
    });
    drop(held);
    assert_eq!(runtime.block_on(writer).unwrap().unwrap(), StatusCode::OK);
    for request in waiting {
        let answer = runtime.block_on(request).unwrap();
        // Changes of so many writers may be in each other's way too often.
        assert!(method != "GET" || answer.is_ok_and(|status| status == StatusCode::OK));
    }
    found
}

/// Reads another document.
async fn read(face: &Arc<Face>) -> Option<StatusCode> {
    let answer = tokio::time::timeout(FOREVER, ask(face, "GET", "free")).await.ok()?;
    Some(answer.unwrap().unwrap())
}

/// In an earlier state the readers of one document whose writer waited for room had all turns, and
/// no other document was read.
#[test]
fn a_document_whose_writer_waits_keeps_no_other_from_being_read() {
    let status = beside_requests_that_wait(&Config::default(), (READERS, "GET", "stuck"), read);
    assert_eq!(status, Some(StatusCode::OK));
}

/// In an earlier state readers that waited for their turn had memory for their replies, and the
/// readers of all other documents were refused for lack of it.
#[test]
fn readers_of_a_document_whose_writer_waits_leave_memory_to_others() {
    let config = Config::default();
    let config = Config { reply_budget: (LATE_READERS + 1) * config.chunk, ..config };
    let status = beside_requests_that_wait(&config, (3 * LATE_READERS, "GET", "stuck"), read);
    assert_eq!(status, Some(StatusCode::OK));
}

/// In the old state many requests for one such document had all turns of their kind: for example,
/// no other document was taken back to an earlier version.
#[test]
fn a_document_whose_writer_waits_leaves_turns_of_each_kind_to_others() {
    let config = Config::default();
    let requests = (2 * LATE_READERS, "GET", "stuck");
    let left = beside_requests_that_wait(&config, requests, async |face| face.late_reads.available_permits());
    assert!(left > 0, "for readers of documents in use");
    let requests = (2 * LOADERS, "POST", "stuck?rewind=1");
    let left = beside_requests_that_wait(&config, requests, async |face| face.loads.available_permits());
    assert!(left > 0, "for writers that read the history");
    let requests = (2 * WRITERS, "PATCH", "stuck");
    let left = beside_requests_that_wait(&config, requests, async |face| face.writes.available_permits());
    assert!(left > 0, "for writers");
}
