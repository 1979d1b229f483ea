package pgfreshtest

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A Statement is a statement that clients ran, with the totals of its runs.
type Statement struct {
	Text  string        // in one line, with ? in place of values
	Count int           // number of runs
	Time  time.Duration // total time in the database
	Rows  int           // number of rows that the runs returned or changed
}

// Statements has the statements that ran while a function ran.
type Statements struct {
	// Count is the number of statements, including BEGIN and COMMIT.
	Count int

	// Time is the total time in the database.
	Time time.Duration

	// MostFrequent has the distinct statements, sorted by count in descending order.
	MostFrequent []Statement

	// Complete reports whether the counts and the list are complete. If the function resets the database, the
	// statements before the reset are missing. pgfresh also lists only a limited number of distinct statements.
	Complete bool
}

// String lists the statements: "3 statements: 2x SELECT ?, 1x COMMIT".
func (s Statements) String() string {
	lines := make([]string, len(s.MostFrequent))
	for i, statement := range s.MostFrequent {
		lines[i] = fmt.Sprintf("%dx %s", statement.Count, statement.Text)
	}
	return fmt.Sprintf("%d statements: %s", s.Count, strings.Join(lines, ", "))
}

// Statements runs block and returns the statements that all clients ran meanwhile. pgfresh must record the
// statements, which [Record], a [Budget], or [budget] in pgfresh.toml enables. Otherwise tb fails immediately.
func (d *Database) Statements(tb testing.TB, block func()) Statements {
	tb.Helper()
	before, err := d.server.measure(d.Name, limits{})
	if err != nil {
		tb.Fatalf("pgfresh: %v", err)
	}
	resets := atomic.LoadInt32(&d.resets)
	block()
	after, err := d.server.measure(d.Name, limits{})
	if err != nil {
		tb.Fatalf("pgfresh: %v", err)
	}
	return between(before, after, atomic.LoadInt32(&d.resets) != resets)
}

// between returns the statements that ran between two measurements. wasReset reports whether this process reset the
// database between the measurements. Lower counts in the second measurement indicate a reset by another client.
func between(before, after measured, wasReset bool) Statements {
	earlier := map[string]ranStatement{}
	for _, line := range before.Statements {
		earlier[line.Statement] = line
	}
	lost := len(earlier)
	for _, line := range after.Statements {
		if was, found := earlier[line.Statement]; found && was.Count <= line.Count {
			lost--
		}
	}
	if wasReset || lost > 0 {
		before, after.Complete = measured{}, false
		clear(earlier)
	}
	statements := Statements{
		Count:    after.Count - before.Count,
		Time:     seconds(after.Seconds - before.Seconds),
		Complete: after.Complete,
	}
	for _, line := range after.Statements {
		was := earlier[line.Statement]
		if count := line.Count - was.Count; count > 0 {
			ran := Statement{line.Statement, count, seconds(line.Seconds - was.Seconds), line.Rows - was.Rows}
			statements.MostFrequent = append(statements.MostFrequent, ran)
		}
	}
	slices.SortStableFunc(statements.MostFrequent, func(a, b Statement) int { return b.Count - a.Count })
	return statements
}

func seconds(number float64) time.Duration {
	return time.Duration(number * float64(time.Second))
}
