//! Changes of JSON: undo, sizes, refusals, composition.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::json::size::size;

fn state(value: Value) -> JsonState {
    JsonState::from(value)
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c~/\"]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c]|~|/|\"", inner, 0..4)
                .prop_map(|parts| Value::Object(parts.into_iter().collect())),
        ]
    })
}

fn path() -> impl Strategy<Value = String> {
    let token = prop_oneof![
        4 => "[a-c]",
        1 => Just("~0".to_owned()),
        1 => Just("~1".to_owned()),
        2 => (0..4_u8).prop_map(|index| index.to_string()),
        1 => Just("-".to_owned()),
        1 => Just("01".to_owned()),
    ];
    prop::collection::vec(token, 0..4)
        .prop_map(|tokens| tokens.iter().map(|token| format!("/{token}")).collect())
}

fn operation() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => (path(), value()).prop_map(|(path, value)| json!({"op": "add", "path": path, "value": value})),
        2 => path().prop_map(|path| json!({"op": "remove", "path": path})),
        2 => (path(), value()).prop_map(|(path, value)| json!({"op": "replace", "path": path, "value": value})),
        2 => (path(), path()).prop_map(|(from, path)| json!({"op": "move", "from": from, "path": path})),
        2 => (path(), path()).prop_map(|(from, path)| json!({"op": "copy", "from": from, "path": path})),
        1 => (path(), value()).prop_map(|(path, value)| json!({"op": "test", "path": path, "value": value})),
    ]
}

fn patch(operations: &[Value]) -> JsonChange {
    JsonChange::parse_patch(&serde_json::to_vec(operations).unwrap()).unwrap()
}

fn change() -> impl Strategy<Value = JsonChange> {
    prop_oneof![
        value().prop_map(JsonChange::merge),
        // Most single operations succeed; lists fail somewhere, and are rolled back.
        operation().prop_map(|operation| patch(&[operation])),
        prop::collection::vec(operation(), 0..4).prop_map(|operations| patch(&operations)),
    ]
}

/// A merge patch as most are: a load takes several of them in a row as one.
fn plain_merge() -> impl Strategy<Value = JsonChange> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-cé\"]{0,20}".prop_map(Value::from),
    ];
    prop::collection::btree_map("[a-c]", leaf, 1..4)
        .prop_map(|members| JsonChange::merge(Value::Object(members.into_iter().collect())))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn an_undo_leads_back_and_sizes_stay_true(value in value(), changes in prop::collection::vec(change(), 1..6)) {
        let model = Json::new();
        let mut now = state(value);
        let mut undos = Vec::new();
        for change in changes {
            let before = now.clone();
            let bytes = model.encode(&change).unwrap();
            prop_assert_eq!(model.decode(&bytes.into()).unwrap(), change.clone());
            match model.apply(&mut now, &change) {
                Ok(undo) => {
                    let undo = undo.unwrap();
                    let mut back = now.clone();
                    model.apply(&mut back, &undo).unwrap();
                    prop_assert_eq!(&back, &before);
                    undos.push((before, undo));
                }
                Err(_) => prop_assert_eq!(&now, &before, "a refused change leaves the state"),
            }
            prop_assert_eq!(now.size, size(&now.value));
        }
        // All undos as one change, as a rewind writes it.
        undos.reverse();
        if let Some((first, _)) = undos.last().cloned() {
            let undos: Vec<_> = undos.into_iter().map(|(_, undo)| undo).collect();
            model.apply(&mut now, &JsonChange::compose(&undos).unwrap()).unwrap();
            prop_assert_eq!(now, first);
        }
    }

    #[test]
    fn a_replay_leads_to_the_state_that_the_changes_led_to(
        value in value(),
        changes in prop::collection::vec(prop_oneof![2 => plain_merge(), 1 => change()], 1..12),
    ) {
        let model = Json::new();
        let mut now = state(value);
        let mut replayed = now.clone();
        let taken: Vec<Bytes> = changes
            .iter()
            .filter(|change| model.apply(&mut now, change).is_ok())
            .map(|change| model.encode(change).unwrap().into())
            .collect();
        model.replay(&mut replayed, &mut taken.iter()).unwrap();
        prop_assert_eq!(replayed, now);
    }

    #[test]
    fn a_merge_patch_in_place_is_the_one_that_was_parsed(before in value(), patch in value()) {
        let text = serde_json::to_vec(&patch).unwrap();
        let (mut parsed, mut in_place) = (before.clone(), before);
        replay::apply(&mut parsed, JsonChange::decode(&[&b"m"[..], &text].concat()).unwrap()).unwrap();
        merge::merge_text(&mut in_place, &text).unwrap();
        prop_assert_eq!(in_place, parsed);
        prop_assert!(merge::merge_text(&mut Value::Null, &text[..text.len() - 1]).is_err() || patch.is_number());
        prop_assert!(merge::merge_text(&mut Value::Null, &[&text[..], b" 1"].concat()).is_err());
    }

    #[test]
    fn composed_changes_do_what_their_parts_do(value in value(), changes in prop::collection::vec(change(), 1..4)) {
        let model = Json::new();
        let mut one_by_one = state(value);
        let mut at_once = one_by_one.clone();
        if changes.iter().all(|change| model.apply(&mut one_by_one, change).is_ok())
            && let Some(all) = JsonChange::compose(&changes)
        {
            model.apply(&mut at_once, &all).unwrap();
            prop_assert_eq!(at_once, one_by_one);
        }
    }

    #[test]
    fn a_state_reads_back_to_the_last_bit(value in value()) {
        let (model, state) = (Json::new(), state(value));
        let bytes = model.snapshot(&state).unwrap();
        prop_assert_eq!(model.load(1, &bytes.into()).unwrap(), state);
    }

    #[test]
    fn any_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let bytes = Bytes::from(bytes);
        let _ = (Json::parse(&bytes), JsonChange::parse_patch(&bytes), JsonChange::parse_merge(&bytes));
        let _ = (Json::new().decode(&bytes), Json::new().load(1, &bytes));
    }
}

