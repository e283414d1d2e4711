//! The file that the firmware of a Raspberry Pi passes to the kernel: one line of words. Pure.

use std::collections::BTreeSet;

/// Bytes of a command line on arm64 (`COMMAND_LINE_SIZE`), the closing NUL not counted.
const MOST: usize = 2047;

/// What becomes of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// All is in it as it should be.
    AsItIs,
    /// The new content.
    To(String),
}

/// Why the file is left alone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The firmware reads the first line only; what the others are for is the owner's to say.
    #[error("it has {0} lines, and the firmware reads only the first: put everything on one line")]
    SeveralLines(usize),
    /// Without a word in it the board would not boot; that is no file of a working board.
    #[error("it is empty: a working board's names at least its root")]
    Empty,
    /// Something that is not text.
    #[error("it has characters that are no text")]
    NoText,
    /// The kernel would cut it.
    #[error("with the new words it would have {0} bytes, and the kernel takes {MOST}")]
    TooLong(usize),
}

/// The file with `add` in it and without `remove`. Everything else stays as it is: the order, the spacing, whether
/// there is a line break at the end.
///
/// # Errors
/// [`EditError`] for a file that cannot be edited without guessing.
pub fn edit(text: &str, add: &[&str], remove: &[&str]) -> Result<Edit, EditError> {
    if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
        return Err(EditError::NoText);
    }
    let lines = text.lines().filter(|line| !line.trim().is_empty()).count();
    match lines {
        0 => return Err(EditError::Empty),
        1 => {}
        more => return Err(EditError::SeveralLines(more)),
    }
    let body = text.trim_end();
    let tail = text.get(body.len()..).unwrap_or_default();
    let there: BTreeSet<&str> = body.split_whitespace().collect();
    let missing: Vec<&str> = add.iter().copied().filter(|word| !there.contains(word)).collect();
    if missing.is_empty() && !remove.iter().any(|word| there.contains(word)) {
        return Ok(Edit::AsItIs);
    }
    let mut new = body.to_owned();
    for word in remove {
        new = without(&new, word);
    }
    for word in missing {
        new.push(' ');
        new.push_str(word);
    }
    if new.len() > MOST {
        return Err(EditError::TooLong(new.len()));
    }
    new.push_str(tail);
    Ok(Edit::To(new))
}

/// The line without each whole word that is `word`, and without the blank before it.
fn without(line: &str, word: &str) -> String {
    let mut left = String::with_capacity(line.len());
    let mut rest = line;
    while !rest.is_empty() {
        let blanks = rest.len() - rest.trim_start().len();
        let (gap, from) = rest.split_at(blanks);
        let end = from.find(char::is_whitespace).unwrap_or(from.len());
        let (this, after) = from.split_at(end);
        if this != word {
            left.push_str(gap);
            left.push_str(this);
        }
        rest = after;
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    const ON: &[&str] = &["cgroup_enable=memory", "cgroup_memory=1"];
    const OFF: &[&str] = &["cgroup_disable=memory"];

    #[test]
    fn words_are_added_once_and_all_else_stays() {
        for (before, after) in [
            ("root=/dev/sda2 rootwait", Some("root=/dev/sda2 rootwait cgroup_enable=memory cgroup_memory=1")),
            ("root=/dev/sda2\n", Some("root=/dev/sda2 cgroup_enable=memory cgroup_memory=1\n")),
            ("a  b \r\n", Some("a  b cgroup_enable=memory cgroup_memory=1 \r\n")),
            ("a\n\n", Some("a cgroup_enable=memory cgroup_memory=1\n\n")),
            ("cgroup_memory=1 a", Some("cgroup_memory=1 a cgroup_enable=memory")),
            ("a cgroup_disable=memory b", Some("a b cgroup_enable=memory cgroup_memory=1")),
            ("cgroup_disable=memory a", Some(" a cgroup_enable=memory cgroup_memory=1")),
            ("a cgroup_disable=memory", Some("a cgroup_enable=memory cgroup_memory=1")),
            ("a cgroup_enable=memory cgroup_memory=1\n", None),
            // Words that only look like it.
            ("xcgroup_enable=memory a", Some("xcgroup_enable=memory a cgroup_enable=memory cgroup_memory=1")),
            ("a cgroup_disable=memory,io", Some("a cgroup_disable=memory,io cgroup_enable=memory cgroup_memory=1")),
        ] {
            let want = after.map_or(Edit::AsItIs, |text| Edit::To(text.to_owned()));
            assert_eq!(edit(before, ON, OFF), Ok(want), "{before:?}");
        }
    }

    #[test]
    fn an_edited_file_needs_no_edit() {
        for before in ["a", "a\n", " a  cgroup_disable=memory  cgroup_disable=memory \n"] {
            let Ok(Edit::To(after)) = edit(before, ON, OFF) else { panic!("{before:?} is edited") };
            assert_eq!(edit(&after, ON, OFF), Ok(Edit::AsItIs), "{after:?}");
        }
    }

    #[test]
    fn what_cannot_be_edited_without_guessing_is_left_alone() {
        assert_eq!(edit("a\nb\n", ON, OFF), Err(EditError::SeveralLines(2)));
        assert_eq!(edit("", ON, OFF), Err(EditError::Empty));
        assert_eq!(edit(" \n\n", ON, OFF), Err(EditError::Empty));
        assert_eq!(edit("a\0b", ON, OFF), Err(EditError::NoText));
        assert!(matches!(edit(&"a".repeat(2040), ON, OFF), Err(EditError::TooLong(_))));
    }
}
