//! Users and grants, compiled: who somebody is, and what that one may do.

use std::fmt;
use std::hash::{Hash, Hasher as _};
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use quintet_types::{Name, Pattern, Principal, Verb};

use crate::credential::{Password, Token, TokenId};
use crate::rights::{Right, Rights, needs};
use crate::users::{ANONYMOUS, Grant, Holder, User};

/// Stands between a fan-out queue and the name of its child.
const CHILD: u8 = b'+';
/// Fits nothing; takes as long as a password of the usual cost.
const NOBODYS: &str = "$argon2id$v=19$m=19456,t=2,p=1$bm9ib2R5IG5vYm9keSE$\
                       AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
/// Bytes of a user's or group's name at most.
const NAME_MAX: usize = 128;
/// For errors.
const A_NAME: &str = "1 to 128 printable ASCII characters without spaces and colons";

/// A user or a grant, by its place among those that are configured, from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Row {
    User(usize),
    Grant(usize),
}

/// A value that cannot be as it is configured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mistake {
    pub row: Row,
    /// The setting in that row.
    pub key: &'static str,
    /// The rest of a sentence that begins with the key.
    pub why: String,
}

/// All mistakes in users and grants.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?}")]
pub struct TableError(pub Vec<Mistake>);

quintet_types::defaults! {
    /// Gives users their numbers. One that was there before keeps its number; one
    /// that comes back has another.
    #[derive(Clone, Debug)]
    pub struct Register {
        numbers: HashMap<String, Principal> = HashMap::new(),
        next: Principal = Principal::FIRST,
    }
}

/// Grants of one principal.
#[derive(Clone, Default, Debug)]
struct Granted {
    /// Of every queue, and what concerns all.
    everywhere: Rights,
    exact: HashMap<Name, Rights>,
    globs: Vec<(Pattern, Rights)>,
}

/// Principals and their rights. Does not change.
pub struct Table {
    users: HashMap<String, (Principal, User)>,
    tokens: HashMap<TokenId, (Token, String)>,
    granted: HashMap<Principal, Granted>,
    names: HashMap<Principal, Arc<str>>,
}

/// Not for logs: it holds hashes.
impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({} users)", self.users.len())
    }
}

/// Judgement of a claimed identity.
#[derive(Debug)]
pub enum Claim {
    /// It is so, by the token or secret with this number (see [`Table::counts`]).
    Is(Principal, u64),
    /// It is so if the password fits this; `None`: whether it fits or not,
    /// nobody gets in, and only the time is to be the same.
    If(Password, Option<Principal>),
    /// No user has this name.
    Unknown(Password),
}

impl Register {
    /// A table of these. `named_elsewhere`: somebody else, a hook, may know
    /// users too, so a grant may name one that is not here.
    ///
    /// # Errors
    /// All that is wrong; the numbers stay as they were.
    pub fn table(
        &mut self,
        users: &[User],
        grants: &[Grant],
        named_elsewhere: bool,
    ) -> Result<Table, TableError> {
        let wrong = complaints(users, grants, named_elsewhere);
        if !wrong.is_empty() {
            return Err(TableError(wrong));
        }
        let granted = grants.iter().filter_map(|grant| match &grant.to {
            Holder::User(name) if name != ANONYMOUS => Some(name),
            Holder::User(_) | Holder::Group(_) => None,
        });
        let names: HashSet<&String> = users.iter().map(|user| &user.name).chain(granted).collect();
        self.numbers.retain(|name, _| names.contains(name));
        // In the order of the names, so that the same tables give the same numbers.
        let mut new: Vec<&String> = names
            .into_iter()
            .filter(|name| !self.numbers.contains_key(*name))
            .collect();
        new.sort_unstable();
        for name in new {
            self.numbers.insert(name.clone(), self.next);
            self.next.0 =
                self.next.0.checked_add(1).expect(
                    "four thousand million users do not come and go while one process lives",
                );
        }
        Ok(self.compile(users, grants))
    }

    fn compile(&self, users: &[User], grants: &[Grant]) -> Table {
        let mut table = Table {
            users: HashMap::new(),
            tokens: HashMap::new(),
            granted: HashMap::new(),
            names: self
                .numbers
                .iter()
                .map(|(name, number)| (*number, name.as_str().into()))
                .collect(),
        };
        for user in users {
            let number = self.numbers[&user.name];
            table
                .users
                .insert(user.name.clone(), (number, user.clone()));
            for token in &user.tokens {
                let known = (*token, user.name.clone());
                table.tokens.insert(token.id, known);
            }
        }
        for grant in grants {
            let holders: Vec<Principal> = match &grant.to {
                Holder::User(name) if name == ANONYMOUS => vec![Principal::ANONYMOUS],
                Holder::User(name) => self.numbers.get(name).copied().into_iter().collect(),
                Holder::Group(group) => {
                    let members = users.iter().filter(|user| user.groups.contains(group));
                    members.map(|user| self.numbers[&user.name]).collect()
                }
            };
            for holder in holders {
                table.granted.entry(holder).or_default().add(grant);
            }
        }
        table
    }
}

