//! The machines, step by step: what the exhaustive check leaves out, because it has no time, and
//! the bounds of a race.

use std::collections::BTreeMap;
use std::time::Duration;

use brooklet_replica::{
    Claim, Drawn, Epoch, Follower, FollowerState, Found, Kind, Mark, Object, Opened, Owner, OwnerLimits,
    OwnerState, Payload, Place, Record, Recorder, Reply, Request, StoreId, Takeover, TakeoverEnd,
    TakeoverLimits, Writer,
};

use crate::world::{Block, Bucket, STORE};

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn bucket() -> Bucket {
    Bucket { claims: BTreeMap::new(), records: BTreeMap::new(), log: BTreeMap::new() }
}

fn writer(epoch: u64) -> Writer {
    Writer { store: STORE, epoch: Epoch(epoch), drawn: Drawn(epoch.into()) }
}

fn owner(epoch: u64, limits: OwnerLimits) -> Owner<Block> {
    Owner::new(writer(epoch), Mark::BEGIN, limits, secs(0))
}

fn created(requests: &[Request<Block>]) -> Vec<u64> {
    let place = |request: &Request<Block>| match request {
        Request::Create(object) => object.place.number,
        other => panic!("{other:?}"),
    };
    requests.iter().map(place).collect()
}

fn offer(owner: &mut Owner<Block>, blocks: std::ops::Range<u64>) {
    for block in blocks {
        assert!(owner.offer(block, block + 1, Block(block as u8)));
    }
}

