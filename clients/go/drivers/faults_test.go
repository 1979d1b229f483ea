package drivers

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"pgfresh.invalid/pgfreshtest"
)

// faultCases is the environment variable that enables TestFaultCases. Some of its tests fail, so another test runs
// them and checks their output.
const faultCases = "PGFRESHTEST_FAULT_CASES"

func TestEachFaultFiresAndIsListed(t *testing.T) {
	db := pgfreshtest.New(t)
	db.Fault(t, pgfreshtest.Fault{Error: "40001", At: pgfreshtest.AtCommit})
	db.Fault(t, pgfreshtest.Fault{Connection: pgfreshtest.Lost, At: pgfreshtest.AfterCommit})
	db.Fault(t, pgfreshtest.Fault{Error: "57014", Statement: "SELECT 1", Nth: 3, Times: 2})
	if err := commit(t, db.URL); sqlState(err) != "40001" {
		t.Errorf("got %v", err)
	}
	if err := commit(t, db.URL); err == nil || sqlState(err) != "" {
		t.Errorf("got %v", err)
	}
	if err := commit(t, db.URL); sqlState(err) != "57014" {
		t.Errorf("got %v", err)
	}
	faults := db.Faults(t)
	for n, want := range []pgfreshtest.FaultStatus{
		{Text: "40001 at commit", Times: 1, Fired: 1, Candidates: 2, Statements: []string{"commit"}},
		{Text: "connection lost after commit", Times: 1, Fired: 1, Candidates: 1, Statements: []string{"commit"}},
		{Text: `57014 before statement "SELECT 1", number 3, 2 times`, Times: 2, Fired: 1, Candidates: 3, Statements: []string{"SELECT 1"}},
	} {
		got := faults[n]
		if got.Text != want.Text || got.Fired != want.Fired || got.Candidates != want.Candidates || !slices.Equal(got.Statements, want.Statements) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

func commit(t *testing.T, url string) error {
	t.Helper()
	conn := connect(t, url)
	return pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "SELECT 1", pgx.QueryExecModeExec)
		return err
	})
}

// sqlState returns the SQLSTATE of a server error, and "" for other errors.
func sqlState(err error) string {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}

func TestFaultCases(t *testing.T) {
	if os.Getenv(faultCases) == "" {
		t.Skip("TestUnfiredFaultFailsTest runs this test")
	}
	never := func(t *testing.T) *pgfreshtest.Database {
		db := pgfreshtest.New(t)
		db.Fault(t, pgfreshtest.Fault{Delay: 2 * time.Second, Statement: "UPDATE"})
		return db
	}
	t.Run("Never", func(t *testing.T) { never(t) })
	t.Run("FailsAnyhow", func(t *testing.T) {
		never(t)
		t.Fatal("by itself")
	})
	t.Run("IsSkipped", func(t *testing.T) {
		never(t)
		t.Skip("as a test may")
	})
	t.Run("BeforeAReset", func(t *testing.T) {
		db := pgfreshtest.New(t)
		db.Fault(t, pgfreshtest.Fault{Error: "57P03", At: pgfreshtest.AtConnect, Duration: time.Second})
		db.Reset(t)
		t.Log("and it goes on")
	})
	t.Run("NeverBySQL", func(t *testing.T) {
		execute(t, connect(t, pgfreshtest.New(t).URL), `SET pgfresh.fault = '{"error": "57014", "statement": "never"}'`)
	})
	t.Run("Impossible", func(t *testing.T) {
		pgfreshtest.New(t).Fault(t, pgfreshtest.Fault{Error: "4001"})
	})
	t.Run("Fires", func(t *testing.T) {
		db := pgfreshtest.New(t)
		db.Fault(t, pgfreshtest.Fault{Error: "40001", At: pgfreshtest.AtCommit, Times: 2})
		if err := commit(t, db.URL); sqlState(err) != "40001" {
			t.Errorf("got %v", err)
		}
	})
}

func TestUnfiredFaultFailsTest(t *testing.T) {
	command := exec.Command(os.Args[0], "-test.run=^TestFaultCases$", "-test.v")
	command.Env = append(os.Environ(), faultCases+"=1")
	output, err := command.CombinedOutput()
	text := string(output)
	if err == nil {
		t.Fatalf("no case failed: %s", text)
	}
	var failed []string
	for _, match := range regexp.MustCompile(`--- FAIL: TestFaultCases/(\w+)`).FindAllStringSubmatch(text, -1) {
		failed = append(failed, match[1])
	}
	if want := []string{"Never", "FailsAnyhow", "BeforeAReset", "NeverBySQL", "Impossible"}; !slices.Equal(failed, want) {
		t.Errorf("failed: %v, want %v: %s", failed, want, text)
	}
	var lines []string
	for _, match := range regexp.MustCompile(`pgfresh: (fault did not fire.*|cannot request.*)`).FindAllStringSubmatch(text, -1) {
		lines = append(lines, match[1])
	}
	want := []string{
		`fault did not fire: delay of 2000 ms before statement "UPDATE" (no matching statement)`,
		"fault did not fire: 57P03 at connect (no matching connection)",
		`fault did not fire: 57014 before statement "never" (no matching statement)`,
		`cannot request the fault: "4001" is not an error SQLSTATE`,
	}
	if !slices.Equal(lines, want) {
		t.Errorf("errors: %q, want %q: %s", lines, want, text)
	}
	// The client learns about a fault that was requested with SQL only after the test has ended, so pgfresh doesn't
	// keep the database of this test.
	if kept := strings.Count(text, "kept the database of the failed test"); kept != 4 {
		t.Errorf("%d kept databases, want 4: %s", kept, text)
	}
}
