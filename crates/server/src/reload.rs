//! The configuration is read again while the server runs.

use quintet_engine::Principal;
use quintet_host::locked;

use crate::config::load;
use crate::server::{Server, fit};

impl Server {
    /// Reads the configuration again, for the client `by` if one asks; what can
    /// change while serving does. Answers the log level.
    ///
    /// # Errors
    /// Why not, in words; nothing changed.
    pub(crate) fn reload(&self, by: Option<Principal>) -> Result<String, String> {
        let mut config = load(&self.given).map_err(|error| format!("{error:#}"))?;
        // Listeners stay as they were opened.
        config.listen.clone_from(&locked(&self.config).listen);
        let limits = config.limit_table().map_err(|wrong| wrong.join("; "))?;
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
        let level = current.log_level.clone();
        drop(current);
        self.reload_hooks();
        Ok(level)
    }
}
