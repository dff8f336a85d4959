//! The recipes of `examples/hooks`, by their own tests.

use std::path::Path;

use std::sync::Arc;

use quintet_hooks::{Event, Limits, Program};
use quintet_trial::run_tests;

#[test]
fn the_recipes_work_as_documented() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/hooks");
    let mut failed = Vec::new();
    let mut recipes = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let hooks = entry.unwrap().path();
        if hooks.extension().is_none_or(|extension| extension != "lua") {
            continue;
        }
        recipes += 1;
        let name = hooks.file_name().unwrap().to_owned();
        let results = run_tests(&hooks, &folder.join("tests").join(&name))
            .unwrap_or_else(|error| panic!("{}: {error}", hooks.display()));
        assert!(!results.is_empty(), "{} has no tests", hooks.display());
        for result in results {
            if let Some(error) = result.failed {
                failed.push(format!("{}: {error}", result.name));
            }
        }
    }
    assert_eq!(recipes, 10);
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

fn doc(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name);
    std::fs::read_to_string(path).unwrap()
}

/// Every hook that the reference shows loads.
#[test]
fn the_examples_of_the_reference_load() {
    let text = doc("hooks.md");
    let mut shown = 0;
    for block in text.split("```lua\n").skip(1) {
        let code = block.split("```").next().unwrap();
        if code.starts_with("test(") {
            continue;
        }
        let loaded = Program::from_text("doc.lua", code, &Limits::default(), Arc::default());
        let program = loaded.unwrap_or_else(|error| panic!("{error} in\n{code}"));
        assert!(!program.events().is_empty(), "{code}");
        shown += 1;
    }
    assert!(shown > 4);
}

/// The annotations name what there is, and every event.
#[test]
fn the_annotations_are_true() {
    let text = doc("quintet.lua");
    let mut code = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("function quintet.") {
            let name = rest.split('(').next().unwrap();
            code.push_str(&format!(
                "assert(type(quintet.{name}) == 'function', '{name}')\n"
            ));
        } else if let Some(rest) = line.strip_prefix("function ") {
            let (class, rest) = rest.split_once(':').unwrap();
            let name = rest.split('(').next().unwrap();
            let class = class.to_lowercase();
            code.push_str(&format!(
                "assert(type(quintet.{class}('x').{name}) == 'function', '{name}')\n"
            ));
        }
    }
    assert!(code.lines().count() > 25);
    if let Err(error) = Program::from_text("names.lua", &code, &Limits::default(), Arc::default()) {
        panic!("{error} in\n{code}");
    }
    for event in Event::ALL {
        if !matches!(event, Event::Timer | Event::Added) {
            assert!(text.contains(&format!("\n{} = nil", event.name())));
        }
    }
}
