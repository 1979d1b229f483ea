//! Statistics of measurements, and reports about them.
//!
//! Benchmarks and examinations share this crate, so that they all treat noise and present results the same way. A
//! [`Sample`] holds measured values, and an [`Interval`] and [`Warning`]s describe how reliable these values are. A
//! [`Table`] or a [`Report`] formats them for a terminal or as Markdown, HTML, CSV or JSON. A [`Layer`] describes a
//! part of a system, and a [`Finding`] gives a conclusion and a remedy. [`Rounds`] runs [`Contender`]s in turn and
//! reports to a [`Progress`].
//!
//! This crate only returns values and strings. It never writes to a file or a terminal and doesn't depend
//! on PostgreSQL.
//!
//! Machine-readable formats contain each number with all its digits, in the base unit (see [`Unit`]). Human-readable
//! formats contain three significant digits, in a unit that suits the number's size.
//!
//! ```
//! use report::{Interval, Report, Sample, Table, Unit, Warning};
//!
//! # fn main() -> Result<(), report::SampleError> {
//! let (mut before, mut after) = (Sample::new("default", Unit::Seconds), Sample::new("fsync off", Unit::Seconds));
//! for round in [0.0, 1.0, 2.0, 3.0, 4.0, 5.0] {
//!     before.push(0.0120 + round * 1e-5)?;
//!     after.push(0.0004)?;
//! }
//! let gain = Interval::of_median(&before.ratio_to(&after)?);
//! let mut table = Table::numbers("Commit", "settings", ["median", "gain"]);
//! table.add_row([after.name().into(), after.median().into(), gain.map(|gain| gain.point).into()]);
//! let mut report = Report::new("Settings compared");
//! report.add_environment("server", "17.2");
//! report.add_table(table);
//! report.add_notes(Warning::of(&after));
//! assert!(report.to_string().contains("fsync off  400 µs  30.1 ×"));
//! # Ok(())
//! # }
//! ```

mod binomial;
pub mod chart;
mod columns;
mod distribution;
mod document;
mod earlier;
mod finding;
mod html;
mod interval;
mod junit;
mod layer;
pub mod page;
mod plot;
mod progress;
mod quantity;
mod runner;
mod sample;
mod svg;
mod table;
mod text;
mod tile;
mod warning;

pub use distribution::Distribution;
pub use document::Report;
pub use earlier::Earlier;
pub use finding::{Basis, Factor, Finding, Gain};
pub use interval::Interval;
pub use junit::{MeasuredTest, MeasuredTests};
pub use layer::Layer;
pub use plot::{Plot, TimeSeries};
pub use progress::Progress;
pub use quantity::{Quantity, Unit, counted, grouped};
pub use runner::{Contender, PhaseTimes, Rounds, Timed, ToReport, cycles, mean_cycle};
pub use sample::{Sample, SampleError, as_f64};
pub use table::{Cell, Column, Table};
pub use text::{cut, hang, html as escape_html, markdown as escape_markdown, width as display_width};
pub use tile::Tile;
pub use warning::Warning;
