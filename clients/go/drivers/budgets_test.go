package drivers

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"pgfresh.invalid/pgfreshtest"
)

// budgetCases is the environment variable that enables TestBudgetCases. Some of its tests fail, so runCases runs them
// in another process.
const budgetCases = "PGFRESHTEST_BUDGET_CASES"

// books runs one query for each author: an N+1.
func books(t *testing.T, conn *pgx.Conn, authors int) {
	t.Helper()
	for author := range authors {
		if _, err := conn.Exec(t.Context(), "SELECT 'book' WHERE $1 > 0", pgx.QueryExecModeExec, author); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBudgetCases(t *testing.T) {
	if os.Getenv(budgetCases) == "" {
		t.Skip("TestExceededBudgetListsStatements runs this test")
	}
	seven := pgfreshtest.Budget{Statements: 7, NPlusOne: 6, Time: 10 * time.Minute}
	use := func(t *testing.T, authors int, options ...pgfreshtest.Option) *pgfreshtest.Database {
		db := pgfreshtest.New(t, options...)
		books(t, connect(t, db.URL), authors)
		return db
	}
	t.Run("AtItsBudget", func(t *testing.T) {
		conn := connect(t, pgfreshtest.New(t, seven).URL)
		execute(t, conn, "CREATE TABLE t ()")
		books(t, conn, 6)
	})
	t.Run("Beyond", func(t *testing.T) {
		conn := connect(t, pgfreshtest.New(t, seven).URL)
		execute(t, conn, "CREATE TABLE t ()")
		books(t, conn, 7)
	})
	t.Run("FailsAnyhow", func(t *testing.T) {
		use(t, 17, seven)
		t.Fatal("by itself")
	})
	t.Run("IsSkipped", func(t *testing.T) {
		use(t, 17, seven)
		t.Skip("as a test may")
	})
	t.Run("BeforeAReset", func(t *testing.T) {
		use(t, 8, seven).Reset(t, pgfreshtest.CloseSessions())
		t.Log("and it goes on")
	})
	t.Run("AfterAReset", func(t *testing.T) {
		db := use(t, 7, pgfreshtest.Budget{Statements: 7})
		db.Reset(t, pgfreshtest.CloseSessions())
		books(t, connect(t, db.URL), 9)
	})
	t.Run("Slow", func(t *testing.T) {
		use(t, 1, pgfreshtest.Budget{Time: pgfreshtest.None})
	})
	t.Run("Few", func(t *testing.T) {
		use(t, 4, pgfreshtest.Budget{NPlusOne: pgfreshtest.None})
	})
	t.Run("AnNPlusOne", func(t *testing.T) {
		use(t, 5, pgfreshtest.Budget{NPlusOne: pgfreshtest.None})
	})
	t.Run("Nothing", func(t *testing.T) {
		use(t, 0, pgfreshtest.Budget{Statements: pgfreshtest.None})
	})
	t.Run("WithoutABudget", func(t *testing.T) {
		if db := use(t, 40, pgfreshtest.Budget{}); db.Recorded != (os.Getenv("PGFRESH_CONFIG") != "") {
			t.Errorf("recorded: %v", db.Recorded)
		}
	})
}

// runCases runs TestBudgetCases in another process. It returns the failed cases, their errors, and the complete output.
func runCases(t *testing.T, command ...string) (failed, messages []string, output string) {
	t.Helper()
	command = append(command, os.Args[0], "-test.run=^TestBudgetCases$", "-test.v")
	process := exec.Command(command[0], command[1:]...)
	process.Env = append(os.Environ(), budgetCases+"=1")
	text, err := process.CombinedOutput()
	if err == nil {
		t.Errorf("no case has failed")
	}
	for _, match := range regexp.MustCompile(`--- FAIL: TestBudgetCases/(\w+)`).FindAllStringSubmatch(string(text), -1) {
		failed = append(failed, match[1])
	}
	for _, match := range regexp.MustCompile(`budgets_test\.go:\d+: budget exceeded: (.*)`).FindAllStringSubmatch(string(text), -1) {
		messages = append(messages, regexp.MustCompile(`^[0-9.]+ ms`).ReplaceAllString(match[1], "… ms"))
	}
	return failed, messages, string(text)
}

func TestExceededBudgetListsStatements(t *testing.T) {
	t.Parallel()
	failed, messages, output := runCases(t)
	if want := []string{"Beyond", "FailsAnyhow", "BeforeAReset", "AfterAReset", "Slow", "AnNPlusOne"}; !slices.Equal(failed, want) {
		t.Errorf("failed are %q, want %q\n%s", failed, want, output)
	}
	want := []string{
		"8 statements, 7 allowed; one query ran 7 times with different values, 6 allowed",
		"8 statements, 7 allowed; one query ran 8 times with different values, 6 allowed",
		"9 statements, 7 allowed",
		"… ms in the database, 0.0 ms allowed",
		"one query ran 5 times with different values, 0 allowed",
	}
	if !slices.Equal(messages, want) {
		t.Errorf("the errors are %q, want %q\n%s", messages, want, output)
	}
	for _, part := range []string{"7 × SELECT ? WHERE ? > ? (N+1)\n", "1 × CREATE TABLE t()\n", "and it goes on"} {
		if !strings.Contains(output, part) {
			t.Errorf("there is no %q in\n%s", part, output)
		}
	}
	// pgfresh keeps the databases of these tests like those of other failed tests.
	if kept := strings.Count(output, "kept the database of the failed test: postgresql:"); kept != len(failed) {
		t.Errorf("%d databases were kept, want %d\n%s", kept, len(failed), output)
	}
}

func TestFileHasBudgetForAllTests(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pgfresh.toml")
	if err := os.WriteFile(file, []byte("[budget]\nstatements = 7\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	binary := os.Getenv("PGFRESH_BIN")
	if binary == "" {
		binary = "pgfresh"
	}
	report := filepath.Join(t.TempDir(), "report.json")
	failed, messages, output := runCases(t, "env", "PGFRESH_CONFIG="+file, binary, "run", "--profile", "--report", report, "--")
	if !slices.Contains(failed, "WithoutABudget") || !slices.Contains(messages, "40 statements, 7 allowed") {
		t.Errorf("failed are %q, with the errors %q\n%s", failed, messages, output)
	}
	// "pgfresh run" doesn't repeat the errors that the tests reported.
	if strings.Contains(output, "a test exceeded its budget") {
		t.Error(output)
	}

	// A reset splits the statements of a test into two parts. Both parts have the name of the test.
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var profile struct {
		Tests []struct {
			Name       string
			Statements int
		}
	}
	if err := json.Unmarshal(text, &profile); err != nil {
		t.Fatal(err)
	}
	var counts []int
	for _, test := range profile.Tests {
		if test.Name == "pgfresh.invalid/pgfreshtest/drivers.TestBudgetCases/AfterAReset" {
			counts = append(counts, test.Statements)
		}
	}
	slices.Sort(counts)
	if !slices.Equal(counts, []int{7, 9}) {
		t.Errorf("the profile counts %d in %+v", counts, profile)
	}
}

func TestBlockCountsStatements(t *testing.T) {
	t.Parallel()
	db := pgfreshtest.New(t, pgfreshtest.Record())
	conn := connect(t, db.URL)
	execute(t, conn, "SELECT 1")
	seen := db.Statements(t, func() {
		execute(t, conn, "SELECT 2")
		for range 2 {
			execute(t, conn, "VALUES (1), (2)")
		}
	})
	execute(t, conn, "SELECT 3")
	if got, want := seen.String(), "3 statements: 2x VALUES (?), …, 1x SELECT ?"; got != want || !seen.Complete {
		t.Errorf("got %q, complete: %v, want %q", got, seen.Complete, want)
	}
	var rows int
	var sum time.Duration
	for _, statement := range seen.MostFrequent {
		rows += statement.Rows
		sum += statement.Time
	}
	if rows != 5 || sum <= 0 || (seen.Time-sum).Abs() > time.Microsecond {
		t.Errorf("%d rows, %v in %+v", rows, sum, seen)
	}

	if none := db.Statements(t, func() {}); none.Count != 0 || none.MostFrequent != nil {
		t.Errorf("nothing is %v", none)
	}
	over := db.Statements(t, func() {
		db.Reset(t, pgfreshtest.CloseSessions())
		execute(t, connect(t, db.URL), "SELECT 4")
	})
	if over.Count != 1 || over.Complete {
		t.Errorf("after a reset it is %v, complete: %v", over, over.Complete)
	}
	// After the reset, the earlier statement runs more often than before it.
	again := db.Statements(t, func() {
		db.Reset(t, pgfreshtest.CloseSessions())
		connection := connect(t, db.URL)
		execute(t, connection, "SELECT 5")
		execute(t, connection, "SELECT 5")
	})
	if again.Count != 2 || again.Complete {
		t.Errorf("after another reset it is %v, complete: %v", again, again.Complete)
	}
}

func TestCountingRequiresRecording(t *testing.T) {
	t.Parallel()
	db := pgfreshtest.New(t)
	if db.Recorded {
		t.Error("it is recorded")
	}
	fatal := &fatal{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		db.Statements(fatal, func() { t.Error("the block runs") })
	}()
	<-done
	if !strings.Contains(fatal.text, "are not recorded") {
		t.Errorf("the error is %q", fatal.text)
	}
}

// fatal records Fatalf's message instead of failing the test.
type fatal struct {
	testing.TB
	text string
}

func (f *fatal) Helper() {}

func (f *fatal) Fatalf(format string, values ...any) {
	f.text = fmt.Sprintf(format, values...)
	runtime.Goexit()
}
