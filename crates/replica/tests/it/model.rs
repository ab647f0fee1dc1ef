//! The exhaustive check of the protocol: all histories of three owners within bounds.

use std::time::Duration;

use brooklet::io::seeded::plant;
use brooklet_replica::{Epoch, TakeoverLimits};
use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::world::{Action, Bounds, World};

/// The world as the checker sees it, with a planted defect or none.
#[derive(Clone)]
pub struct Protocol {
    pub bounds: Bounds,
    pub bug: Option<&'static str>,
}

pub const LOST: &str = "nothing acknowledged is lost, replaced or out of order";

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.bounds)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        // A history that went wrong needs no end.
        if self.bug.is_none() || world.holds().is_ok() {
            world.actions(actions);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        // The checker has threads of its own.
        plant(self.bug);
        let mut next = world.clone();
        next.act(action, &self.bounds);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let third: fn(&Self, &World) -> bool = |_, world| world.reigns.contains_key(&Epoch(3));
        vec![
            Property::always(LOST, |_, world: &World| world.holds().is_ok()),
            Property::sometimes("a third owner opens", third),
            Property::sometimes("three owners acknowledge", |_, world: &World| {
                world.reigns.len() == 3 && world.reigns.values().all(|reign| !reign.acked.is_empty())
            }),
            Property::sometimes("something is trimmed", |_, world: &World| world.trimmed),
        ]
    }
}

/// Three owners, two requests in flight, one trim.
pub const BOUNDS: Bounds = Bounds {
    blocks: [2, 1],
    claimants: 2,
    faults: 1,
    records: 1,
    window: 2,
    takeover: TakeoverLimits { objects: 0, ahead: 3 },
};

#[test]
fn every_history_keeps_what_was_acknowledged() {
    let mut bounds = BOUNDS;
    if let Ok(deep) = std::env::var("REPLICA_MODEL") {
        let numbers: Vec<u8> = deep.split(',').map(|number| number.parse().unwrap()).collect();
        let [first, later, faults, records, claimants] = numbers[..] else { panic!("as in 3,1,2,1,2") };
        bounds = Bounds { blocks: [first, later], faults, records, claimants, ..bounds };
    }
    let checker = Protocol { bounds, bug: None }
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::AnyFailures)
        .timeout(Duration::from_secs(3600))
        .spawn_bfs()
        .join();
    println!("{} states, {} of them different", checker.state_count(), checker.unique_state_count());
    assert!(checker.is_done(), "the check was cut off");
    checker.assert_properties();
}
