//! Spans of long work, as a subscriber of the program receives them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use brooklet::io::{MemVolume, Rng};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::common::small::{noise, options};

/// Counts how often spans are entered, by name.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    names: Vec<&'static str>,
    entered: BTreeMap<&'static str, u64>,
    open: u64,
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with("brooklet")
    }
    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut seen = self.0.lock().unwrap();
        seen.names.push(attributes.metadata().name());
        Id::from_u64(seen.names.len() as u64)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, id: &Id) {
        let mut seen = self.0.lock().unwrap();
        let name = seen.names[id.into_u64() as usize - 1];
        *seen.entered.entry(name).or_default() += 1;
        seen.open += 1;
    }
    fn exit(&self, _: &Id) {
        self.0.lock().unwrap().open -= 1;
    }
}

#[test]
fn long_work_has_spans() {
    let spans = Spans::default();
    // With one dispatcher alone, `tracing` asks only the thread that first meets a span, which may
    // be a thread of another test; the span would then be off for good.
    let _second = tracing::Dispatch::new(spans.clone());
    tracing::subscriber::with_default(spans.clone(), || {
        let volume = MemVolume::new(1);
        let store = options().create_on(Arc::new(volume.clone())).unwrap();
        let mut rng = Rng::new(1);
        for run in 0..3 {
            for log in 0..30 {
                store.append(format!("log/{log}"), noise(&mut rng, 900 + run)).unwrap().wait().unwrap();
            }
            store.checkpoint().unwrap();
        }
        store.compact().unwrap();
        let view = store.view().unwrap();
        view.export("", &mut Vec::new()).unwrap();
        let other = options().create_on(Arc::new(MemVolume::new(2))).unwrap();
        other.import().view(&view, "").unwrap();
        let copy = options().copy_on(Arc::new(MemVolume::new(3)), &view).unwrap();
        for store in [copy, other, store] {
            store.close().unwrap();
        }
    });
    let Seen { entered, open, .. } = &*spans.0.lock().unwrap();
    assert_eq!(*open, 0, "each span is left");
    let counts = ["open", "close", "view", "export", "import", "copy"].map(|name| entered.get(name).copied());
    assert_eq!(counts, [Some(3), Some(3), Some(1), Some(1), Some(1), Some(1)]);
    assert!(entered["checkpoint"] >= 3 && entered["merge"] >= 1, "{entered:?}");
}