impl Granted {
    fn add(&mut self, grant: &Grant) {
        let of_the_server = grant.rights.common(Rights::of_the_server());
        self.everywhere = self.everywhere.and(of_the_server);
        let rights = grant.rights.on_queues();
        for pattern in &grant.queues {
            match pattern {
                Pattern::Exact(name) => {
                    let known = self.exact.entry(name.clone()).or_default();
                    *known = known.and(rights);
                }
                Pattern::Glob(glob) if glob == b"*" => {
                    self.everywhere = self.everywhere.and(rights);
                }
                Pattern::Glob(_) => self.globs.push((pattern.clone(), rights)),
            }
        }
    }

    fn on(&self, name: &[u8]) -> Rights {
        let exact = self.exact.get(name).copied().unwrap_or_default();
        let globs = self.globs.iter().filter(|(glob, _)| reaches(glob, name));
        globs.fold(self.everywhere.and(exact), |all, (_, rights)| {
            all.and(*rights)
        })
    }
}

/// Whether a pattern is about a queue. Of a child the name behind the `+` is its maker's to choose,
/// so the `*` that a pattern begins with does not reach across it: `*.log` is not about `a+b.log`.
fn reaches(pattern: &Pattern, name: &[u8]) -> bool {
    let (Pattern::Glob(glob), Some(plus)) = (pattern, name.iter().position(|&byte| byte == b'+'))
    else {
        return pattern.matches(name);
    };
    let rest = glob.iter().position(|&byte| byte != b'*');
    match rest {
        Some(stars @ 1..) => {
            let rest = Pattern::Glob(glob[stars..].to_vec());
            (0..=plus).any(|at| rest.matches(&name[at..]))
        }
        Some(0) | None => pattern.matches(name),
    }
}

impl Table {
    /// True if rights are looked at at all: without users and grants everybody
    /// may do everything.
    pub fn is_used(&self) -> bool {
        !self.users.is_empty() || !self.granted.is_empty()
    }

    /// True if who has not logged in may do something.
    pub fn lets_anonymous(&self) -> bool {
        !self.is_used() || self.granted.contains_key(&Principal::ANONYMOUS)
    }

    /// The number of a user, or of somebody a grant names.
    pub fn principal(&self, name: &str) -> Option<Principal> {
        let known = self.names.iter().find(|(_, known)| &***known == name);
        known.map(|(number, _)| *number)
    }

    /// True if the table has a user of this name.
    pub fn has_user(&self, name: &str) -> bool {
        self.users.contains_key(name)
    }

    /// The name of a principal, if there still is one.
    pub fn name_of(&self, principal: Principal) -> Option<Arc<str>> {
        self.names.get(&principal).cloned()
    }

    /// True if a login of `principal` still counts at `now_ms`. `proof` is the number of the
    /// password, secret or token that it came with; 0: none, so that the user must only exist.
    pub fn counts(&self, principal: Principal, proof: u64, now_ms: u64) -> bool {
        if matches!(principal, Principal::SERVER | Principal::ANONYMOUS) {
            return true;
        }
        let Some(name) = self.names.get(&principal) else {
            return false;
        };
        let Some((_, user)) = self.users.get(&**name) else {
            return proof == 0;
        };
        let tokens = user.tokens.iter().filter(|token| token.until_ms > now_ms);
        let password = user.password.as_ref().map(proof_of_password);
        let secret = user.secret.as_ref().map(proof_of);
        let tokens = tokens.map(|token| proof_of(&token.id));
        proof == 0
            || password
                .into_iter()
                .chain(secret)
                .chain(tokens)
                .any(|known| known == proof)
    }

    /// How many tokens count at `now_ms`.
    pub fn live_tokens(&self, now_ms: u64) -> usize {
        let tokens = self.tokens.values();
        tokens.filter(|(token, _)| token.until_ms > now_ms).count()
    }

    /// Rights of `principal` on the messages of `queue`. A fan-out child `a+b` has the rights of
    /// its parent `a`, and those of its own name.
    pub fn rights(&self, principal: Principal, queue: &[u8]) -> Rights {
        if principal == Principal::SERVER || !self.is_used() {
            return Right::ALL.into_iter().collect();
        }
        let Some(granted) = self.granted.get(&principal) else {
            return Rights::NONE;
        };
        let own = granted.on(queue);
        match queue.iter().position(|&byte| byte == CHILD) {
            Some(plus) => own.and(granted.on(&queue[..plus])),
            None => own,
        }
    }

