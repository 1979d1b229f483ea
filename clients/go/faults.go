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
	Silent Loss = "silent" // the connection stays open, but nothing arrives anymore
)

// A Fault is an error, a lost connection or a delay. It has exactly one of Error, Connection, Delay and Bandwidth.
type Fault struct {
	// Error is the SQLSTATE of an error, such as "40001", or "failover".
	Error string

	// Connection is how the connection is lost.
	Connection Loss

	// Delay is how much later a message arrives.
	Delay time.Duration

	// Bandwidth limits the bytes per second from the moment At on. The number has a unit: "10kB".
	Bandwidth string

	// At selects the moment of the fault. Default: BeforeStatement, but AtConnect for a failover.
	At Moment

	// Statement is the text or the beginning of the statements that the fault can hit. "…" in Statement stands for
	// any text. Default: all statements.
	Statement string

	// Nth is the number of the first statement, commit or connection that the fault hits. Default: 1.
	Nth int

	// Times is the number of statements, commits or connections that the fault hits. Default: 1.
	Times int

	// Duration is how long a failover refuses new connections. Default: the failover refuses as many connections as
	// Times.
	Duration time.Duration

	// ReadOnly is how long transactions are read-only after a failover. Default: not at all.
	ReadOnly time.Duration
}

// A FaultStatus is a requested fault, with the statements that it hit.
type FaultStatus struct {
	// Text describes the fault: "40001 at commit".
	Text string `json:"fault"`

	// Times is how often the fault is to fire.
	Times int

	// Fired is how often the fault has fired.
	Fired int

	// Candidates is the number of statements, commits or connections that the fault could have hit.
	Candidates int

	// Statements lists the statements that the fault hit, at most 100.
	Statements []string
}

// Fault requests a fault, which lasts until the next Reset or the end of the test. When Fault returns, the fault
// applies to all open sessions. If the fault never fires, the test fails at its end or at the Reset. An error fails
// tb immediately.
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

// Faults returns the faults requested since New or the last Reset, in this order. An error fails tb immediately.
func (d *Database) Faults(tb testing.TB) []FaultStatus {
	tb.Helper()
	list, err := d.server.faults(d.Name)
	if err != nil {
		tb.Fatalf("pgfresh: %v", err)
	}
	return list.Faults
}

// checkFaults fails a test if one of its faults never fired. It does nothing after a failure, a skip or a panic, or
// if the client hasn't requested a fault. A second call does nothing.
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

// faultRequest is the body of a fault request.
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

// unfired describes the faults that never fired.
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
	err = a.call("GET", faultsPath(name), nil, &list, "faults")
	return list, err
}

func faultsPath(name string) string {
	return "/v1/databases/" + url.PathEscape(name) + "/faults"
}
