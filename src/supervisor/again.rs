//! The way through execve: by which arguments a program knows that it goes on with what another left, and the way back.

use super::StartError;
use super::driver::Supervisor;
use super::hand_over::{Back, Document, Number, text_of};
use crate::sys::{children, log, program};
use rustix::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

/// The number of the descriptor of the hand-over document.
const DOCUMENT: &str = "@document=";
/// Why the program that should have gone on could not.
const BECAUSE: &str = "@because=";

/// How this program was called, if to go on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Call {
    document: RawFd,
    because: Option<String>,
}

/// Reads the arguments; none: begin from the beginning.
pub(super) fn call(args: &[OsString]) -> Option<Call> {
    let value = |mark: &str| args.iter().find_map(|arg| Some(arg.to_string_lossy().strip_prefix(mark)?.to_owned()));
    Some(Call { document: value(DOCUMENT)?.parse().ok()?, because: value(BECAUSE) })
}

/// The arguments of the program that goes on: those of this one, and where the document is.
///
/// # Errors
/// An argument with a NUL, which no argument has.
pub(super) fn arguments(document: Number, because: Option<&str>) -> io::Result<Vec<CString>> {
    marked(std::env::args_os().collect(), document, because)
}

fn marked(args: Vec<OsString>, document: Number, because: Option<&str>) -> io::Result<Vec<CString>> {
    let own = |arg: &OsString| {
        let bytes = arg.as_bytes();
        !bytes.starts_with(DOCUMENT.as_bytes()) && !bytes.starts_with(BECAUSE.as_bytes())
    };
    let mut args: Vec<Vec<u8>> = args.into_iter().filter(own).map(OsString::into_vec).collect();
    args.push(format!("{DOCUMENT}{}", document.0).into_bytes());
    args.extend(because.map(|why| format!("{BECAUSE}{}", why.replace('\0', " ")).into_bytes()));
    Ok(args.into_iter().map(CString::new).collect::<Result<_, _>>()?)
}

/// Goes on with what another build handed over, or back to it.
///
/// # Errors
/// There is no way back: this is already it, or it cannot be gone.
pub(super) fn go_on(call: &Call) -> Result<Supervisor, StartError> {
    let document = children::inherited(call.document)
        .map_err(|source| StartError::System { operation: "take the hand-over document", source })?;
    let file = File::from(document);
    // Executed by a descriptor a program is named by its number.
    let _ = rustix::thread::set_name(c"armlet");
    let text = text_of(&file).map_err(StartError::Adopt)?;
    match Document::read(&text).and_then(|document| Supervisor::adopt(document, call.because.clone())) {
        Ok(supervisor) => Ok(supervisor),
        Err(why) if call.because.is_none() => {
            let because = log::chain(&why);
            tracing::error!(because, "what was handed over cannot be gone on with: back to the build before");
            let Err(source) = go_back(&text, file.into(), &because);
            tracing::error!(error = %source, "there is no way back");
            Err(why.into())
        }
        Err(why) => Err(why.into()),
    }
}

/// Executes the program that wrote the document.
fn go_back(text: &[u8], document: OwnedFd, because: &str) -> io::Result<std::convert::Infallible> {
    let back: Back = serde_json::from_slice(text)?;
    let args = arguments(Number::of(&document), Some(because))?;
    let kept: Vec<RawFd> = back.numbers.iter().map(|n| n.0).chain([document.as_raw_fd()]).collect();
    let exe = children::inherited(back.from.0)?;
    Err(program::execute(&exe, &args, &kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn os(args: &[&str]) -> Vec<OsString> {
        args.iter().map(OsString::from).collect()
    }

    #[test]
    fn the_arguments_say_what_to_go_on_with_and_do_not_pile_up() {
        assert_eq!(call(&os(&["--run-dir", "/r"])), None);
        assert_eq!(call(&os(&["@document=x"])), None);
        let mut args = os(&["armlet", "supervisor", "--run-dir", "/r"]);
        for (number, because) in [(7, None), (9, Some("it broke\0 = here")), (8, None)] {
            let next = marked(args.clone(), Number(number), because).unwrap();
            args = next.iter().map(|arg| OsString::from_vec(arg.as_bytes().to_vec())).collect();
            assert_eq!(args.len(), 5 + usize::from(because.is_some()));
            let because = because.map(|why| why.replace('\0', " "));
            assert_eq!(call(&args), Some(Call { document: number, because }));
        }
    }
}
