//! Tests that the machine is protected from SQL, and passwords from other users.

mod replaced_files;
mod secrets;
