//! The configuration is read again while the server runs.

use quintet_client::{Entry, TellReload};
use quintet_config::load;
use quintet_host::locked;
use quintet_ops::schedules::forgotten;
use quintet_process::fit;
use quintet_types::{Operation, Principal};

use crate::server::Server;

/// Result of a reload.
pub(crate) struct Reloaded {
    pub(crate) log_level: String,
    /// Its effects that nobody asked for, a sentence each.
    pub(crate) notes: Vec<String>,
}

impl Server {
    /// Reads the configuration again, for the client `by` if one asks; what can
    /// change while serving does.
    ///
    /// # Errors
    /// Why not, in words; nothing changed.
    pub(crate) fn read_again(&self, by: Option<Principal>) -> Result<Reloaded, String> {
        let mut config =
            load(&self.operations.command_line).map_err(|error| format!("{error:#}"))?;
        // Listeners stay as they were opened.
        config
            .listen
            .clone_from(&locked(&self.operations.config).listen);
        let limits = config.limit_table().map_err(|wrong| wrong.join("; "))?;
        let jobs = config.schedules().map_err(|wrong| wrong.to_string())?;
        let certificates = self.edge.tls.check(&config);
        certificates.map_err(|error| format!("{error:#}"))?;
        self.security
            .auth
            .reload(&config, self.operations.command_line.config.as_deref(), by)?;
        self.security.quotas.reload(limits);
        self.security.enforce();
        for doubt in config.together().unwrap_or_default() {
            tracing::warn!("{doubt}");
        }
        let settings = config.engine_settings();
        self.core.configure(&settings);
        *locked(&self.edge.settings) = settings;
        let mut current = locked(&self.operations.config);
        for key in current.take_over(config) {
            tracing::warn!("{key} has changed: restart the server to apply the new value");
        }
        self.edge.guests.set_most(fit(&current).connections);
        self.edge.uploads.set_limit(current.upload_bytes_max);
        self.edge
            .connection_memory
            .set_limit(current.connection_memory_bytes());
        self.edge.limits.reload(&current);
        self.edge.tls.reload(&current);
        self.core.set_memory(current.memory);
        self.core.set_events_keep(current.events_keep);
        let log_level = current.log_level.clone();
        let most = current.schedules_max;
        drop(current);
        let unpaused = self.operations.schedules.configure(jobs, most);
        let config = &self.operations.config;
        self.security.hooks.reload_by(&self.core, config);
        let notes = unpaused.iter().map(|name| forgotten(name)).collect();
        Ok(Reloaded { log_level, notes })
    }

    /// Writes down what came of a reload, and notifies the requester.
    pub(crate) fn reloaded(&self, came: Result<Vec<String>, String>, notify: Option<TellReload>) {
        self.security.audit.write(&Entry {
            result: came.as_ref().map_or("failed", |_| "ok"),
            ..Entry::of(Operation::Reloaded)
        });
        match &came {
            Ok(_) => tracing::info!("configuration reloaded"),
            Err(why) => tracing::error!("configuration not reloaded: {why}"),
        }
        if let Some(notify) = notify {
            notify(came);
        }
    }
}
