//! Opens an address in the user's browser, searching for a browser in the same way as `xdg-open`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Command, Stdio};

/// Variable that lists browsers in order of preference, in the form `PROGRAM:PROGRAM…`. Each program can have
/// arguments, where `%s` stands for the address.
const VARIABLE: &str = "BROWSER";
/// Variables that indicate that programs can open windows: under X, under Wayland, or on Windows with WSL.
const DISPLAYS: [&str; 3] = ["DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"];
/// Programs that open an address in the desktop's default browser.
const OPENERS: [&str; 2] = ["xdg-open", "wslview"];

/// Opens `address` and waits for the opening program to exit. Returns true if one of the programs succeeded.
pub(crate) fn open(address: &str) -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(browsers) = set(VARIABLE) {
        // A terminal browser needs standard output.
        return browsers.as_bytes().split(|byte| *byte == b':').any(|words| {
            let Some((program, arguments)) = split(OsStr::from_bytes(words), address) else { return false };
            succeeds(Command::new(program).args(arguments))
        });
    }
    DISPLAYS.into_iter().any(|name| set(name).is_some())
        && OPENERS.into_iter().any(|opener| {
            succeeds(Command::new(opener).arg(address).stdout(Stdio::null()).stderr(Stdio::null()))
        })
}

fn succeeds(command: &mut Command) -> bool {
    sys::restore_open_file_limit(command);
    sys::restore_mask(command);
    // Hide the control URL from the browser, which doesn't need the secret in it.
    command.env_remove(crate::control::VARIABLE);
    command.status().is_ok_and(|status| status.success())
}

/// Splits a browser's command line at its spaces, without a shell, unless the whole command line is an existing file's
/// path.
fn split(words: &OsStr, address: &str) -> Option<(OsString, Vec<OsString>)> {
    if Path::new(words).is_file() {
        return Some((words.to_owned(), vec![address.into()]));
    }
    let mut all: Vec<_> = words
        .as_bytes()
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect();
    let mut has_place = false;
    for word in all.iter_mut().skip(1).filter(|word| *word == "%s") {
        *word = address.into();
        has_place = true;
    }
    if !has_place {
        all.push(address.into());
    }
    let program = all.remove(0);
    (program != address).then_some((program, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browser_command_keeps_arguments_and_inserts_address() {
        let words = |text: &str| {
            split(OsStr::new(text), "http://x/").map(|(program, arguments)| {
                let all = [program].into_iter().chain(arguments);
                all.map(|word| word.into_string().unwrap()).collect::<Vec<_>>().join("|")
            })
        };
        for (text, expected) in [
            ("firefox", "firefox|http://x/"),
            (" firefox  -new-tab %s --kiosk", "firefox|-new-tab|http://x/|--kiosk"),
            ("w3m '$(rm)' ;", "w3m|'$(rm)'|;|http://x/"),
            ("%s", "%s|http://x/"),
        ] {
            assert_eq!(words(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["", " \t\n"] {
            assert_eq!(words(text), None, "{text:?}");
        }
    }
}
