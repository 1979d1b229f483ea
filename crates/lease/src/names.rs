//! Names that databases can be leased by.

use crate::LeaseError;
use crate::template::PREFIX;

/// The databases that initdb makes. They cannot be leased.
pub(crate) const ALWAYS: [&str; 3] = ["postgres", "template0", "template1"];
/// The longest name that a server does not cut, in bytes. Source: NAMEDATALEN.
const LONGEST_NAME: usize = 63;

/// A name as the server reads it: no longer than it keeps.
pub(crate) fn cut(name: &str) -> &str {
    &name[..name.floor_char_boundary(LONGEST_NAME)]
}

/// The name, if it has no zero byte, at which a server would end it. All else can be in a name, control characters too.
pub(crate) fn whole(name: &str) -> Result<&str, LeaseError> {
    if name.contains('\0') {
        return Err(LeaseError::Name { name: name.to_owned(), why: "it has a zero byte" });
    }
    Ok(name)
}

/// Makes sure that a name can be a lease's.
pub(crate) fn check_name(name: &str) -> Result<(), LeaseError> {
    let why = match whole(name)? {
        "" => "it is empty",
        name if name.starts_with(PREFIX) => "pgfresh's own databases are called so",
        name if ALWAYS.contains(&name) => "it is always there",
        _ => return Ok(()),
    };
    Err(LeaseError::Name { name: name.to_owned(), why })
}
