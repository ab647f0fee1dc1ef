//! Options that contradict each other, or a store.

use std::fmt;
use std::sync::Mutex;

use brooklet_io::{ManualClock, MemVolume};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::*;

/// A subscriber that keeps the warnings.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!("{field}={value:?} ");
    }
}

fn options() -> Options {
    let clock = Arc::new(ManualClock::default());
    Options::new().max_payload(8 << 10).threads(false).clock(clock).rng_seed(1)
}

#[test]
fn a_ring_of_another_size_is_warned_of_and_opened() {
    let volume = Arc::new(MemVolume::new(1));
    drop(options().ring_size(128 << 10).create_on(volume.clone()).unwrap());
    let open = |options: Options| {
        let warnings = Warnings::default();
        let store = tracing::subscriber::with_default(warnings.clone(), || options.open_on(volume.clone()));
        assert_eq!(store.unwrap().info().unwrap().ring_size, 128 << 10);
        std::mem::take(&mut *warnings.0.lock().unwrap())
    };
    assert_eq!(open(options()), [""; 0]);
    assert_eq!(open(options().ring_size(128 << 10)), [""; 0]);
    let told = open(options().ring_size(64 << 10));
    assert!(told.len() == 1 && told[0].contains("asked=65536 found=131072"), "{told:?}");
}

#[test]
fn another_capacity_than_the_stores_is_refused() {
    const MIB: u64 = 1 << 20;
    for made in [0, 4 * MIB] {
        let volume = Arc::new(MemVolume::new(1));
        let options = || options().ring_size(64 << 10);
        drop(options().capacity(made).create_on(volume.clone()).unwrap());
        for asked in [0, 3 * MIB, 4 * MIB, 5 * MIB] {
            for read_only in [false, true] {
                let opened = options().capacity(asked).read_only(read_only).open_on(volume.clone());
                match opened {
                    Ok(store) => {
                        assert!(asked == 0 || asked == made, "{asked}");
                        assert_eq!(store.info().unwrap().capacity, made);
                    }
                    Err(error) => {
                        assert!(asked > 0 && asked != made, "{error}");
                        let told = matches!(
                            error, Error::OtherCapacity { asked: a, found, .. } if (a, found) == (asked, made)
                        );
                        assert!(told, "{error}");
                    }
                }
            }
        }
    }
}
