package pgfreshtest

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A Statement is one that clients of a database have run, and what all its runs together took.
type Statement struct {
	Text  string // on one line, with ? in place of values
	Count int    // how often it ran
	Time  time.Duration
	Rows  int // that it returned or changed
}

// Statements are those that ran within a function.
type Statements struct {
	// Count is how many ran, with BEGIN and COMMIT.
	Count int

	// Time is how long all took together.
	Time time.Duration

	// MostFrequent has each statement once, those that ran most often first.
	MostFrequent []Statement

	// Complete tells whether all statements are counted and listed: very many different ones are not listed, and those
	// before a reset within the function are not counted.
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

// Statements returns the statements that clients of the database run while block does. The database must be recorded, by
// [Record], by a [Budget], or by [budget] in pgfresh.toml. If it is not, tb fails at once.
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

// between returns what has run since the first of two measurements. A reset in between that wasReset does not tell of is seen
// if statements ran less often afterwards.
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
