//! The recipes of `examples/hooks`, by their own tests.

use std::path::Path;

use quintet_hooks::trial::run_tests;

#[test]
fn the_recipes_do_what_they_say() {
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
