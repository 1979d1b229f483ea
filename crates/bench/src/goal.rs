//! Defines goals for pgfresh, and reports them alongside the measured values.

use std::borrow::Cow;

use report::{Column, Quantity, Table};

/// A goal for one measured quantity.
#[derive(Debug, Clone)]
pub(crate) struct Goal {
    pub(crate) what: Cow<'static, str>,
    pub(crate) limit: Limit,
    pub(crate) measured: Option<Quantity>,
}

/// A limit for a measured quantity.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Limit {
    AtMost(Quantity),
    AtLeast(Quantity),
}

pub(crate) fn table(goals: impl IntoIterator<Item = Goal>) -> Table {
    let columns =
        [Column::left("goal"), Column::right("limit"), Column::right("measured"), Column::left("met")];
    let mut table = Table::new("Goals, on a machine of its own", columns);
    for Goal { what, limit, measured } in goals {
        let (words, met) = match limit {
            Limit::AtMost(most) => {
                (format!("at most {most}"), measured.map(|measured| measured.value <= most.value))
            }
            Limit::AtLeast(least) => {
                (format!("at least {least}"), measured.map(|measured| measured.value >= least.value))
            }
        };
        let met = met.map_or("unknown", |met| if met { "yes" } else { "no" });
        table.add_row([what.into_owned().into(), words.into(), measured.into(), met.into()]);
    }
    table
}
