//! Finds OFFSETs that make each page of a result more expensive than the page before.

use std::collections::BTreeSet;

use super::Problem;
use crate::conditions::outer_words;
use crate::numbers::{cost, number};
use crate::workload::CachedPlanner;
use crate::{BoundStatement, BoundValue, Limits, PlanFindingKind, PlanMode};

/// A growing OFFSET is a finding if a later page costs at least this multiple of the first page's cost.
const GROWTH: f64 = 10.0;

/// The value of OFFSET in a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Offset {
    /// A number in the text, between these byte positions.
    Literal { start: usize, end: usize },
    /// The parameter with this index, from 0.
    Parameter(usize),
}

/// Returns a problem if `statements` have an OFFSET that can grow. The statements differ only in values.
pub(crate) fn growing_offset(
    cached: &mut CachedPlanner<'_>,
    statements: &[&BoundStatement],
    limits: &Limits,
) -> Option<Problem> {
    let first = statements.first()?;
    let offset = find(&first.text)?;
    let is_constant = match offset {
        Offset::Literal { .. } => {
            let texts: BTreeSet<&str> =
                statements.iter().filter_map(|statement| literal(&statement.text)).collect();
            texts.len() < 2
        }
        Offset::Parameter(index) => index >= first.parameters.len(),
    };
    if is_constant {
        return None;
    }
    let mut ask = |value: u64| cached.ask(&with_offset(first, offset, value), PlanMode::Custom);
    let (near, far) = (ask(0)?, ask(limits.offset)?);
    let (before, after) = (far.root.total_cost, near.root.total_cost);
    if before < limits.cost || before < GROWTH * after.max(1.0) {
        return None;
    }
    Some(Problem {
        kind: PlanFindingKind::GrowingOffset,
        node: far.root.kind.clone(),
        table: None,
        rows: far.root.rows,
        bytes: 0.0,
        seconds: None,
        evidence: format!(
            "The first page costs {}, and the page at OFFSET {} costs {}, because the server reads and discards all rows \
             before it.",
            cost(after),
            number(report::as_f64(limits.offset)),
            cost(before)
        ),
        change: "Continue after the last row's key instead: WHERE (sort columns) > (values of the last row) ORDER BY … \
                 LIMIT n, with an index in that order."
            .to_owned(),
        costs: Some((before, after)),
    })
}

/// Returns the OFFSET of the outermost query.
fn find(text: &str) -> Option<Offset> {
    let words = outer_words(text);
    let at = words.iter().rposition(|(word, _)| word.eq_ignore_ascii_case("offset"))?;
    let (value, start) = *words.get(at + 1)?;
    if let Some(number) = value.strip_prefix('$') {
        let number: usize = number.parse().ok()?;
        return number.checked_sub(1).map(Offset::Parameter);
    }
    value.parse::<u64>().ok().map(|_| Offset::Literal { start, end: start + value.len() })
}

fn literal(text: &str) -> Option<&str> {
    match find(text)? {
        Offset::Literal { start, end } => Some(&text[start..end]),
        Offset::Parameter(_) => None,
    }
}

fn with_offset(statement: &BoundStatement, offset: Offset, value: u64) -> BoundStatement {
    let mut statement = statement.clone();
    match offset {
        Offset::Literal { start, end } => statement.text.replace_range(start..end, &value.to_string()),
        Offset::Parameter(index) => {
            if let Some(parameter) = statement.parameters.get_mut(index) {
                *parameter = BoundValue {
                    format: 0,
                    value: Some(value.to_string().into_bytes()),
                    ..parameter.clone()
                };
            }
        }
    }
    statement
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_of_the_outermost_query_is_found() {
        let parameter = find("SELECT * FROM (SELECT 1 OFFSET 3) a LIMIT $1 OFFSET $2");
        assert_eq!(parameter, Some(Offset::Parameter(1)));
        assert_eq!(literal("SELECT 1 OFFSET 20 ROWS"), Some("20"));
        assert_eq!(find("SELECT (SELECT 1 OFFSET 3)"), None);
        assert_eq!(find("SELECT 1 OFFSET $1 + 3 "), Some(Offset::Parameter(0)));
        assert_eq!(find("SELECT 'OFFSET 3'"), None);
    }

    #[test]
    fn offset_is_replaced_where_it_stands() {
        let literal =
            BoundStatement { text: "SELECT 1 OFFSET 20 FOR UPDATE".to_owned(), ..BoundStatement::default() };
        let replaced = with_offset(&literal, find(&literal.text).unwrap(), 100_000);
        assert_eq!(replaced.text, "SELECT 1 OFFSET 100000 FOR UPDATE");
        let binary = BoundValue { type_oid: 20, format: 1, value: Some(vec![0; 8]) };
        let bound = BoundStatement {
            text: "SELECT 1 OFFSET $1".to_owned(),
            parameters: vec![binary],
            ..BoundStatement::default()
        };
        let replaced = with_offset(&bound, find(&bound.text).unwrap(), 7);
        assert_eq!(
            replaced.parameters[0],
            BoundValue { type_oid: 20, format: 0, value: Some(b"7".to_vec()) }
        );
    }
}
