package pgfreshtest

import (
	"fmt"
	"net/url"
	"testing"
	"time"
)

// None is a limit of zero: Budget{NPlusOne: None} forbids each N+1.
const None = -1

// A Budget is an [Option] with limits for the test. The test fails if it exceeds a limit. If a field is 0, the limit
// in [budget] of pgfresh.toml applies, if there is one. Counting starts with New and ends with the test, including
// the cleanups that the test registers after New. A Reset restarts the count from 0.
type Budget struct {
	// Statements limits the number of statements, including BEGIN and COMMIT.
	Statements int

	// NPlusOne limits how often the same query runs with different values. pgfresh ignores fewer than five runs.
	NPlusOne int

	// Time limits the total time in the database.
	Time time.Duration
}

func (b Budget) apply(request *leaseRequest) {
	request.limits = limits{count(b.Statements), count(b.NPlusOne), milliseconds(b.Time)}
	request.Record = request.Record || request.limits != limits{}
}

// limits is a budget as the HTTP API expects it. "" means no limit.
type limits struct {
	statements, nPlusOne, time string
}

func count(limit int) string {
	if limit == 0 {
		return ""
	}
	return fmt.Sprint(max(limit, 0))
}

func milliseconds(limit time.Duration) string {
	if limit == 0 {
		return ""
	}
	return fmt.Sprintf("%dms", (max(limit, 0)+time.Millisecond-1)/time.Millisecond)
}

// query returns the limits as a URL query.
func (l limits) query() string {
	values := url.Values{}
	for name, limit := range map[string]string{"statements": l.statements, "n_plus_one": l.nPlusOne, "time": l.time} {
		if limit != "" {
			values.Set(name, limit)
		}
	}
	return values.Encode()
}

// checkBudget fails a test that exceeded its budget. It does nothing after a failure, a skip or a panic.
func (d *Database) checkBudget(tb testing.TB) {
	tb.Helper()
	if !d.Recorded || tb.Failed() || tb.Skipped() || panicking() {
		return
	}
	result, err := d.server.measure(d.Name, d.limits)
	if err != nil {
		tb.Errorf("pgfresh: %v", err)
	} else if result.Message != "" {
		tb.Errorf("budget exceeded: %s", result.Message)
	}
}
