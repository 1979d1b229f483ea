//! Rules for the sources and pages of this repository.

mod boundaries;
mod circles;
mod house;
mod test_index;
mod test_names;
mod troubleshooting;
