//! The configuration is read again while the server runs.

use quintet_config::{Listen, load};
use quintet_door::TellReload;
use quintet_host::locked;
use quintet_types::Principal;

use crate::cron::forgotten;
use crate::open_files::fit;
use crate::server::Server;

/// What a reload came to.
pub(crate) struct Reloaded {
    pub(crate) log_level: String,
    /// What it did that nobody asked for, a sentence each.
    pub(crate) notes: Vec<String>,
}

impl Server {
    /// Reads the configuration again, for the client `by` if one asks; what can
    /// change while serving does.
    ///
    /// # Errors
    /// Why not, in words; nothing changed.
    pub(crate) fn reload(&self, by: Option<Principal>) -> Result<Reloaded, String> {
        let mut config = load(&self.given).map_err(|error| format!("{error:#}"))?;
        // Listeners stay as they were opened, and who gets to the control channel too.
        let current = locked(&self.config);
        config.listen.clone_from(&current.listen);
        let changed = |listen: &&Listen| {
            listen.served.is_control() && config.is_guarded(listen) != current.is_guarded(listen)
        };
        if let Some(listen) = config.listen.iter().find(changed) {
            let address = &listen.address;
            return Err(format!(
                "whether the control channel at {address} asks for certificates (tls_client_ca) \
                 cannot change while it is open: restart"
            ));
        }
        drop(current);
        let limits = config.limit_table().map_err(|wrong| wrong.join("; "))?;
        let jobs = config.cron_jobs().map_err(|wrong| wrong.to_string())?;
        self.trust
            .reload(&config, self.given.config.as_deref(), by)?;
        self.quotas.reload(limits);
        self.trust.enforce(&self.core, &self.quotas);
        let settings = config.engine_settings();
        self.core.configure(&settings);
        *locked(&self.settings) = settings;
        let mut current = locked(&self.config);
        for key in current.take_over(config) {
            tracing::warn!("{key} has changed: the new value counts after a restart");
        }
        self.guests.set_most(fit(&current).connections);
        self.uploads.set_limit(current.upload_bytes_max);
        self.connection_memory
            .set_limit(current.connection_memory_bytes());
        self.limits.reload(&current);
        self.tls.reload(&current);
        self.core.set_memory(current.memory);
        let log_level = current.log_level.clone();
        drop(current);
        let unpaused = self.crons.configure(jobs);
        self.reload_hooks();
        let notes = unpaused.iter().map(|name| forgotten(name)).collect();
        Ok(Reloaded { log_level, notes })
    }

    /// Writes down what came of a reload, and tells whoever is to be told.
    pub(crate) fn reloaded(&self, came: Result<Vec<String>, String>, tell: Option<TellReload>) {
        match &came {
            Ok(_) => {
                self.audit.note("", None, "reloaded", "", "ok");
                tracing::info!("configuration reloaded");
            }
            Err(why) => {
                self.audit.note("", None, "reloaded", "", "failed");
                tracing::error!("configuration not reloaded: {why}");
            }
        }
        if let Some(tell) = tell {
            tell(came);
        }
    }
}
