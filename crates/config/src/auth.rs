//! `[[user]]` and `[[grant]]`: who there is and what they may do.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use chrono::DateTime;
use quintet_auth::{Grant, Holder, Mistake, Password, Right, Row, Secret, Token, TokenId, User};
use quintet_client::words::utc;
use quintet_types::Pattern;

use super::Config;
use super::schema::table;
use super::wrong::Lines;

/// Where systemd puts the files of `LoadCredential=`.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

table! {
    /// One `[[user]]` table, as the file says it.
    #[derive(Clone, Default)]
    pub struct UserTable, USER;
    "name" Text(name)
        "Name: 1 to 128 printable ASCII characters without spaces and colons.";
    "password" Text(password)
        "The password's hash, as quintet passwd prints it.";
    "password_file" Text(password_file)
        "File with that hash instead, mode 0600; for a plain name $CREDENTIALS_DIRECTORY is \
         searched first.";
    "secret_file" Text(secret_file)
        "File with a secret in plain text, mode 0600, for protocols that sign with it; it is a \
         password too.";
    "tokens" Texts(tokens)
        "Tokens, as quintet token prints them: \"SHA256 UNTIL\".";
    "groups" Texts(groups)
        "The user has the grants of these groups.";
    + lines: Lines;
}

table! {
    /// One `[[grant]]` table, as the file says it.
    #[derive(Clone, Default)]
    pub struct GrantTable, GRANT;
    "user" Text(user)
        "User, or \"anonymous\" for clients without a login.";
    "group" Text(group)
        "Or a group.";
    "queues" Texts(queues)
        "Queues or patterns, as [[queue]] has them.";
    "rights" Texts(rights)
        "put, take, settle, peek, admin; server for the whole server; metrics for /metrics alone.";
    + lines: Lines;
}

impl UserTable {
    /// With its files read; `row` is its place among all.
    pub fn user(&self, row: usize, wrong: &mut Vec<Mistake>) -> User {
        let row = Row::User(row);
        let mut fails = |key, why| wrong.push(Mistake { row, key, why });
        let stated = |text: &String| (!text.is_empty()).then(|| text.clone());
        let of_file = |path: String| -> Result<String, String> {
            let bytes = private(&path)?;
            Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
        };
        let of_file = stated(&self.password_file).map(of_file);
        let stated_hash = stated(&self.password).map(Ok);
        let hashes = [("password", stated_hash), ("password_file", of_file)];
        let mut password = None;
        for (key, hash) in hashes {
            let Some(hash) = hash else { continue };
            let read = |hash: String| Password::read(&hash).map_err(|error| error.to_string());
            match hash.and_then(read) {
                Ok(read) if password.is_none() => password = Some(read),
                Ok(_) => fails(key, "stands beside password: leave one out".to_owned()),
                Err(why) => fails(key, why),
            }
        }
        let secret = stated(&self.secret_file).and_then(|path| {
            let read = private(&path)
                .and_then(|bytes| Secret::read(&bytes).map_err(|error| error.to_string()));
            read.map_err(|why| fails("secret_file", why)).ok()
        });
        let tokens = self.tokens.iter().filter_map(|line| {
            let read = token(line);
            read.map_err(|why| fails("tokens", why)).ok()
        });
        User {
            tokens: tokens.collect(),
            name: self.name.clone(),
            password,
            secret,
            groups: self.groups.clone(),
        }
    }

    /// It holds something others could try passwords against.
    pub fn has_hashes(&self) -> bool {
        !self.password.is_empty() || !self.tokens.is_empty()
    }
}

impl GrantTable {
    /// `row` is its place among all.
    pub fn grant(&self, row: usize, wrong: &mut Vec<Mistake>) -> Grant {
        let row = Row::Grant(row);
        let mut fails = |key, why| wrong.push(Mistake { row, key, why });
        let to = match (self.user.as_str(), self.group.as_str()) {
            (user, "") => Holder::User(user.to_owned()),
            ("", group) => Holder::Group(group.to_owned()),
            (user, group) => {
                let why = "stands alone or user does: write two grants";
                fails(
                    "group",
                    format!("{why}; not {group:?} beside user {user:?}"),
                );
                Holder::User(user.to_owned())
            }
        };
        let mut right = |word: &String| {
            let right = Right::by_name(word);
            if right.is_none() {
                let words: Vec<&str> = Right::ALL.iter().map(|right| right.name()).collect();
                let words = words.join(", ");
                fails("rights", format!("takes {words}; not {word:?}"));
            }
            right
        };
        Grant {
            to,
            rights: self.rights.iter().filter_map(&mut right).collect(),
            queues: self
                .queues
                .iter()
                .map(|queue| Pattern::new(queue))
                .collect(),
        }
    }
}