    /// Rights of `principal` on every queue, and on the server.
    pub fn everywhere(&self, principal: Principal) -> Rights {
        if principal == Principal::SERVER || !self.is_used() {
            return Right::ALL.into_iter().collect();
        }
        let granted = self.granted.get(&principal);
        granted.map_or(Rights::NONE, |granted| granted.everywhere)
    }

    /// True if `principal` may do this to the messages of `queue`.
    pub fn may(&self, principal: Principal, verb: Verb, queue: &[u8]) -> bool {
        needs(verb).met_by(self.rights(principal, queue))
    }

    /// Judges a claim to be `name`, with a password, token or secret, at `now_ms` of the wall
    /// clock.
    pub fn claim(&self, name: &[u8], supplied: &[u8], now_ms: u64) -> Claim {
        let nobodys = || Password::read(NOBODYS).expect("a hash");
        let name = std::str::from_utf8(name).unwrap_or_default();
        let Some((principal, user)) = self.users.get(name) else {
            return Claim::Unknown(nobodys());
        };
        let by_token = TokenId::of(supplied).and_then(|id| {
            // All are compared, so that the time does not tell which it was.
            let fits = user.tokens.iter().filter(|token| token.id.same(&id));
            let fits = fits.filter(|token| token.until_ms > now_ms);
            fits.fold(None, |_, token| Some(proof_of(&token.id)))
        });
        let secret = user.secret.as_ref().filter(|secret| secret.fits(supplied));
        if let Some(proof) = by_token.or_else(|| secret.map(proof_of)) {
            return Claim::Is(*principal, proof);
        }
        match &user.password {
            Some(password) => Claim::If(password.clone(), Some(*principal)),
            None => Claim::If(nobodys(), None),
        }
    }

    /// The user of this token and the token's number for [`Table::counts`]; `None`: it does not
    /// count at `now_ms`.
    pub fn bearer(&self, token: &[u8], now_ms: u64) -> Option<(Principal, u64)> {
        let id = TokenId::of(token)?;
        let (token, name) = self.tokens.get(&id)?;
        let (principal, _) = self.users.get(name)?;
        (token.until_ms > now_ms).then(|| (*principal, proof_of(&id)))
    }
}

/// The number of a login by password, as [`Table::counts`] takes it.
pub fn proof_of_password(password: &Password) -> u64 {
    proof_of(password.as_str())
}

fn proof_of(credential: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    credential.hash(&mut hasher);
    hasher.finish().max(1)
}

/// True if it can be a user's or group's name.
fn is_name(name: &str) -> bool {
    (1..=NAME_MAX).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b':')
}

fn complaints(users: &[User], grants: &[Grant], named_elsewhere: bool) -> Vec<Mistake> {
    let mut wrong = Vec::new();
    let mut names = HashSet::new();
    let mut tokens = HashSet::new();
    for (row, user) in users.iter().enumerate() {
        let row = Row::User(row);
        let mut is_wrong = |key, why| wrong.push(Mistake { row, key, why });
        let name = &user.name;
        if name == ANONYMOUS {
            let why = "takes another name: this one stands for those who have not logged in";
            is_wrong("name", format!("{why}; not {name:?}"));
        } else if !is_name(name) {
            is_wrong("name", format!("takes {A_NAME}; not {name:?}"));
        } else if !names.insert(name) {
            is_wrong("name", format!("{name:?} is there twice"));
        }
        if user.tokens.iter().any(|token| !tokens.insert(token.id)) {
            is_wrong("tokens", "takes each token once".to_owned());
        }
        for group in user.groups.iter().filter(|group| !is_name(group)) {
            is_wrong("groups", format!("takes {A_NAME}, each; not {group:?}"));
        }
    }
    let groups: HashSet<&String> = users.iter().flat_map(|user| &user.groups).collect();
    for (row, grant) in grants.iter().enumerate() {
        let row = Row::Grant(row);
        let mut is_wrong = |key, why| wrong.push(Mistake { row, key, why });
        match &grant.to {
            Holder::User(name) if names.contains(name) || name == ANONYMOUS => {}
            Holder::User(name) if named_elsewhere && is_name(name) => {}
            Holder::User(name) => {
                let takes = "takes the name of a [[user]] or \"anonymous\"";
                is_wrong("user", format!("{takes}; not {name:?}"));
            }
            Holder::Group(group) if groups.contains(group) => {}
            Holder::Group(group) => {
                let takes = "takes a group that a [[user]] is in";
                is_wrong("group", format!("{takes}; not {group:?}"));
            }
        }
        if grant.rights.is_empty() {
            is_wrong("rights", "takes one at least".to_owned());
        }
        if grant.queues.is_empty() && !grant.rights.on_queues().is_empty() {
            is_wrong("queues", "takes one queue or pattern at least".to_owned());
        }
    }
    wrong
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
