//! What scripts say and what becomes of their messages: the sheet's cases.

mod common;

use common::{World, eventually};
use serde_json::json;

#[test]
fn case_1_done() {
    let world = World::new();
    world.queue("test", "echo done ok >&3");
    let (id, status) = world.run("test", json!({"param1": "x"}));
    assert_eq!(status, "done - ok");
    assert_eq!(world.state("test", &id), "done");
}
