//! Ring and data are of one moment: what has been put back or used without the other is refused,
//! and no power cut while an opening marks both makes strangers of them.

use std::sync::Arc;

use brooklet::{Error, Store, check_volume_with_ring};

use crate::apart::{crash, open, options};
use crate::common::twin::{Twin, twins};

type Images = [Vec<u8>; 2];

fn images(pair: &[Twin; 2]) -> Images {
    pair.each_ref().map(|twin| twin.disk.image())
}

/// How many entries "log" has, by an opening that writes nothing.
fn entries_of(pair: &[Twin; 2]) -> Result<u64, Error> {
    let [data, ring] = pair.clone();
    let store = options(1).read_only(true).open_on_with_ring(Arc::new(data), Arc::new(ring))?;
    store.bounds("log").map(|bounds| bounds.next)
}

fn checked(pair: &[Twin; 2]) -> Result<bool, Error> {
    let [data, ring] = pair.clone();
    Ok(check_volume_with_ring(Arc::new(data), Arc::new(ring), brooklet::Progress::ignore)?.is_sound())
}

/// Opens for writing, appends, and closes or goes as if killed; gives both volumes as they are
/// then.
fn go_on(from: &Images, seed: u64, clean: bool, entries: u8) -> Images {
    let pair = twins(from.clone(), seed);
    let store = open(&pair, seed).unwrap();
    for n in 0..entries {
        store.append("log", [n; 2000]).unwrap().wait().unwrap();
        if n % 5 == 4 {
            store.checkpoint().unwrap();
            while store.step().unwrap() {}
        }
    }
    if clean {
        store.close().unwrap()
    } else {
        store.abandon()
    }
    images(&pair)
}

fn made(seed: u64) -> Images {
    let [data, ring] = twins([Vec::new(), Vec::new()], seed);
    options(seed).format_on(Arc::new(data.clone()), Some(Arc::new(ring.clone())), false).unwrap();
    images(&[data, ring])
}

/// Neither volume goes with one of another moment, whatever either was left like; both of one
/// moment do. Nor do openings of one seed leave the same mark.
#[test]
fn one_volume_put_back_without_the_other_is_refused() {
    let mut moments = vec![(made(1), 0)];
    for (seed, clean, entries) in
        [(2, true, 3), (3, false, 3), (4, true, 2), (5, false, 40), (5, true, 1), (7, true, 0)]
    {
        let (before, had) = moments.last().unwrap();
        moments.push((go_on(before, seed, clean, entries), had + u64::from(entries)));
    }
    // A copy of the data was used with the ring. It counts as many openings as the original, and
    // the same entries.
    let (before, had) = &moments[5];
    moments.push((go_on(before, 8, true, 0), *had));
    for (i, (of_data, entries)) in moments.iter().enumerate() {
        for (j, (of_ring, _)) in moments.iter().enumerate() {
            let when = format!("data of moment {i}, ring of moment {j}");
            let start = [of_data[0].clone(), of_ring[1].clone()];
            let pair = twins(start.clone(), 1);
            if i == j {
                assert!(checked(&pair).unwrap(), "{when}");
                if i > 0 {
                    assert_eq!(entries_of(&pair).unwrap(), *entries, "{when}");
                }
                go_on(&start, 9, true, 1);
                continue;
            }
            for error in
                [entries_of(&pair).unwrap_err(), checked(&pair).unwrap_err(), open(&pair, 9).unwrap_err()]
            {
                assert!(matches!(error, Error::WrongRing { .. }), "{when}: {error}");
                assert!(error.to_string().contains("restore both from the same backup"), "{error}");
            }
            assert!(images(&pair) == start, "{when}: a refusal writes nothing");
        }
    }
}

/// Within one opening the marks are the same; that the ring lacks what the superblock knows of is
/// told all the same.
#[test]
fn a_ring_put_back_within_an_opening_is_damage_where_the_superblock_tells() {
    let pair = twins(made(1), 2);
    let store = open(&pair, 2).unwrap();
    store.append("log", "a").unwrap().wait().unwrap();
    let ring = pair[1].disk.image();
    store.append("log", "b").unwrap().wait().unwrap();
    store.close().unwrap();
    let error = entries_of(&twins([pair[0].disk.image(), ring], 1)).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
}

/// The power goes during every operation of an opening, and during every operation of the next.
#[test]
fn openings_cut_short_twice_in_a_row_leave_volumes_that_go_together() {
    let base = go_on(&made(1), 2, false, 3);
    let (mut cuts, mut halfway) = (0, 0);
    for seed in 3..8 {
        for first in 0.. {
            let once = twins(base.clone(), seed);
            once[0].blow_after(first);
            let _ = open(&once, seed).map(Store::abandon);
            let left = crash(&once);
            for second in 0.. {
                let when = format!("seed {seed}, cuts after {first} and {second}");
                let [data, ring] = twins(left.clone(), seed);
                let twice = if seed % 2 == 0 { [data, ring] } else { [data.tearing(), ring.tearing()] };
                twice[0].blow_after(second);
                match open(&twice, seed + 10) {
                    Ok(store) => store.abandon(),
                    Err(error) => assert!(twice[0].has_blown(), "{when}: {error}"),
                }
                let found = crash(&twice);
                let pair = twins(found.clone(), seed);
                assert_eq!(entries_of(&pair).unwrap_or_else(|error| panic!("{when}: {error}")), 3, "{when}");
                halfway += u32::from(!checked(&pair).unwrap());
                let end = go_on(&found, seed + 20, true, 1);
                let pair = twins(end.clone(), seed);
                assert_eq!((entries_of(&pair).unwrap(), checked(&pair).unwrap()), (4, true), "{when}");
                for alone in [[end[0].clone(), found[1].clone()], [found[0].clone(), end[1].clone()]] {
                    let error = entries_of(&twins(alone, 1)).unwrap_err();
                    assert!(matches!(error, Error::WrongRing { .. }), "{when}: {error}");
                }
                cuts += 2;
                if !twice[0].has_blown() {
                    break;
                }
            }
            if !once[0].has_blown() {
                break;
            }
        }
    }
    println!("{cuts} power cuts, {halfway} left copies that differ");
    assert!(cuts > 1_000 && halfway > 20, "{cuts} cuts, {halfway} halfway");
}
