//! Operators' work: admin states, which are files they make and remove by hand or by command, and
//! queues that come and go.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use quintet_types::{Command, Name, Outcome, locked};
use serde_json::Value;

use crate::admin::{Admin, AdminOp};
use crate::config::{QueueConfig, check_queue_name};
use crate::fault::Fault;
use crate::messages::done;
use crate::paths::{self, read_small};
use crate::service::Rq;

impl Rq {
    fn admin_file(&self, name: &str, what: &str) -> PathBuf {
        self.paths.config().join(format!("{name}.{what}"))
    }

    /// Reads the admin state from the files.
    pub(crate) fn admin_files(&self, name: &str) -> Admin {
        if self.admin_file(name, "down").exists() {
            Admin::Down
        } else if self.admin_file(name, "pause").exists() {
            Admin::Paused
        } else {
            Admin::Up
        }
    }

    /// Reads the admin state from the files, and applies it everywhere.
    pub(crate) fn read_admin(&self, name: &str) -> Admin {
        let admin = self.admin_files(name);
        let _deciding = locked(&self.deciding);
        if let Some(queue) = self.scripted(name)
            && queue.note_admin(admin)
        {
            self.set_down(name, admin == Admin::Down);
        }
        admin
    }

    /// # Errors
    /// [`Fault::Down`].
    pub(crate) fn must_be_up(&self, name: &str) -> Result<(), Fault> {
        match self.read_admin(name) {
            Admin::Down => Err(Fault::Down),
            Admin::Up | Admin::Paused => Ok(()),
        }
    }

    /// Changes a queue's admin state.
    ///
    /// # Errors
    /// [`Fault::QueueNotFound`]; [`Fault::WrongState`] for a pause of a queue without a script, in
    /// which nothing would be paused; or the file cannot be made or removed.
    pub fn admin(&self, name: &str, op: AdminOp) -> Result<(), Fault> {
        self.must_have(name)?;
        let (what, there) = match op {
            AdminOp::Up => ("down", false),
            AdminOp::Down => ("down", true),
            AdminOp::Pause => ("pause", true),
            AdminOp::Resume => ("pause", false),
        };
        if op == AdminOp::Pause && self.scripted(name).is_none() {
            return Err(Fault::WrongState("the queue has no script".to_owned()));
        }
        let file = self.admin_file(name, what);
        if there {
            paths::replace(&file, b"")?;
        } else {
            paths::remove(&file)?;
        }
        // Also for queues without a script, which nobody looks after.
        let deciding = locked(&self.deciding);
        self.must_have(name)?;
        self.set_down(name, self.admin_files(name) == Admin::Down);
        drop(deciding);
        self.read_admin(name);
        self.kick(name);
        Ok(())
    }

    /// Makes a queue with a script, kept in a folder of its own.
    ///
    /// # Errors
    /// [`Fault::Denied`] unless the settings allow it, [`Fault::BadName`], or
    /// there is one with a script already.
    pub fn create_queue(self: &Arc<Self>, config: QueueConfig) -> Result<(), Fault> {
        self.may_change_queues()?;
        check_queue_name(&config.name)?;
        // As it will be read after a restart.
        let config = QueueConfig::from_json(&config.to_json(), None)?;
        if self.scripted(&config.name).is_some() {
            return Err(Fault::Denied("queue already created".to_owned()));
        }
        self.keep_config(&config)?;
        self.read_folders();
        Ok(())
    }

    /// Makes a queue whose settings are a file elsewhere, which is linked to: a
    /// full path, or one from the root folder.
    ///
    /// # Errors
    /// As [`Rq::create_queue`]; or the file cannot be read.
    pub fn create_queue_link(self: &Arc<Self>, path: &Path) -> Result<(), Fault> {
        self.may_change_queues()?;
        if path.as_os_str().is_empty() {
            return Err(Fault::BadName("json_path is empty".to_owned()));
        }
        let path = &self.paths.absolute(path);
        let config = read_config(path, None)?;
        if self.scripted(&config.name).is_some() {
            return Err(Fault::Denied("queue already created".to_owned()));
        }
        let own = self.paths.queue_config(&config.name);
        std::fs::create_dir_all(self.paths.queue(&config.name))?;
        std::os::unix::fs::symlink(path, &own)?;
        paths::sync_dir(&self.paths.queue(&config.name))?;
        paths::sync_dir(&self.paths.queues())?;
        self.read_folders();
        Ok(())
    }

