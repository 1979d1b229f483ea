package pgfreshtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// joinOnly is the environment variable that makes this program join a server, print a line, and wait for a signal. If
// the value is "lease", the line is the URL of a database.
const joinOnly = "PGFRESHTEST_JOIN_ONLY"

func TestMain(m *testing.M) {
	if os.Getenv(joinOnly) == "" {
		os.Exit(m.Run())
	}
	server, err := join()
	if err != nil {
		panic(err)
	}
	line := "joined"
	if os.Getenv(joinOnly) == "lease" {
		database, err := server.lease(leaseRequest{Holder: server.holder})
		if err != nil {
			panic(err)
		}
		line = database.URL
	}
	fmt.Println(line)
	time.Sleep(time.Hour)
}

func TestProgramThatIsNotPgfreshEnds(t *testing.T) {
	folder := t.TempDir()
	binary, id := filepath.Join(folder, "other"), filepath.Join(folder, "id")
	for line, message := range map[string]string{
		"echo garbage": "could not read what",
		"exec >&-":     "pgfresh ended with signal: killed before it was ready",
	} {
		script := fmt.Sprintf("#!/bin/sh\necho $$ >%s\n%s\nexec sleep 60\n", id, line)
		if err := os.WriteFile(binary, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		_, err := start(exec.Command(binary, serve...))
		if err == nil || !strings.HasPrefix(err.Error(), message) {
			t.Errorf("%s: the error is %v, want %q", line, err, message)
		}
		number, err := os.ReadFile(id)
		if err != nil {
			t.Fatal(err)
		}
		if exists(filepath.Join("/proc", strings.TrimSpace(string(number)))) {
			t.Errorf("%s: the program still runs", line)
		}
	}
}

func TestBinaryEndsWithProcess(t *testing.T) {
	binary := newStandIn(t, map[string]any{"http_url": "http://127.0.0.1:1/", "password": "x"}, 0)
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), joinOnly+"=1")
	process.Stderr = os.Stderr
	output, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(output).ReadString('\n'); line != "joined\n" {
		t.Errorf("the process printed %q: %v", line, err)
	}
	if log := binary.read(); strings.Contains(log, "ended") {
		t.Errorf("the binary ended before the process: %s", log)
	}
	process.Process.Kill()
	process.Wait()
	binary.hasEnded()
}

// A standIn is a script that the client starts in place of pgfresh.
type standIn struct {
	*testing.T
	log string
}

// newStandIn makes this process use the script as the binary. The script prints line and exits with code, or waits if
// code is 0.
func newStandIn(t *testing.T, line any, code int) *standIn {
	script, err := filepath.Abs(filepath.Join(transcripts, "pgfresh"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(line)
	if err != nil {
		t.Fatal(err)
	}
	s := &standIn{T: t, log: filepath.Join(t.TempDir(), "log")}
	t.Setenv("PGFRESH_BIN", script)
	t.Setenv("FAKE_LOG", s.log)
	t.Setenv("FAKE_LINE", string(text))
	if code != 0 {
		t.Setenv("FAKE_EXIT", fmt.Sprint(code))
	}
	for _, name := range []string{"PGFRESH_CONTROL", "PGFRESH_HOLDER"} {
		t.Setenv(name, "")
	}
	return s
}

func (s *standIn) read() string {
	text, err := os.ReadFile(s.log)
	if err != nil && !os.IsNotExist(err) {
		s.Fatal(err)
	}
	return string(text)
}

// hasEnded waits until the log shows that the binary has ended. It fails the test after 10 s.
func (s *standIn) hasEnded() {
	s.Helper()
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(s.read(), "ended\n"); {
		if time.Now().After(deadline) {
			s.Fatal("the binary still runs after 10 s")
		}
		time.Sleep(time.Millisecond)
	}
}

// wasStarted checks how often the binary was started, and the arguments of the first start unless arguments is nil.
func (s *standIn) wasStarted(times int, arguments []string) {
	s.Helper()
	var starts []string
	for _, line := range strings.Split(s.read(), "\n") {
		if words, started := strings.CutPrefix(line, "started "); started {
			starts = append(starts, words)
		}
	}
	if len(starts) != times {
		s.Errorf("started %d times, want %d", len(starts), times)
	}
	if want := strings.Join(arguments, " "); arguments != nil && (len(starts) == 0 || starts[0] != want) {
		s.Errorf("started with %q, want %q", starts, want)
	}
}
