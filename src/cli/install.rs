//! `armlet install` and `armlet uninstall`.

use super::args::{Install, Uninstall};
use super::error::CliError;
use super::output::Out;
use crate::install::{
    Facts, Machine, Step, StepError, install as to_install, leave, perform, prepare, uninstall as to_uninstall,
};
use std::path::Path;

/// Runs `armlet install`.
pub(super) fn install(args: &Install, socket: &Path, out: &mut Out) -> Result<(), CliError> {
    let facts = Machine::facts(Some(args.binary.clone()));
    if args.prepare {
        return all(&prepare(&facts), socket, out);
    }
    by_hand(&facts)?;
    all(&to_install(&facts, !args.no_start), socket, out)?;
    let binary = args.binary.display();
    let next = match (facts.systemd, args.no_start) {
        (false, _) => format!(
            "There is no systemd here: have `{binary} supervisor` and `{binary} agent` started at boot, as root, and \
             started again when they end."
        ),
        (true, true) => "It starts with the next boot, or now with: systemctl start armlet".to_owned(),
        (true, false) => "Put manifests into /etc/armlet/manifests, and see `armlet ps`.".to_owned(),
    };
    out.line(&format!("Installed. {next}"))
}

/// Runs `armlet uninstall`.
pub(super) fn uninstall(args: &Uninstall, socket: &Path, out: &mut Out) -> Result<(), CliError> {
    let facts = Machine::facts(Some(args.binary.clone()));
    if args.leftovers {
        return all(&leave(), socket, out);
    }
    by_hand(&facts)?;
    all(&to_uninstall(&facts, args.purge), socket, out)?;
    out.line(if args.purge {
        "Uninstalled; nothing is left."
    } else {
        "Uninstalled. /etc/armlet and /var/lib/armlet stay: --purge removes them too."
    })
}

/// Refuses to work on an installation that is a package's.
fn by_hand(facts: &Facts) -> Result<(), CliError> {
    if facts.packaged { Err(CliError::Install { source: StepError::Packaged }) } else { Ok(()) }
}

fn all(steps: &[Step], socket: &Path, out: &mut Out) -> Result<(), CliError> {
    for step in steps {
        let done = perform(step, socket).map_err(|source| CliError::Install { source })?;
        out.line(&done)?;
    }
    Ok(())
}