    /// Deletes a queue and all in it, and counts that. Its folder goes; what runs finishes, and
    /// its message vanishes then.
    ///
    /// # Errors
    /// [`Fault::Denied`] unless the settings allow it, or if the queue stands
    /// in the server's settings; [`Fault::QueueNotFound`].
    pub fn delete_queue(&self, name: &str) -> Result<u64, Fault> {
        self.may_change_queues()?;
        self.must_have(name)?;
        if self.is_from_settings(name) {
            let why = "the server's settings define the queue".to_owned();
            return Err(Fault::Denied(why));
        }
        // The supervisor may be reading the folders.
        let mut folders = locked(&self.folders);
        folders.remove(name);
        self.forget_queue(name);
        // First what would make it again after a crash.
        paths::remove(&self.paths.queue_config(name))?;
        drop(folders);
        let _deciding = locked(&self.deciding);
        for what in ["down", "pause"] {
            paths::remove(&self.admin_file(name, what))?;
        }
        // Folders of messages go with the next cleanup: some may run.
        let dropped = self.ask(Command::Drop(Name::from(name)));
        if let Outcome::Count(count) = dropped {
            return Ok(count);
        }
        done(dropped).map(|()| 0)
    }

    /// Reads a queue's settings again. Scripts that run go on.
    ///
    /// # Errors
    /// [`Fault::QueueNotFound`]; or its file cannot be read.
    pub fn restart(self: &Arc<Self>, name: &str) -> Result<(), Fault> {
        let queue = self.scripted(name).ok_or(Fault::QueueNotFound)?;
        let path = self.paths.queue_config(name);
        if !self.is_from_settings(name) && path.exists() {
            queue.configure(read_config(&path, Some(name))?);
        }
        queue.kick();
        Ok(())
    }

    /// The definition of the form for a queue's messages: its `form.json`, or nothing.
    pub fn queue_form(&self, name: &str) -> Value {
        if check_queue_name(name).is_err() {
            return Value::Null;
        }
        let bytes = read_small(&self.paths.queue(name).join("form.json"));
        bytes
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default()
    }

    pub(crate) fn keep_config(&self, config: &QueueConfig) -> Result<(), Fault> {
        std::fs::create_dir_all(self.paths.queue(&config.name))?;
        let text = format!("{:#}\n", config.to_json());
        paths::replace(&self.paths.queue_config(&config.name), text.as_bytes())?;
        paths::sync_dir(&self.paths.queues())?;
        Ok(())
    }

    fn may_change_queues(&self) -> Result<(), Fault> {
        if self.options.allow_new_queue {
            Ok(())
        } else {
            Err(Fault::Denied("new queues are not allowed".to_owned()))
        }
    }

    /// Looks at once at all that is otherwise looked at now and then: settings
    /// in folders, also if their time of change does not tell, then links and
    /// timers.
    pub fn reload(self: &Arc<Self>) {
        locked(&self.folders).clear();
        self.read_folders();
        self.supervisor.rescan.store(true, Ordering::SeqCst);
        self.wake_supervisor();
    }

    /// Starts the queues that have a folder with settings, and tells those
    /// whose settings were changed there.
    pub(crate) fn read_folders(self: &Arc<Self>) {
        let mut folders = locked(&self.folders);
        for name in paths::names_in(&self.paths.queues()).unwrap_or_default() {
            let path = self.paths.queue_config(&name);
            if check_queue_name(&name).is_err() || self.is_from_settings(&name) {
                continue;
            }
            let Ok(changed) = std::fs::metadata(&path).and_then(|about| about.modified()) else {
                continue;
            };
            if folders.insert(name.clone(), changed) == Some(changed) {
                continue;
            }
            match read_config(&path, Some(&name)) {
                Ok(config) => self.add_queue(config),
                Err(fault) => tracing::warn!(queue = name, %fault, "settings not understood"),
            }
        }
    }

    /// The definition of the page for new messages: `form.json` beside the queue's settings.
    pub fn form(&self, name: &str) -> Option<Value> {
        let beside_script = self
            .scripted(name)?
            .config()
            .script_path(&self.options.root)
            .and_then(|script| Some(script.parent()?.join("form.json")));
        [
            Some(self.paths.queue(name).join("form.json")),
            beside_script,
        ]
        .into_iter()
        .flatten()
        .find_map(|path| serde_json::from_slice(&read_small(&path).ok()?).ok())
    }
}

/// Reads a `config.json`, of 1 MiB at most.
pub(crate) fn read_config(path: &Path, name: Option<&str>) -> Result<QueueConfig, Fault> {
    let named = |why: &dyn std::fmt::Display| Fault::Failed(format!("{}: {why}", path.display()));
    let bytes = read_small(path).map_err(|fault| named(&fault))?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|error| named(&error))?;
    QueueConfig::from_json(&value, name)
}
