package pgfreshtest

import (
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A Moment is when a fault happens.
type Moment string

const (
	AtCommit        Moment = "commit"
	BeforeStatement Moment = "before statement"
	DuringStatement Moment = "during statement"
	AfterStatement  Moment = "after statement"
	BeforeCommit    Moment = "before commit"
	AfterCommit     Moment = "after commit"
	AtConnect       Moment = "connect"
)

// A Loss is how a connection is lost.
type Loss string

const (
	Lost   Loss = "reset"  // the connection is closed with a TCP reset
	Silent Loss = "silent" // the connection stays open, and nothing arrives any more
)

// A Fault is an error, a lost connection or a delay. It has exactly one of Error, Connection, Delay and Bandwidth.
type Fault struct {
	// Error is the SQLSTATE of an error, such as "40001", or "failover".
	Error string

	// Connection is how the connection is lost.
	Connection Loss

	// Delay is the time by which a message arrives later.
	Delay time.Duration

	// Bandwidth is the number of bytes per second from the moment on, with its unit: "10kB".
	Bandwidth string

	// Moment of the fault. Default: BeforeStatement, and AtConnect for a failover.
	At Moment

	// Statement is the text or the beginning of the statements that count. "…" in it stands for any text. Default: all.
	Statement string

	// Nth is the number of the first statement, commit or connection that the fault hits. Default: 1.
	Nth int

	// Times is the number of statements, commits or connections that the fault hits. Default: 1.
	Times int

	// Duration is how long a failover refuses new connections. Default: one connection for each of Times.
	Duration time.Duration

	// ReadOnly is how long transactions are read-only after a failover. Default: not at all.
	ReadOnly time.Duration
}

// A FaultStatus is a fault, with the statements that it hit.
type FaultStatus struct {
	// Text is the fault in words: "40001 at commit".
	Text string `json:"fault"`

	// Times is the number of times that the fault is to fire.
	Times int

	// Fired is the number of times that the fault has fired.
	Fired int

	// Candidates is the number of statements, commits or connections that the fault could have hit.
	Candidates int

	// Statements are those that the fault hit, at most 100.
	Statements []string
}

// Fault requests a fault, which ends with the lease or its reset. All open sessions obey it when Fault returns. If the fault
// never fires, the test fails at its end, or at the Reset. An error fails tb at once.
//
//	db.Fault(t, pgfreshtest.Fault{Error: "40001", At: pgfreshtest.AtCommit})
//	db.Fault(t, pgfreshtest.Fault{Connection: pgfreshtest.Lost, At: pgfreshtest.AfterCommit})
func (d *Database) Fault(tb testing.TB, fault Fault) {
	tb.Helper()
	if err := d.server.fault(d.Name, fault.request()); err != nil {
		tb.Fatalf("pgfresh: %v", err)
	}
	atomic.StoreInt32(&d.faulty, 1)
}

// Faults returns the faults since New or the last Reset, in the order of their requests. An error fails tb at once.
func (d *Database) Faults(tb testing.TB) []FaultStatus {
	tb.Helper()
	list, err := d.server.faults(d.Name)
	if err != nil {
		tb.Fatalf("pgfresh: %v", err)
	}
	return list.Faults
}

// checkFaults fails a test with a fault that never fired. It does nothing after a failure, a skip or a panic, or if the client has
// requested no fault. A second call does nothing.
func (d *Database) checkFaults(tb testing.TB) {
	tb.Helper()
	if tb.Failed() || tb.Skipped() || panicking() || atomic.SwapInt32(&d.faulty, 0) == 0 {
		return
	}
	list, err := d.server.faults(d.Name)
	if err != nil {
		tb.Errorf("pgfresh: %v", err)
	} else if len(list.Unfired) > 0 {
		tb.Errorf("pgfresh: %s", list.message())
	}
}

// faultRequest is the body of a request for a fault.
type faultRequest struct {
	Error      string `json:"error,omitempty"`
	Connection Loss   `json:"connection,omitempty"`
	Delay      string `json:"delay,omitempty"`
	Bandwidth  string `json:"bandwidth,omitempty"`
	At         Moment `json:"at,omitempty"`
	Statement  string `json:"statement,omitempty"`
	Nth        int    `json:"nth,omitempty"`
	Times      int    `json:"times,omitempty"`
	Duration   string `json:"duration,omitempty"`
	ReadOnly   string `json:"read_only,omitempty"`
}

func (f Fault) request() faultRequest {
	return faultRequest{
		Error:      f.Error,
		Connection: f.Connection,
		Delay:      milliseconds(f.Delay),
		Bandwidth:  f.Bandwidth,
		At:         f.At,
		Statement:  f.Statement,
		Nth:        f.Nth,
		Times:      f.Times,
		Duration:   milliseconds(f.Duration),
		ReadOnly:   milliseconds(f.ReadOnly),
	}
}

// unfired has the faults that never fired, in words.
type unfired struct {
	Unfired []string `json:"unfired_faults"`
}

// message returns a line for each fault that never fired.
func (u unfired) message() string {
	var lines []string
	for _, fault := range u.Unfired {
		lines = append(lines, "fault did not fire: "+fault)
	}
	return strings.Join(lines, "\n")
}

type faultList struct {
	Faults []FaultStatus
	unfired
}

func (a api) fault(name string, request faultRequest) error {
	var requested struct{}
	return a.call("POST", faultsPath(name), request, &requested)
}

func (a api) faults(name string) (list faultList, err error) {
	err = a.call("GET", faultsPath(name), nil, &list)
	return list, err
}

func faultsPath(name string) string {
	return "/v1/databases/" + url.PathEscape(name) + "/faults"
}
