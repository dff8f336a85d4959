//! The limit on open files, and how many connections fit it.

use quintet_config::{Config, Places};

/// Raises the number of files this process may open as far as it may.
pub fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!("cannot raise the limit on open files: {error}");
    }
}

/// How many connections there are places for, by the limit on open files.
/// Warns where that is fewer than were requested.
pub fn fit(config: &Config) -> Places {
    use rustix::process::{Resource, getrlimit};
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let places = config.places(limit);
    if places.wanted > limit {
        tracing::warn!(
            "connections_max = {} and the max_connections of http and sqs need {} open files, and \
             the system allows {limit}: the server accepts {} connections. Raise the limit \
             (LimitNOFILE, ulimit -n)",
            config.connections_max,
            places.wanted,
            places.connections,
        );
    }
    places
}
