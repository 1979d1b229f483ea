package pgfreshtest

import (
	"fmt"
	"net/url"
	"testing"
	"time"
)

// None is a limit that allows nothing: Budget{NPlusOne: None} forbids each N+1.
const None = -1

// A Budget is an [Option]: the database's test may reach each limit, and fails with more. A limit of 0 is that of [budget]
// in pgfresh.toml, if there is one. What counts is everything from New until the test has ended, cleanups that were registered
// after New included. A Reset begins the count anew.
type Budget struct {
	// Statements, with BEGIN and COMMIT.
	Statements int

	// NPlusOne is how often one query may run with different values. Fewer than five runs are no N+1.
	NPlusOne int

	// Time in the database.
	Time time.Duration
}

func (b Budget) apply(w *wishes) {
	w.limits = limits{count(b.Statements), count(b.NPlusOne), span(b.Time)}
	w.Record = w.Record || w.limits != limits{}
}

// limits are a budget in the words of pgfresh's HTTP API; "" sets none.
type limits struct {
	statements, nPlusOne, time string
}

func count(limit int) string {
	if limit == 0 {
		return ""
	}
	return fmt.Sprint(max(limit, 0))
}

func span(limit time.Duration) string {
	if limit == 0 {
		return ""
	}
	return fmt.Sprintf("%dms", (max(limit, 0)+time.Millisecond-1)/time.Millisecond)
}

// query is the limits as a part of a URL.
func (l limits) query() string {
	values := url.Values{}
	for name, limit := range map[string]string{"statements": l.statements, "n_plus_one": l.nPlusOne, "time": l.time} {
		if limit != "" {
			values.Set(name, limit)
		}
	}
	return values.Encode()
}

// checkBudget fails the test that is beyond its budget, unless it has ended otherwise.
func (d *Database) checkBudget(tb testing.TB) {
	tb.Helper()
	if !d.Recorded || tb.Failed() || tb.Skipped() || panicking() {
		return
	}
	told, err := d.server.measure(d.Name, d.limits)
	if err != nil {
		tb.Errorf("pgfresh: %v", err)
	} else if told.Message != "" {
		tb.Errorf("budget exceeded: %s", told.Message)
	}
}
