//! `armlet check`: the only command that needs no agent. It looks at this machine itself.

use super::args::{Check, Format};
use super::error::CliError;
use super::output::Out;
use super::table::{Cell, Table, Tone};
use crate::check::{self, Board, Finding, Fixed, Level, Places};
use serde::Serialize;

#[derive(Debug, Serialize)]
struct Report<'a> {
    ready: bool,
    findings: &'a [Finding],
    board: &'a Board,
}

/// Runs the command. The exit code is 0 when pods can run here, else 1.
pub(super) fn run(args: &Check, out: &mut Out) -> Result<u8, CliError> {
    let places = Places { data: args.root_dir.clone(), run: args.run_dir.clone(), logs: args.logs_dir.clone() };
    let board = check::look(&places);
    if args.fix {
        return fix(&board, out);
    }
    let findings = check::findings(&board);
    let ready = check::ready(&findings);
    match args.output {
        Some(Format::Json) => out.json(&Report { ready, findings: &findings, board: &board })?,
        Some(Format::Yaml) => out.yaml(&Report { ready, findings: &findings, board: &board })?,
        None => {
            out.table(&table(&findings))?;
            for finding in findings.iter().filter(|finding| finding.level > Level::Good) {
                out.bytes(advice(finding, out.color()).as_bytes())?;
            }
            out.line(&format!("\n{}", verdict(&findings)))?;
        }
    }
    Ok(u8::from(!ready))
}

const fn word(level: Level) -> (&'static str, Tone) {
    match level {
        Level::Good => ("ok", Tone::Good),
        Level::Note => ("note", Tone::Plain),
        Level::Degraded => ("degraded", Tone::Warn),
        Level::Missing => ("missing", Tone::Bad),
    }
}

fn table(findings: &[Finding]) -> Table {
    let mut table = Table::new(["CHECK", "STATE", "FOUND"]);
    for finding in findings {
        let (state, tone) = word(finding.level);
        table.row([finding.topic.as_str().into(), Cell::toned(state, tone), finding.found.as_str().into()]);
    }
    table
}

fn advice(finding: &Finding, color: bool) -> String {
    let (_, tone) = word(finding.level);
    let mut text = format!("\n{}: {}\n", tone.paint(&finding.topic, color), finding.found);
    for (what, said) in [("effect", &finding.effect), ("remedy", &finding.remedy)] {
        if !said.is_empty() {
            text.push_str(&format!("  {what}  {said}\n"));
        }
    }
    text
}

fn verdict(findings: &[Finding]) -> String {
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    match (count(Level::Missing), count(Level::Degraded)) {
        (0, 0) => "This machine is ready to be a node.".to_owned(),
        (0, 1) => "This machine is ready to be a node, with one feature missing or weaker.".to_owned(),
        (0, some) => format!("This machine is ready to be a node, with {some} features missing or weaker."),
        _ => "Pods cannot run on this machine yet.".to_owned(),
    }
}

fn fix(board: &Board, out: &mut Out) -> Result<u8, CliError> {
    let words = check::words(board);
    if words == check::Words::default() {
        out.line("Nothing to change: the kernel has what its command line can give.")?;
        return Ok(0);
    }
    let Some(file) = &board.boot_file else { return Err(CliError::NoBootFile { words: words.add.join(" ") }) };
    match check::fix(file, &words.add, &words.remove).map_err(|source| CliError::Fix { source })? {
        Fixed::AsItWas => out.line(&format!(
            "{} has the words already ({}): reboot for them to take effect. Where that has been done, the kernel does \
             not know them.",
            file.path.display(),
            words.add.join(" ")
        ))?,
        Fixed::Written { text, backup } => out.line(&format!(
            "{} is now:\n  {}\nWhat was in it before is in {}. Reboot for it to take effect.",
            file.path.display(),
            text.trim_end(),
            backup.display()
        ))?,
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_with_effect_and_remedy() {
        let board = Board { cgroup2: true, ..Board::default() };
        let findings = check::findings(&board);
        let memory = findings.iter().find(|finding| finding.topic == "memory controller").unwrap();
        let text = advice(memory, false);
        assert!(text.starts_with("\nmemory controller: off\n  effect  "), "{text}");
        assert!(text.contains("\n  remedy  add cgroup_enable=memory"), "{text}");
        assert_eq!(verdict(&findings), "Pods cannot run on this machine yet.");
        assert!(table(&findings).render(false).lines().any(|line| line.starts_with("memory controller ")));
        let few: Vec<_> = findings.into_iter().filter(|finding| finding.topic == "memory controller").collect();
        assert_eq!(verdict(&few), "This machine is ready to be a node, with one feature missing or weaker.");
        assert_eq!(verdict(&[]), "This machine is ready to be a node.");
    }
}