#[test]
fn an_owner_keeps_its_window_and_releases_in_order() {
    let mut owner = owner(1, OwnerLimits { window: 3, ..OwnerLimits::default() });
    offer(&mut owner, 0..5);
    let first = owner.poll(secs(0));
    assert_eq!(created(&first), [0, 1, 2]);
    assert!(!owner.has_room() && owner.poll(secs(0)).is_empty());
    owner.answer(&first[2], Reply::Done, secs(0));
    owner.answer(&first[1], Reply::Done, secs(0));
    assert!(owner.take_released().is_empty() && owner.poll(secs(0)).is_empty());
    owner.answer(&first[0], Reply::Done, secs(0));
    assert_eq!(owner.take_released().iter().map(|object| object.payload.0).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!((owner.kept().lsn, owner.kept().place.number), (3, 3));
    assert_eq!(created(&owner.poll(secs(0))), [3, 4]);
}

/// "Exists" alone means nothing: the owner looks, and believes only its own object.
#[test]
fn an_owner_decides_by_identity() {
    let start = || {
        let mut owner = owner(1, OwnerLimits::default());
        offer(&mut owner, 0..1);
        let put = owner.poll(secs(0)).remove(0);
        owner.answer(&put, Reply::Exists, secs(0));
        let look = owner.poll(secs(0)).remove(0);
        assert!(matches!(look, Request::Read(_)) && owner.take_released().is_empty());
        let Request::Create(object) = put.clone() else { panic!() };
        (owner, put, look, object)
    };
    let (mut mine, _, look, object) = start();
    mine.answer(&look, Reply::Object(Some(object)), secs(0));
    assert_eq!(mine.take_released().len(), 1);

    let (mut absent, put, look, _) = start();
    absent.answer(&look, Reply::Object(None), secs(0));
    assert_eq!(absent.poll(secs(0)), [put]);

    let (mut unknown, _, look, _) = start();
    unknown.answer(&look, Reply::Unknown, secs(0));
    assert_eq!(unknown.poll(secs(0)), [look]);

    let (mut fenced, put, look, object) = start();
    fenced.answer(&look, Reply::Object(Some(Object::fence(&writer(4), object.place))), secs(0));
    assert_eq!(fenced.state(), OwnerState::Fenced { by: Epoch(4) });
    fenced.answer(&put, Reply::Done, secs(0));
    assert!(fenced.take_released().is_empty() && fenced.poll(secs(9)).is_empty());
    assert!(!fenced.offer(1, 2, Block(1)));

    // Another object in its own epoch is not its own, either.
    let (mut robbed, _, look, object) = start();
    let other = Object { drawn: Drawn(99), ..object };
    robbed.answer(&look, Reply::Object(Some(other)), secs(0));
    assert!(matches!(robbed.state(), OwnerState::Fenced { .. }));
}

#[test]
fn an_owner_sends_the_same_again_when_nobody_answers() {
    let mut owner = owner(1, OwnerLimits { hedge: secs(2), doubt: secs(999), ..OwnerLimits::default() });
    offer(&mut owner, 0..1);
    let put = owner.poll(secs(0));
    assert!(owner.poll(secs(1)).is_empty());
    assert_eq!(owner.poll(secs(2)), put);
    assert!(owner.poll(secs(99)).is_empty(), "two at a time are enough");
    owner.answer(&put[0], Reply::Unknown, secs(99));
    assert_eq!(owner.poll(secs(99)), put);
    owner.answer(&put[0], Reply::Done, secs(99));
    owner.answer(&put[0], Reply::Exists, secs(99));
    assert_eq!(owner.take_released().len(), 1);
}

#[test]
fn an_idle_owner_beats_and_a_leaving_one_says_where_to() {
    let mut owner = owner(1, OwnerLimits { beat: Some(secs(1)), ..OwnerLimits::default() });
    // The first beat begins the lease.
    let Request::Create(beat) = owner.poll(secs(0)).remove(0) else { panic!() };
    assert_eq!((beat.kind, beat.begin, beat.end), (Kind::Beat, 0, 0));
    assert!(owner.poll(secs(1)).is_empty(), "the first beat is under way");
    owner.answer(&Request::Create(beat), Reply::Done, secs(1));
    assert!(owner.lease().is_some() && owner.poll(Duration::from_millis(999)).is_empty());
    let second = owner.poll(secs(3));
    assert_eq!(created(&second), [1]);
    owner.answer(&second[0], Reply::Done, secs(3));
    offer(&mut owner, 5..6);
    assert!(owner.hand_over(Block(9)) && !owner.hand_over(Block(9)) && !owner.offer(6, 7, Block(1)));
    let last = owner.poll(secs(9));
    let Request::Create(handover) = &last[1] else { panic!() };
    assert_eq!((handover.kind, handover.begin, handover.payload), (Kind::Handover, 6, Block(9)));
    last.iter().for_each(|put| owner.answer(put, Reply::Done, secs(9)));
    assert!(owner.poll(secs(99)).is_empty(), "an owner that has left does not beat");
}

/// After a long pause an owner trusts a fence no longer: a rule of the bucket may have removed it.
#[test]
fn an_owner_that_slept_looks_for_a_later_claim() {
    let start = || {
        let limits = OwnerLimits { doubt: secs(60), beat: None, ..OwnerLimits::default() };
        let mut owner = owner(3, limits);
        offer(&mut owner, 0..2);
        let puts = owner.poll(secs(0));
        owner.answer(&puts[0], Reply::Done, secs(59));
        assert_eq!(owner.take_released().len(), 1);
        owner.answer(&puts[1], Reply::Done, secs(119));
        assert!(owner.take_released().is_empty() && owner.lease().is_none(), "it doubts first");
        let look = owner.poll(secs(119));
        assert_eq!(look, [Request::ReadClaim(Epoch(4))]);
        (owner, look[0].clone())
    };
    let (mut alone, look) = start();
    alone.answer(&look, Reply::Unknown, secs(120));
    assert!(alone.poll(secs(120)).contains(&look));
    alone.answer(&look, Reply::Claim(None), secs(120));
    assert!(alone.take_released().len() == 1 && alone.lease().is_some());
    let (mut replaced, look) = start();
    let claim = Claim { writer: writer(4), owner: String::new(), address: String::new() };
    replaced.answer(&look, Reply::Claim(Some(claim)), secs(120));
    assert_eq!(replaced.state(), OwnerState::Fenced { by: Epoch(4) });
    assert!(replaced.take_released().is_empty());
}

/// The lease counts from the moment at which a request was sent first, not from its reply.
#[test]
fn reads_are_served_for_two_seconds_after_a_request_began() {
    let mut owner = owner(1, OwnerLimits { lease: secs(2), hedge: secs(1), ..OwnerLimits::default() });
    assert_eq!(owner.lease(), None);
    offer(&mut owner, 0..1);
    let put = owner.poll(secs(10)).remove(0);
    owner.poll(secs(11));
    assert_eq!(owner.lease(), None);
    owner.answer(&put, Reply::Done, secs(11));
    assert_eq!(owner.lease(), Some(secs(12)));
    // Nobody sees an object behind a hole.
    offer(&mut owner, 1..3);
    let puts = owner.poll(secs(11));
    owner.answer(&puts[1], Reply::Done, secs(11));
    assert_eq!(owner.lease(), Some(secs(12)));
    owner.answer(&puts[0], Reply::Done, secs(11));
    assert_eq!(owner.lease(), Some(secs(13)));
    // The next owner waits for nothing once this one hands over.
    owner.hand_over(Block(9));
    assert_eq!(owner.lease(), None);
}

/// Plays a takeover against a bucket in which `between` happens after each request.
fn take_over(
    bucket: &mut Bucket,
    limits: TakeoverLimits,
    mut between: impl FnMut(&mut Bucket, &Request<Block>),
) -> (TakeoverEnd, Vec<u8>, u32) {
    let mut takeover = Takeover::<Block>::new(STORE, Drawn(77), "me", "here", limits);
    let (mut found, mut requests) = (Vec::new(), 0);
    loop {
        for it in takeover.take_found() {
            match it {
                Found::Begin(_) => found.clear(),
                Found::Object(object) => found.push(object.payload.0),
            }
        }
        if let Some(end) = takeover.end() {
            return (end.clone(), found, requests);
        }
        let request = takeover.poll().unwrap();
        let reply = bucket.effect(&request);
        takeover.answer(reply);
        between(bucket, &request);
        requests += 1;
    }
}

fn opened(end: TakeoverEnd) -> Opened {
    let TakeoverEnd::Opened(opened) = end else { panic!("{end:?}") };
    opened
}

#[test]
fn the_first_takeover_of_an_empty_bucket_opens_it() {
    let (end, found, _) = take_over(&mut bucket(), TakeoverLimits::default(), |_, _| {});
    let opened = opened(end);
    assert_eq!((opened.writer.epoch, opened.end, found.len()), (Epoch(1), Mark::BEGIN, 0));
}

/// A live owner wins every race for a hole. The fence ahead of it ends the race.
#[test]
fn a_fast_owner_is_fenced_all_the_same() {
    let mut bucket = bucket();
    take_over(&mut bucket, TakeoverLimits::default(), |_, _| {});
    let mut live = owner(1, OwnerLimits { window: 8, beat: None, ..OwnerLimits::default() });
    let (mut next, mut kept) = (0, Vec::new());
    let limits = TakeoverLimits { objects: 4, ahead: 64 };
    let (end, found, requests) = take_over(&mut bucket, limits, |bucket, _| {
        // The owner fills every place as soon as somebody looks at it.
        if live.state() == OwnerState::Serving {
            live.offer(next, next + 1, Block(next as u8));
            next += 1;
        }
        loop {
            let requests = live.poll(secs(0));
            if requests.is_empty() {
                break;
            }
            requests.iter().for_each(|request| live.answer(request, bucket.effect(request), secs(0)));
            kept.extend(live.take_released().iter().map(|object| object.payload.0));
        }
    });
    let opened = opened(end);
    assert!(matches!(live.state(), OwnerState::Fenced { by: Epoch(2) }), "{:?}", live.state());
    assert!(kept.len() > 64 && found == kept, "{} and {}", kept.len(), found.len());
    assert!(requests < 400, "{requests}");
    assert_eq!(opened.end.place, Place::first_of(Epoch(2)));
}

#[test]
fn a_damaged_chain_is_told() {
    let mut bucket = bucket();
    take_over(&mut bucket, TakeoverLimits::default(), |_, _| {});
    let mut owner = owner(1, OwnerLimits::default());
    offer(&mut owner, 0..2);
    owner.poll(secs(0)).iter().for_each(|put| drop(bucket.effect(put)));
    let place = Place { epoch: Epoch(1), number: 1 };
    bucket.log.get_mut(&place).unwrap().previous ^= 1;
    let (end, _, _) = take_over(&mut bucket, TakeoverLimits::default(), |_, _| {});
    assert_eq!(end, TakeoverEnd::Broken(place));
}

#[test]
fn of_two_claimants_of_an_epoch_one_is_outbid() {
    let mut bucket = bucket();
    let mut second = Takeover::<Block>::new(STORE, Drawn(5), "other", "", TakeoverLimits::default());
    let request = second.poll().unwrap();
    let reply = bucket.effect(&request);
    second.answer(reply);
    take_over(&mut bucket, TakeoverLimits::default(), |_, _| {});
    while second.end().is_none() {
        let request = second.poll().unwrap();
        second.answer(bucket.effect(&request));
    }
    assert!(matches!(second.end(), Some(TakeoverEnd::Outbid(claim)) if claim.owner == "me"));
}

/// What a recorder does until it is idle.
fn settle(recorder: &mut Recorder, bucket: &mut Bucket) {
    loop {
        let requests = recorder.poll::<Block>();
        if requests.is_empty() {
            return;
        }
        requests.iter().for_each(|request| recorder.answer(request, bucket.effect(request)));
    }
}

#[test]
fn trims_keep_the_fences_of_all_epochs() {
    let mut bucket = bucket();
    for epoch in 1..=4 {
        let (end, found, _) = take_over(&mut bucket, TakeoverLimits::default(), |_, _| {});
        let opened = opened(end);
        assert_eq!(found.len() as u64, epoch - 1);
        let mut owner = Owner::new(opened.writer, opened.end, OwnerLimits::default(), secs(0));
        offer(&mut owner, epoch..epoch + 1);
        owner.poll(secs(0)).iter().for_each(|put| owner.answer(put, bucket.effect(put), secs(0)));
        if epoch == 4 {
            let mut recorder = Recorder::new(&opened);
            assert!(recorder.record(owner.kept(), 0) && !recorder.record(owner.kept(), 0));
            settle(&mut recorder, &mut bucket);
            assert!(recorder.is_idle());
        }
    }
    let left: Vec<_> = bucket.log.values().map(|object| (object.place.epoch.0, object.is_fence())).collect();
    assert_eq!(left, [(1, true), (2, true), (3, true)]);
    let record = &bucket.records[&0];
    assert_eq!(record.ends, [(Epoch(1), 1), (Epoch(2), 1), (Epoch(3), 1)].into());
    assert_eq!(Record::decode(STORE, 0, &record.encode(STORE)).as_ref(), Ok(record));
    // The next record needs these ends no more.
    let (end, found, _) = take_over(&mut bucket, TakeoverLimits::default(), |_, _| {});
    let opened = opened(end);
    assert_eq!((found.len(), opened.end.lsn, opened.writer.epoch), (0, 5, Epoch(5)));
}

/// Two backups may end in another order than they began. In the old state, the second record could
/// not be read, so that nobody could open the log any more.
#[test]
fn a_record_takes_nothing_back() {
    let mut bucket = bucket();
    let (end, _, _) = take_over(&mut bucket, TakeoverLimits::default(), |_, _| {});
    let opened = opened(end);
    let mut owner = Owner::new(opened.writer, opened.end, OwnerLimits::default(), secs(0));
    let mut recorder = Recorder::new(&opened);
    let mut marks = Vec::new();
    for block in 0..3 {
        offer(&mut owner, block..block + 1);
        owner.poll(secs(0)).iter().for_each(|put| owner.answer(put, bucket.effect(put), secs(0)));
        marks.push(owner.kept());
    }
    for (mark, is_recorded) in [(marks[1], true), (marks[0], false), (marks[1], true), (marks[2], true)] {
        let before = bucket.records.len();
        recorder.record(mark, 0);
        settle(&mut recorder, &mut bucket);
        assert!(recorder.is_idle());
        assert_eq!(bucket.records.len() - before, usize::from(is_recorded), "{mark:?}");
    }
    for (number, record) in &bucket.records {
        assert_eq!(Record::decode(STORE, *number, &record.encode(STORE)).as_ref(), Ok(record));
    }
}

/// The log has very many objects. In an earlier state, the recorder first made a list of all of
/// their places.
#[test]
fn a_long_log_is_trimmed_place_by_place() {
    let mut bucket = bucket();
    let (end, _, _) = take_over(&mut bucket, TakeoverLimits::default(), |_, _| {});
    let opened = opened(end);
    let mut recorder = Recorder::new(&opened);
    let place = Place { epoch: opened.writer.epoch, number: 1 << 60 };
    assert!(recorder.record(Mark { place, lsn: 1 << 60, chain: 7 }, 0));
    let requests = recorder.poll::<Block>();
    assert!(matches!(&requests[..], [Request::Record(_)]));
    recorder.answer(&requests[0], Reply::Done);
    let first = recorder.poll::<Block>();
    let of = |requests: &[Request<Block>]| -> Vec<u64> {
        let number = |request: &Request<Block>| match request {
            Request::Remove(place) => place.number,
            other => panic!("{other:?}"),
        };
        requests.iter().map(number).collect()
    };
    assert!(of(&first).into_iter().eq(0..first.len() as u64) && !first.is_empty());
    assert!(recorder.poll::<Block>().is_empty(), "enough are under way");
    // A removal that failed is repeated, and the others are followed by the next ones.
    recorder.answer(&first[3], Reply::Unknown);
    recorder.answer(&first[0], Reply::Done);
    let next = first.len() as u64;
    assert_eq!(of(&recorder.poll::<Block>()), [3, next]);
    assert!(!recorder.is_idle());
}

/// A slow bucket has removals outstanding at nearly all times. In the old state all records said
/// then that nothing was trimmed, and the next owner removed all of it again.
#[test]
fn a_record_says_how_far_the_log_is_trimmed_while_removals_are_outstanding() {
    let place = |epoch: u64, number: u64| Place { epoch: Epoch(epoch), number };
    let mark = |number: u64| Mark { place: place(2, number), lsn: number, chain: 7 };
    for (done, trimmed, ends) in [(3, place(1, 3), 1), (5, place(2, 0), 0), (8, place(2, 3), 0)] {
        let opened = Opened {
            writer: writer(2),
            end: mark(0),
            last_writer: None,
            record: None,
            trimmed: Mark::BEGIN.place,
            ends: [(Epoch(1), 5)].into(),
        };
        let mut recorder = Recorder::new(&opened);
        assert!(recorder.record(mark(10), 0));
        let requests = recorder.poll::<Block>();
        recorder.answer(&requests[0], Reply::Done);
        let removals = recorder.poll::<Block>();
        assert_eq!(removals.len(), 15);
        recorder.answer(&removals[done], Reply::Unknown);
        removals[..done].iter().for_each(|removal| recorder.answer(removal, Reply::Done));
        recorder.answer(&removals[done + 1], Reply::Done);
        assert!(recorder.record(mark(20), 1));
        let requests = recorder.poll::<Block>();
        let Some(Request::Record(record)) = requests.first() else { panic!("{requests:?}") };
        assert_eq!((record.trimmed, record.ends.len()), (trimmed, ends), "{done} are removed");
        assert_eq!(Record::decode(STORE, 1, &record.encode(STORE)).as_ref(), Ok(record));
    }
}

fn follower(at: Mark) -> Follower<Block> {
    Follower::new(STORE, at, None, secs(3), secs(0))
}

/// Lets a follower ask once.
fn ask(follower: &mut Follower<Block>, bucket: &mut Bucket, now: Duration) {
    let request = follower.poll().unwrap();
    follower.answer(bucket.effect(&request), now, now);
}

#[test]
fn a_follower_notices_silence_and_goes_on_when_the_owner_does() {
    let mut bucket = bucket();
    let mut owner = owner(1, OwnerLimits { beat: None, ..OwnerLimits::default() });
    let mut follower = follower(Mark::BEGIN);
    ask(&mut follower, &mut bucket, secs(2));
    offer(&mut owner, 0..1);
    owner.poll(secs(0)).iter().for_each(|put| drop(bucket.effect(put)));
    ask(&mut follower, &mut bucket, secs(3));
    assert_eq!((follower.take_found().len(), follower.at().lsn), (1, 1));
    for now in [4, 5, 6] {
        ask(&mut follower, &mut bucket, secs(now));
        assert_eq!(follower.state(), &FollowerState::Following);
    }
    for _ in 0..2 {
        ask(&mut follower, &mut bucket, secs(6));
    }
    assert_eq!(follower.state(), &FollowerState::Silent);
    offer(&mut owner, 1..2);
    owner.poll(secs(0)).iter().for_each(|put| drop(bucket.effect(put)));
    ask(&mut follower, &mut bucket, secs(7));
    assert_eq!(follower.state(), &FollowerState::Following);
    assert!(owner.hand_over(Block(3)));
    owner.poll(secs(0)).iter().for_each(|put| drop(bucket.effect(put)));
    ask(&mut follower, &mut bucket, secs(8));
    assert_eq!(follower.state(), &FollowerState::HandedOver);
}

#[test]
fn a_follower_passes_fences_and_notices_a_trimmed_place() {
    let mut bucket = bucket();
    take_over(&mut bucket, TakeoverLimits::default(), |_, _| {});
    let mut first = owner(1, OwnerLimits::default());
    offer(&mut first, 0..1);
    first.poll(secs(0)).iter().for_each(|put| drop(bucket.effect(put)));
    let (end, _, _) = take_over(&mut bucket, TakeoverLimits::default(), |_, _| {});
    let opened = opened(end);
    let mut second = Owner::new(opened.writer, opened.end, OwnerLimits::default(), secs(0));
    offer(&mut second, 1..2);
    second.poll(secs(0)).iter().for_each(|put| second.answer(put, bucket.effect(put), secs(0)));

    let mut quick = follower(Mark::BEGIN);
    for _ in 0..2 {
        ask(&mut quick, &mut bucket, secs(0));
    }
    let mut slow = follower(Mark::BEGIN);
    let mut recorder = Recorder::new(&opened);
    recorder.record(second.kept(), 0);
    settle(&mut recorder, &mut bucket);
    // The quick one is at the fence, which is the true end of its epoch, but behind it all is gone.
    ask(&mut quick, &mut bucket, secs(0));
    assert_eq!((quick.state(), quick.at().place), (&FollowerState::Following, Place::first_of(Epoch(2))));
    for follower in [&mut quick, &mut slow] {
        for _ in 0..2 {
            if follower.poll().is_some() {
                // Nobody hears of this one.
                follower.answer(Reply::Unknown, secs(3), secs(3));
            }
            ask(follower, &mut bucket, secs(6));
        }
        ask(follower, &mut bucket, secs(6));
        assert_eq!(follower.state(), &FollowerState::Behind);
        assert!(follower.poll().is_none());
    }
    let mut caught_up = follower(second.kept());
    for _ in 0..3 {
        ask(&mut caught_up, &mut bucket, secs(3));
    }
    assert_eq!(caught_up.state(), &FollowerState::Silent);
    let strange = Mark { chain: 1, ..Mark::BEGIN };
    let mut other = follower(strange);
    bucket.effect(&first_object());
    ask(&mut other, &mut bucket, secs(0));
    assert!(matches!(other.state(), FollowerState::Broken(_)));
}

/// A follower that slept hears late that there was nothing. The silence of the bucket is not that
/// of the owner.
#[test]
fn a_follower_judges_by_the_time_of_its_request() {
    let mut bucket = bucket();
    let mut slept = follower(Mark::BEGIN);
    slept.poll().unwrap();
    slept.answer(Reply::Object(None), secs(1), secs(100));
    assert!(matches!(slept.poll(), Some(Request::Read(_))));
    slept.answer(Reply::Object(None), secs(102), secs(102));
    assert!(matches!(slept.poll(), Some(Request::Read(_))));
    let mut cut_off = follower(Mark::BEGIN);
    cut_off.poll().unwrap();
    cut_off.answer(Reply::Unknown, secs(1), secs(50));
    ask(&mut cut_off, &mut bucket, secs(52));
    assert!(matches!(cut_off.poll(), Some(Request::Read(_))));
    cut_off.answer(Reply::Object(None), secs(53), secs(53));
    // It looks for a trim now, and nobody answers.
    assert!(matches!(cut_off.poll(), Some(Request::NewestRecord(_))));
    cut_off.answer(Reply::Unknown, secs(53), secs(60));
    ask(&mut cut_off, &mut bucket, secs(61));
    assert!(matches!(cut_off.poll(), Some(Request::Read(_))));
    assert_eq!(cut_off.state(), &FollowerState::Following);
}

/// A host that takes over gives no sign while it reads the log.
#[test]
fn a_follower_waits_longer_for_each_new_claim() {
    let mut bucket = bucket();
    let mut follower = follower(Mark::BEGIN);
    let claim = |epoch: u64| {
        let writer = writer(epoch);
        Request::Claim(Claim { writer, owner: String::new(), address: String::new() })
    };
    // The owner has claimed its epoch, and appends nothing. Another one claims the next.
    bucket.effect(&claim(1));
    bucket.effect(&claim(2));
    let silent_at = (0..).find(|now| {
        ask(&mut follower, &mut bucket, secs(*now));
        follower.state() == &FollowerState::Silent
    });
    assert_eq!(silent_at, Some(3 + 2 + 6 + 2));
}

fn first_object() -> Request<Block> {
    let mut owner = owner(1, OwnerLimits::default());
    offer(&mut owner, 0..1);
    owner.poll(secs(0)).remove(0)
}

#[test]
fn fences_have_no_payload() {
    let fence = Object::<Block>::fence(&writer(4), Place::first_of(Epoch(1)));
    assert!(fence.is_fence() && fence.by == Epoch(4) && fence.payload == Block::empty());
    assert_ne!(fence.sum(STORE), fence.sum(StoreId(8)));
}
