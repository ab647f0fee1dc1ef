//! The example, run twice on one store.

#[path = "../../examples/editors.rs"]
#[expect(dead_code, reason = "the program's main")]
mod editors;

#[test]
fn two_editors_share_a_document() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("editors.brooklet");
    for _ in 0..2 {
        assert_eq!(editors::run(&path).unwrap(), "hello, world");
    }
}
