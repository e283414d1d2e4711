//! `armlet completions` and `armlet man`: what shells and man(1) need, made of the same description as `--help`.

use super::args::{Cli, Completions, Man};
use super::error::CliError;
use super::output::Out;
use clap::{Command, CommandFactory};
use std::io;
use std::path::Path;

/// Writes a shell's completions.
pub(super) fn completions(args: &Completions, out: &mut Out) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "armlet", &mut script);
    out.bytes(&script)
}

/// Writes one manual page to standard output, or all into a folder.
pub(super) fn man(args: &Man, out: &mut Out) -> Result<(), CliError> {
    let failed = |path: &Path, source| CliError::Page { path: path.to_owned(), source };
    let pages = pages().map_err(|source| failed(Path::new("armlet.1"), source))?;
    let Some(folder) = &args.dir else {
        let wanted = args.command.as_ref().map_or_else(|| "armlet".to_owned(), |command| format!("armlet-{command}"));
        let page = pages.iter().find(|(name, _)| *name == wanted);
        let (_, page) = page.ok_or_else(|| CliError::NoPage { name: wanted.clone() })?;
        return out.bytes(page);
    };
    std::fs::create_dir_all(folder).map_err(|source| failed(folder, source))?;
    for (name, page) in pages {
        let path = folder.join(format!("{name}.1"));
        std::fs::write(&path, page).map_err(|source| failed(&path, source))?;
        out.line(&path.display().to_string())?;
    }
    Ok(())
}

/// All pages by their names, the program's own first.
fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let mut pages = Vec::new();
    add(&root, "armlet", &mut pages)?;
    Ok(pages)
}

fn add(command: &Command, name: &str, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).title(name).render(&mut page)?;
    pages.push((name.to_owned(), page));
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        add(below, &format!("{name}-{}", below.get_name()), pages)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_that_names_its_options() {
        let pages = pages().unwrap();
        let page = |name: &str| {
            let found = pages.iter().find(|(page, _)| page == name);
            String::from_utf8(found.unwrap_or_else(|| panic!("{name}")).1.clone()).unwrap()
        };
        for command in Cli::command().get_subcommands() {
            page(&format!("armlet-{}", command.get_name()));
        }
        assert!(page("armlet-logs").contains("\\-\\-tail"));
        assert!(page("armlet").contains("armlet\\-ps") || page("armlet").contains("armlet-ps"));
        page("armlet-config-show");
    }
}
