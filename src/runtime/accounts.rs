//! Users and groups of an image: `/etc/passwd`, `/etc/group`, and the `user[:group]` texts of images. Pure.
//!
//! The files are somebody else's: a line that makes no sense is passed over, as the C library does.

/// One line of a passwd file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PasswdEntry {
    /// Login name.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Home folder.
    pub home: String,
}

/// One line of a group file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupEntry {
    /// Name.
    pub name: String,
    /// Group id.
    pub gid: u32,
    /// Names of the users that are members beside those whose primary group it is.
    pub members: Vec<String>,
}

/// Reads a passwd file.
#[must_use]
pub fn parse_passwd(text: &[u8]) -> Vec<PasswdEntry> {
    lines(text)
        .filter_map(|line| {
            let mut fields = line.split(':');
            let (name, _password, uid, gid) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
            let home = fields.nth(1).unwrap_or_default();
            let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
            Some(PasswdEntry { name: name.to_owned(), uid, gid, home: home.to_owned() })
        })
        .collect()
}

/// Reads a group file.
#[must_use]
pub fn parse_group(text: &[u8]) -> Vec<GroupEntry> {
    lines(text)
        .filter_map(|line| {
            let mut fields = line.split(':');
            let (name, _password, gid) = (fields.next()?, fields.next()?, fields.next()?);
            let members = fields.next().unwrap_or_default().split(',').filter(|name| !name.is_empty());
            Some(GroupEntry {
                name: name.to_owned(),
                gid: gid.parse().ok()?,
                members: members.map(str::to_owned).collect(),
            })
        })
        .collect()
}

fn lines(text: &[u8]) -> impl Iterator<Item = String> {
    text.split(|byte| *byte == b'\n')
        .map(|line| String::from_utf8_lossy(line).trim().to_owned())
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Who a process runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Groups of which the image's group file makes the user a member, the primary one not among them; sorted.
    pub groups: Vec<u32>,
    /// Home folder; `/` when the image knows none.
    pub home: String,
}

/// A user or group text that leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownAccount {
    /// Neither a number nor in the image's passwd file.
    #[error("unable to find user {0}: no matching entries in passwd file")]
    User(String),
    /// Neither a number nor in the image's group file.
    #[error("unable to find group {0}: no matching entries in group file")]
    Group(String),
}

/// What an image says about its user: `""`, `user`, `user:group`, by name or number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImageUser<'a> {
    /// Before the colon; empty: user 0.
    pub user: &'a str,
    /// After the colon.
    pub group: Option<&'a str>,
}

impl<'a> ImageUser<'a> {
    /// Splits the text of an image's configuration.
    #[must_use]
    pub fn parse(text: &'a str) -> Self {
        match text.split_once(':') {
            Some((user, group)) => Self { user, group: Some(group).filter(|group| !group.is_empty()) },
            None => Self { user: text, group: None },
        }
    }

    /// The user as a number, when it is one. No user at all is user 0.
    #[must_use]
    pub fn uid(&self) -> Option<u32> {
        if self.user.is_empty() { Some(0) } else { number(self.user) }
    }
}

/// A number as user and group ids are written: up to 2^31 - 1, as in other runtimes.
fn number(text: &str) -> Option<u32> {
    text.parse::<u32>().ok().filter(|number| i32::try_from(*number).is_ok())
}

/// Looks a user up. A number need not be in the files: then its group is 0 and its home `/`.
///
/// # Errors
/// [`UnknownAccount`] for a name that is not there.
pub fn look_up(user: ImageUser<'_>, passwd: &[PasswdEntry], group: &[GroupEntry]) -> Result<Identity, UnknownAccount> {
    let id = user.uid();
    let entry = passwd.iter().find(|entry| id.map_or(entry.name == user.user, |uid| entry.uid == uid));
    let uid = match (entry, id) {
        (Some(entry), _) => entry.uid,
        (None, Some(uid)) => uid,
        (None, None) => return Err(UnknownAccount::User(user.user.to_owned())),
    };
    let gid = match user.group {
        None => entry.map_or(0, |entry| entry.gid),
        Some(text) => match number(text) {
            Some(gid) => gid,
            None => group
                .iter()
                .find(|entry| entry.name == text)
                .map(|entry| entry.gid)
                .ok_or_else(|| UnknownAccount::Group(text.to_owned()))?,
        },
    };
    let is_member = |group: &GroupEntry| entry.is_some_and(|entry| group.members.contains(&entry.name));
    let mut groups: Vec<u32> =
        group.iter().filter(|group| group.gid != gid && is_member(group)).map(|group| group.gid).collect();
    groups.sort_unstable();
    groups.dedup();
    let home = entry.map(|entry| entry.home.clone()).filter(|home| !home.is_empty());
    Ok(Identity { uid, gid, groups, home: home.unwrap_or_else(|| "/".to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &[u8] = b"root:x:0:0:root:/root:/bin/sh\n# comment\nbroken\nbad:x:one:1::/:\n\
        web:x:33:33:www:/var/www:/bin/false\nnohome:x:40:41\n\xff\xfe:x:50:50:::\n";
    const GROUP: &[u8] = b"root:x:0:\nadm:x:4:web,root\nweb:x:33:\nssl:x:101:web\nbroken:x\n";

    fn identity(text: &str) -> Result<Identity, UnknownAccount> {
        look_up(ImageUser::parse(text), &parse_passwd(PASSWD), &parse_group(GROUP))
    }

    #[test]
    fn users_by_name_and_number() {
        for (text, uid, gid, groups, home) in [
            ("", 0, 0, vec![4], "/root"),
            ("0", 0, 0, vec![4], "/root"),
            ("root", 0, 0, vec![4], "/root"),
            ("web", 33, 33, vec![4, 101], "/var/www"),
            ("33", 33, 33, vec![4, 101], "/var/www"),
            ("web:adm", 33, 4, vec![101], "/var/www"),
            ("web:7", 33, 7, vec![4, 101], "/var/www"),
            ("web:", 33, 33, vec![4, 101], "/var/www"),
            ("1234", 1234, 0, vec![], "/"),
            ("1234:5", 1234, 5, vec![], "/"),
            ("nohome", 40, 41, vec![], "/"),
        ] {
            assert_eq!(identity(text), Ok(Identity { uid, gid, groups, home: home.into() }), "{text:?}");
        }
    }

    #[test]
    fn unknown_names() {
        assert_eq!(identity("nobody"), Err(UnknownAccount::User("nobody".into())));
        assert_eq!(identity("web:staff"), Err(UnknownAccount::Group("staff".into())));
        assert_eq!(identity("4294967295"), Err(UnknownAccount::User("4294967295".into())));
        assert_eq!(identity("bad"), Err(UnknownAccount::User("bad".into())));
        assert!(look_up(ImageUser::parse("root"), &[], &[]).is_err());
        assert_eq!(look_up(ImageUser::parse(""), &[], &[]).map(|id| id.uid), Ok(0));
    }
}
