//! Protection of the machine from SQL, and of passwords from other users.

mod replaced_files;
mod secrets;
