//! The checks of `quintet check --config`: those of a start, without opening or writing anything.

use std::path::Path;
use std::time::Instant;

use anyhow::{Error, Result, anyhow};
use quintet_config::Config;
use quintet_edge::{Auth, Hooks, Quotas, Tls};
use quintet_ops::Tracing;
use quintet_ops::schedules::Schedules;
use quintet_ops::webhooks::Webhooks;

use crate::{cluster, scripts};

/// The errors with which a server would refuse to start, in the order of a start. `path` is the
/// configuration file.
pub(crate) fn check(config: &Config, path: Option<&Path>) -> Vec<Error> {
    let mut errors = Vec::new();
    let mut keep = |checked: Result<()>| errors.extend(checked.err());
    keep(scripts::check(config));
    keep(Auth::check(config, path));
    keep(Quotas::new(config, Instant::now()).map(drop));
    for error in Tls::faults(config) {
        keep(Err(error));
    }
    keep(cluster::check(config));
    keep(Tracing::check(config));
    keep(hooks(config));
    keep(Schedules::new(config).map(drop));
    keep(Webhooks::new(config).map(drop));
    errors
}

fn hooks(config: &Config) -> Result<()> {
    let hooks = Hooks::load(config.hooks_path().as_deref(), &config.hook_limits());
    hooks.map(drop).map_err(|error| anyhow!("hooks: {error}"))
}

#[cfg(test)]
mod tests {
    use quintet_config::{CommandLine, load};

    #[test]
    fn all_errors_of_a_start_are_found_and_nothing_is_written() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("quintet.toml");
        let check = |text: &str| {
            let data = dir.path().join("data");
            let text = format!("data = '{}'\n{text}", data.display());
            std::fs::write(&path, text).expect("written");
            let command_line = CommandLine {
                config: Some(path.clone()),
                ..CommandLine::default()
            };
            let errors = super::check(&load(&command_line).expect("read"), None);
            assert!(!data.exists());
            let errors = errors.iter().map(|error| format!("{error:#}"));
            errors.collect::<Vec<_>>().join("\n")
        };
        let listen = "[[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\n";
        assert_eq!(check(listen), "");
        assert_eq!(check(&format!("tls = 'self-signed'\n{listen}")), "");
        let files = "tls_cert = '/nowhere/cert.pem'\ntls_key = '/nowhere/key.pem'\n";
        let hooks = "hooks = '/nowhere/hooks.lua'\n";
        let grant = "[[grant]]\nuser = 'bob'\nqueues = ['*']\nrights = ['put']\n";
        let errors = check(&format!("{files}{listen}"));
        assert!(
            errors.contains("TLS of http") && errors.contains("/nowhere/cert.pem"),
            "{errors}"
        );
        let errors = check(&format!("{listen}{grant}"));
        assert!(errors.contains("not \"bob\""), "{errors}");
        let collector = "otlp_endpoint = 'http://127.0.0.1:4318'\n";
        assert_eq!(check(&format!("{collector}{listen}")), "");
        let errors = check(&format!("otlp_endpoint = '127.0.0.1:4318'\n{listen}"));
        assert!(errors.contains("otlp_endpoint"), "{errors}");
        for (setting, file) in [
            ("otlp_ca", "/nowhere/ca"),
            ("otlp_headers_file", "/nowhere/h"),
        ] {
            let errors = check(&format!("{collector}{setting} = '{file}'\n{listen}"));
            assert!(errors.contains(&format!("{setting} {file}")), "{errors}");
        }
        let errors = check(&format!("{hooks}{files}{listen}"));
        assert!(
            errors.contains("hooks: ") && errors.contains("TLS of http"),
            "{errors}"
        );
    }
}