impl Config {
    /// A mistake as it is shown, with its line.
    pub fn about(&self, mistake: &Mistake) -> String {
        let Mistake { row, key, why } = mistake;
        let (lines, table) = match *row {
            Row::User(row) => {
                let user = self.users.get(row);
                let name = user.map_or("", |user| &user.name);
                (user.map(|user| &user.lines), format!("[[user]] {name}"))
            }
            Row::Grant(row) => {
                let grant = self.grants.get(row);
                (grant.map(|grant| &grant.lines), "[[grant]]".to_owned())
            }
        };
        let place = lines.map(|lines| lines.place(key)).unwrap_or_default();
        format!("{place}in {}: {key} {why}", table.trim_end())
    }
}

/// Reads `SHA256 UNTIL`; without an end it counts for ever.
fn token(line: &str) -> Result<Token, String> {
    let (id, until) = line.split_once(' ').unwrap_or((line, ""));
    let id = TokenId::read(id).map_err(|error| error.to_string())?;
    let until_ms = match until.trim() {
        "" => u64::MAX,
        until => {
            let end = DateTime::parse_from_rfc3339(until);
            let end = end.map_err(|_| format!("end at a time such as {}", utc(0)))?;
            u64::try_from(end.timestamp_millis()).unwrap_or(0)
        }
    };
    Ok(Token { id, until_ms })
}

/// Where a secret's file is.
fn place(path: &str) -> PathBuf {
    if !path.contains('/')
        && let Some(credentials) = std::env::var_os(CREDENTIALS)
    {
        let inside = Path::new(&credentials).join(path);
        if inside.exists() {
            return inside;
        }
    }
    PathBuf::from(path)
}

/// Reads a file that nobody else may read.
///
/// # Errors
/// Why not, with what to type.
pub(crate) fn private(path: &str) -> Result<Vec<u8>, String> {
    let path = place(path);
    let shown = path.display();
    let about = fs::metadata(&path).map_err(|error| format!("{shown}: {error}"))?;
    let mode = about.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(format!(
            "{shown} can be read by others ({mode:04o}): chmod 600 {shown}"
        ));
    }
    let own = rustix::process::geteuid().as_raw();
    if about.uid() != own && about.uid() != 0 {
        return Err(format!("{shown} belongs to another account: chown it"));
    }
    fs::read(&path).map_err(|error| format!("{shown}: {error}"))
}

/// Says what to type if a configuration with hashes in it can be read by all.
pub fn open_to_all(path: &Path) -> Option<String> {
    let mode = fs::metadata(path).ok()?.permissions().mode() & 0o777;
    let shown = path.display();
    (mode & 0o007 != 0).then(|| {
        format!(
            "{shown} holds hashes of passwords or tokens and is open to all ({mode:04o}): \
             chmod o= {shown}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_others_can_read_is_refused_with_a_command() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("secret");
        let text = path.to_str().expect("text");
        assert!(private(text).is_err());
        fs::write(&path, "hush\n").expect("written");
        for (mode, fine) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
            let read = private(text);
            assert_eq!(read.is_ok(), fine, "{mode:o}");
            if let Err(why) = read {
                assert!(why.contains(&format!("chmod 600 {text}")), "{why}");
            }
        }
        assert!(open_to_all(&path).is_some());
    }

    #[test]
    fn tokens_have_an_end_or_none() {
        let id = "ab".repeat(32);
        assert_eq!(token(&id).expect("a token").until_ms, u64::MAX);
        let until = token(&format!("{id} 2027-01-01T00:00:00Z")).expect("a token");
        assert_eq!(utc(until.until_ms), "2027-01-01T00:00:00Z");
        for wrong in ["", "ab", &format!("{id} tomorrow"), &format!("{id}0")] {
            assert!(token(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn everything_wrong_is_gathered() {
        let user = UserTable {
            name: "ann".to_owned(),
            password: "hush".to_owned(),
            secret_file: "/nowhere/at/all".to_owned(),
            tokens: vec!["x".to_owned()],
            ..UserTable::default()
        };
        let grant = GrantTable {
            user: "ann".to_owned(),
            group: "g".to_owned(),
            rights: vec!["fly".to_owned()],
            ..GrantTable::default()
        };
        let mut wrong = Vec::new();
        user.user(0, &mut wrong);
        grant.grant(0, &mut wrong);
        assert_eq!(wrong.len(), 5, "{wrong:#?}");
        assert!(!format!("{wrong:?}").contains("hush"), "{wrong:#?}");
    }
}