fn refusal(model: Json, mut from: JsonState, change: &JsonChange) -> RefusalKind {
    let before = from.clone();
    let kind = model.encode(change).and_then(|_| model.apply(&mut from, change)).unwrap_err().kind();
    assert_eq!(from, before);
    kind
}

/// Returns text of `levels` arrays, one in the other.
fn nested(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

#[test]
fn depth_has_a_limit_wherever_a_value_comes_from() {
    let model = Json::new().max_depth(4);
    let deep = |levels| serde_json::from_str::<Value>(&nested(levels)).unwrap();
    let too_deep = RefusalKind::TooDeep;
    assert_eq!(refusal(model, state(json!({})), &JsonChange::merge(json!({"a": deep(4)}))), too_deep);
    assert!(model.apply(&mut state(json!({})), &JsonChange::merge(json!({"a": deep(3)}))).is_ok());
    for op in ["add", "replace"] {
        let change = patch(&[json!({"op": op, "path": "/a/b", "value": deep(3)})]);
        assert_eq!(refusal(model, state(json!({"a": {"b": 1}})), &change), too_deep, "{op}");
    }
    for op in ["move", "copy"] {
        let change = patch(&[json!({"op": op, "from": "/a", "path": "/b/c"})]);
        assert_eq!(refusal(model, state(json!({"a": deep(3), "b": {}})), &change), too_deep, "{op}");
    }
    assert_eq!(model.snapshot(&state(deep(5))).unwrap_err().kind(), too_deep);
    // Deeper than the parser reads.
    assert_eq!(Json::parse(nested(200).as_bytes()).unwrap_err().kind(), RefusalKind::Malformed);
    let mut value = Value::Null;
    for _ in 0..300 {
        value = Value::Array(vec![value]);
    }
    assert_eq!(Json::new().snapshot(&state(value)).unwrap_err().kind(), too_deep);
}

#[test]
fn size_has_a_limit_and_an_over_large_state_may_shrink() {
    let model = Json::new().max_size(40);
    let long = "x".repeat(40);
    let too_large = RefusalKind::TooLarge;
    assert_eq!(refusal(model, state(json!({})), &JsonChange::merge(json!({"a": long}))), too_large);
    let copies: Vec<_> = (0..9).map(|_| json!({"op": "copy", "from": "", "path": "/-"})).collect();
    assert_eq!(refusal(model, state(json!(["abcd"])), &patch(&copies)), too_large);
    let mut over = state(json!({"a": long, "b": 1}));
    model.apply(&mut over, &JsonChange::merge(json!({"b": null}))).unwrap();
    assert_eq!(model.snapshot(&over).unwrap_err().kind(), too_large);
}

#[test]
fn invalid_pointers_and_failed_tests_are_refused_by_kind() {
    let model = Json::new();
    let from = || state(json!({"a": [1, 2], "b": {"c": 1}}));
    for operation in [
        json!({"op": "add", "path": "/a/3", "value": 1}),
        json!({"op": "add", "path": "/a/01", "value": 1}),
        json!({"op": "add", "path": "/x/y", "value": 1}),
        json!({"op": "add", "path": "/b/c/d", "value": 1}),
        json!({"op": "remove", "path": "/a/-"}),
        json!({"op": "remove", "path": "/x"}),
        json!({"op": "remove", "path": ""}),
        json!({"op": "replace", "path": "/x", "value": 1}),
        json!({"op": "replace", "path": "/a/2", "value": 1}),
        json!({"op": "test", "path": "/x", "value": 1}),
        json!({"op": "copy", "from": "/x", "path": "/y"}),
        json!({"op": "move", "from": "/b", "path": "/b/c/d"}),
        // A move to an invalid place must not lose the value.
        json!({"op": "move", "from": "/b", "path": "/a/9"}),
    ] {
        // The operations before the refused one are rolled back.
        let change = patch(&[json!({"op": "add", "path": "/z", "value": [3]}), operation.clone()]);
        assert_eq!(refusal(model, from(), &change), RefusalKind::InvalidPointer, "{operation}");
    }
    let change =
        patch(&[json!({"op": "remove", "path": "/a/0"}), json!({"op": "test", "path": "/a/0", "value": 1})]);
    assert_eq!(refusal(model, from(), &change), RefusalKind::TestFailed);
    for text in [
        r#"[{"op":"add","path":"a","value":1}]"#,
        r#"[{"op":"no","path":""}]"#,
        "{}",
        "[{]",
        r#"[{"op":"add","path":"/~2","value":1}]"#,
    ] {
        assert_eq!(
            JsonChange::parse_patch(text.as_bytes()).unwrap_err().kind(),
            RefusalKind::Malformed,
            "{text}"
        );
    }
}

#[test]
fn merge_patches_follow_the_examples_of_rfc_7396() {
    for (original, patch, result) in [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b"}), json!({"a": null}), json!({})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
        (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
        (json!({"a": "foo"}), json!(null), json!(null)),
        (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
        (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
    ] {
        let mut now = state(original);
        Json::new().apply(&mut now, &JsonChange::merge(patch)).unwrap();
        assert_eq!(now.value, result);
    }
}

#[test]
fn merge_patches_without_a_merge_patch_of_the_same_effect_are_not_composed() {
    let compose = |changes: &[Value]| {
        let changes: Vec<_> = changes.iter().cloned().map(JsonChange::merge).collect();
        JsonChange::compose(&changes)
    };
    assert_eq!(compose(&[json!({"a": 1}), json!({"a": {"b": 1}})]), None);
    assert_eq!(compose(&[json!({"a": null}), json!({"a": {"b": 1}})]), None);
    assert_eq!(compose(&[json!(1), json!({"a": 1})]), None);
    let merged = json!({"a": {"b": 1, "c": null}});
    assert_eq!(
        compose(&[json!({"a": {"b": 1}}), json!({"a": {"c": null}})]),
        Some(JsonChange::merge(merged))
    );
    assert_eq!(compose(&[]), Some(patch(&[])));
    assert_eq!(JsonChange::compose(&[JsonChange::merge(json!({})), patch(&[])]), None);
}

/// Each operation may replace a large value, which the undo then has.
#[test]
fn the_values_that_a_patch_replaces_have_a_limit_together() {
    let model = Json::new().max_size(1000);
    let from = || state(json!({"b": "x".repeat(300)}));
    let copies = |count| vec![json!({"op": "copy", "from": "/b", "path": "/x"}); count];
    let moves = |count: usize| {
        let both = [
            json!({"op": "move", "from": "/b", "path": "/c"}),
            json!({"op": "move", "from": "/c", "path": "/b"}),
        ];
        both.into_iter().cycle().take(count).collect::<Vec<_>>()
    };
    let wholes = |count| vec![json!({"op": "copy", "from": "", "path": ""}); count];
    let in_and_out = |count: usize| {
        let both = [json!({"op": "copy", "from": "/b", "path": "/x"}), json!({"op": "remove", "path": "/x"})];
        both.into_iter().cycle().take(count).collect::<Vec<_>>()
    };
    for few in [copies(10), moves(10), wholes(10), in_and_out(20)] {
        let mut now = from();
        let undo = model.apply(&mut now, &patch(&few)).unwrap().unwrap();
        model.apply(&mut now, &undo).unwrap();
        assert_eq!(now, from());
    }
    // Objects with one member each take little text, and much memory.
    let objects = json!({"b": vec![json!({"": 0}); 25]});
    let from_objects = || state(objects.clone());
    let mut now = from_objects();
    model.apply(&mut now, &patch(&copies(1))).unwrap().unwrap();
    assert_eq!(refusal(model, from_objects(), &patch(&copies(6))), RefusalKind::TooLarge);
    for many in [copies(30), moves(30), wholes(30), in_and_out(60)] {
        assert_eq!(refusal(model, from(), &patch(&many)), RefusalKind::TooLarge);
    }
}

#[test]
fn the_memory_of_tiny_objects_counts() {
    let model = Json::new();
    let memory = |text: String| model.size(&Json::parse(text.as_bytes()).unwrap());
    let many = |part: &str| memory(format!("[{}]", vec![part; 1000].join(",")));
    // An object has room for eleven members, an array for four values.
    let object = 11 * (size_of::<String>() + size_of::<Value>());
    assert!((1000 * object..2000 * object).contains(&many("{\"\":0}")));
    assert!((128_000..300_000).contains(&many("[0]")));
    assert!((32_000..64_000).contains(&many("0")));
    // Text takes little more than its length.
    assert!((100_000..110_000).contains(&memory(format!("\"{}\"", "x".repeat(100_000)))));
    // A change keeps the number up to date.
    let mut now = state(json!({}));
    let empty = model.size(&now);
    let undo = model.apply(&mut now, &JsonChange::merge(json!({"a": [{"": 0}], "b": {"c": null}}))).unwrap();
    assert!(model.size(&now) > empty + 2 * object);
    model.apply(&mut now, &undo.unwrap()).unwrap();
    assert_eq!(model.size(&now), empty);
}

/// The path of each step of an undo names all objects around the member.
#[test]
fn the_undo_of_a_merge_patch_below_a_long_path_is_short() {
    let model = Json::new();
    let member = |n: usize| format!("m{n}");
    let key = "k".repeat(50_000);
    let many = |value: Value| Value::Object((0..3_500).map(|n| (member(n), value.clone())).collect());
    let under = |value: Value| json!({"a": {&key: value, "other": 1}});
    for (before, change) in [
        (under(json!({})), json!({"a": {&key: many(json!(1))}})),
        (under(many(json!(1))), json!({"a": {&key: many(Value::Null)}})),
        (under(many(json!(1))), json!({"a": {&key: many(json!([2])), "none": null}})),
        (under(many(json!({"x": 1}))), json!({"a": {&key: many(json!({"x": {"y": 2}})), "other": 2}})),
    ] {
        let mut now = state(before);
        let first = now.clone();
        let change = JsonChange::merge(change);
        let undo = model.apply(&mut now, &change).unwrap().unwrap();
        let most = 2 * (first.size() + change.to_json().len());
        let len = undo.to_json().len();
        assert!(len <= most, "{len} bytes of undo, for {most}");
        model.apply(&mut now, &undo).unwrap();
        assert_eq!(now, first);
    }
    // An honest patch of many members below a path that is not short.
    let mut now = state(json!({"k".repeat(2_000): {}}));
    let members: serde_json::Map<_, _> = (0..10_000).map(|n| (member(n), json!(n))).collect();
    let undo = model.apply(&mut now, &JsonChange::merge(json!({"k".repeat(2_000): members}))).unwrap();
    assert!(undo.unwrap().to_json().len() < 3_000);
}

/// Each operation at the begin of an array moves all elements.
#[test]
fn the_elements_that_a_patch_moves_have_a_limit_together() {
    let model = Json::new();
    let from = state(Value::from(vec![1; 100_000]));
    let pairs = |path: &str, count: usize| {
        let both = [json!({"op": "add", "path": path, "value": 0}), json!({"op": "remove", "path": path})];
        patch(&both.into_iter().cycle().take(2 * count).collect::<Vec<_>>())
    };
    let mut now = from.clone();
    let few = model.apply(&mut now, &pairs("/0", 500)).unwrap().unwrap();
    model.apply(&mut now, &few).unwrap();
    assert_eq!(now, from);
    // At the end of an array, an operation moves nothing.
    model.apply(&mut now, &pairs("/100000", 10_000)).unwrap();
    assert_eq!(now, from);
    assert_eq!(refusal(model, from.clone(), &pairs("/0", 10_000)), RefusalKind::TooLarge);
    let moves = vec![json!({"op": "move", "from": "/0", "path": "/99999"}); 10_000];
    assert_eq!(refusal(model, from, &patch(&moves)), RefusalKind::TooLarge);
}

#[test]
fn refusals_repeat_little_of_a_change() {
    let long = "x".repeat(100_000);
    let mut now = state(json!({}));
    let refused = [
        JsonChange::parse_patch(json!([{"op": long, "path": ""}]).to_string().as_bytes()).unwrap_err(),
        Json::new()
            .apply(&mut now, &patch(&[json!({"op": "remove", "path": format!("/{long}")})]))
            .unwrap_err(),
    ];
    for refusal in refused {
        let text = refusal.to_string();
        assert!((40..300).contains(&text.len()), "{text}");
    }
}
