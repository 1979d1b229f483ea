//! Tests `migrate`: the locks, scans and rewrites of a migration's statements, and the suite's
//! statements that wait or break.

mod advice;
mod advice_cases;
mod blocking;
mod blocks;
mod breaking;
mod changed_rows;
mod derailing;
mod locks;
mod needs;
mod observing;
mod page;
mod page_check;
mod prediction;
mod privileges;
mod recording;
mod script;
mod sessions;
mod summary;
