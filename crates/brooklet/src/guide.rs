//! The pages of the guide, whose code compiles and runs with the tests.

#[doc = include_str!("../../../docs/guide/opening.md")]
struct Opening;

#[doc = include_str!("../../../docs/guide/writing.md")]
struct Writing;

#[doc = include_str!("../../../docs/guide/reading.md")]
struct Reading;

#[doc = include_str!("../../../docs/guide/tailing.md")]
struct Tailing;

#[doc = include_str!("../../../docs/guide/errors.md")]
struct Errors;

#[doc = include_str!("../../../docs/guide/snapshots.md")]
struct Snapshots;

#[doc = include_str!("../../../docs/guide/spaces.md")]
struct Spaces;

#[doc = include_str!("../../../docs/guide/tuning.md")]
struct Tuning;

#[doc = include_str!("../../../docs/guide/upgrading.md")]
struct Upgrading;
