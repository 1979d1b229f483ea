package pgfreshtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// transcripts is the folder of the transcripts, which all clients follow. Its README.md explains the keys.
const transcripts = "../transcripts"

type transcript struct {
	Environment map[string]string
	Start       struct {
		Arguments []string
		Line      any
		Exit      int
	}
	Steps   []step
	Spawned int
}

type step struct {
	Do   string
	With struct {
		Template, Name, Isolation string
		CloseSessions             bool `json:"close_sessions"`
		Failed                    bool
		Test                      string

		Error, Connection, Delay, Bandwidth, Statement string
		At                                             Moment
		Nth, Times                                     int
		Duration, Lag                                  string
		ReadOnly                                       string `json:"read_only"`
	}
	Request *struct {
		Method, Path string
		Body         any
	}
	Answer *struct {
		Status int
		Body   json.RawMessage
	}
	Raises *struct{ Text, Begins, Ends string }
	Prints string
}

func TestClientFollowsTranscripts(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(transcripts, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("found no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			newStage(t, file).play()
		})
	}
}

// A stage plays a transcript with the real client. The stage stands in for the server, and a script for the binary.
type stage struct {
	*testing.T
	script transcript
	binary *standIn

	lock sync.Mutex
	step *step // current step; its request is nil once the request has arrived
}

func newStage(t *testing.T, file string) *stage {
	s := &stage{T: t}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), "{port}", port)), &s.script); err != nil {
		t.Fatal(err)
	}
	s.binary = newStandIn(t, s.script.Start.Line, s.script.Start.Exit)
	for name, value := range s.script.Environment {
		t.Setenv(name, value)
	}
	return s
}

func (s *stage) play() {
	processes, path := join, packagePath
	packagePath = "" // Test names in transcripts don't include a package.
	join = sync.OnceValues(connect)
	s.Cleanup(func() {
		if server, err := join(); err == nil && server.lifeline != nil {
			server.lifeline.Close()
			// The cleanup of the test removes the folder of its log.
			s.binary.hasEnded()
		}
		join, packagePath = processes, path
	})

	var test *recorder
	var database *Database
	for i := range s.script.Steps {
		step := &s.script.Steps[i]
		s.enter(step)
		switch step.Do {
		case "lease":
			test = &recorder{TB: s.T}
			test.run(func() { database = New(test, options(step)...) })
			if step.Raises == nil {
				s.compare(database, step.Answer.Body)
			}
		case "reset":
			test.run(func() { database.Reset(test, resetOptions(step)...) })
		case "fault":
			test.run(func() { database.Fault(test, s.fault(step)) })
		case "faults":
			test.run(func() { s.compareFaults(database.Faults(test), step.Answer.Body) })
		case "lag":
			test.run(func() { database.SetReplicaLag(test, step.With.Lag) })
		case "promote":
			test.run(func() { database.PromoteReplica(test) })
		case "check":
			test.run(func() { database.checkFaults(test) })
		case "release":
			test.failed, test.name = step.With.Failed, step.With.Test
			test.run(test.cleanup)
		default:
			s.Fatalf("unknown step %q", step.Do)
		}
		s.leave(step, test)
	}
	s.binary.wasStarted(s.script.Spawned, s.script.Start.Arguments)
}

func options(step *step) (options []Option) {
	if step.With.Template != "" {
		options = append(options, Template(step.With.Template))
	}
	if step.With.Name != "" {
		options = append(options, Name(step.With.Name))
	}
	if step.With.Isolation != "" {
		options = append(options, Isolation(step.With.Isolation))
	}
	return options
}

func resetOptions(step *step) (options []ResetOption) {
	if step.With.CloseSessions {
		options = append(options, CloseSessions())
	}
	return options
}

func (s *stage) fault(step *step) Fault {
	with := step.With
	duration := func(text string) time.Duration {
		if text == "" {
			return 0
		}
		span, err := time.ParseDuration(text)
		if err != nil {
			s.Fatal(err)
		}
		return span
	}
	loss := map[string]Loss{"": "", "lost": Lost, "silent": Silent}[with.Connection]
	return Fault{
		Error: with.Error, Connection: loss, Delay: duration(with.Delay), Bandwidth: with.Bandwidth,
		At: with.At, Statement: with.Statement, Nth: with.Nth, Times: with.Times,
		Duration: duration(with.Duration), ReadOnly: duration(with.ReadOnly),
	}
}

// compareFaults checks that the client returns all fields of each fault except its number.
func (s *stage) compareFaults(faults []FaultStatus, answer json.RawMessage) {
	var want struct{ Faults []map[string]any }
	if err := json.Unmarshal(answer, &want); err != nil {
		s.Fatal(err)
	}
	for n, fault := range faults {
		got := map[string]any{
			"number": float64(n + 1), "fault": fault.Text, "times": float64(fault.Times), "fired": float64(fault.Fired),
			"candidates": float64(fault.Candidates), "statements": []any{},
		}
		for _, statement := range fault.Statements {
			got["statements"] = append(got["statements"].([]any), statement)
		}
		if n >= len(want.Faults) || !reflect.DeepEqual(got, want.Faults[n]) {
			s.Errorf("fault %d is %v, want those of %v", n+1, got, want)
		}
	}
}

func (s *stage) enter(step *step) {
	s.lock.Lock()
	defer s.lock.Unlock()
	current := *step
	s.step = &current
}

// leave compares the errors and the log of the test with those that the step expects.
func (s *stage) leave(step *step, test *recorder) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.step.Request != nil {
		s.Errorf("%s: no request came", step.Do)
	}
	switch {
	case step.Raises == nil:
		if test.fatal != "" {
			s.Fatalf("%s: failed: %s", step.Do, test.fatal)
		}
	case step.Raises.Text != "":
		if want := "pgfresh: " + step.Raises.Text; test.fatal != want {
			s.Errorf("%s: the error is %q, want %q", step.Do, test.fatal, want)
		}
	default:
		if want := "pgfresh: " + step.Raises.Begins; !strings.HasPrefix(test.fatal, want) || !strings.HasSuffix(test.fatal, step.Raises.Ends) {
			s.Errorf("%s: the error is %q, want it to begin with %q", step.Do, test.fatal, want)
		}
	}
	if test.log != step.Prints {
		s.Errorf("%s: printed %q, want %q", step.Do, test.log, step.Prints)
	}
	test.fatal, test.log = "", ""
}

// compare checks that database has all fields of the response.
func (s *stage) compare(database *Database, answer json.RawMessage) {
	var want Database
	fields := json.NewDecoder(strings.NewReader(string(answer)))
	fields.DisallowUnknownFields()
	if err := fields.Decode(&want); err != nil {
		s.Fatal(err)
	}
	want.server, want.test, want.limits = database.server, database.test, database.limits
	if *database != want {
		s.Errorf("got %+v, want %+v", *database, want)
	}
}

// ServeHTTP responds to the request that the current step expects. Other requests fail the test.
func (s *stage) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	s.lock.Lock()
	defer s.lock.Unlock()
	want := s.step.Request
	s.step.Request = nil
	got := request.Method + " " + request.RequestURI
	if want == nil || got != want.Method+" "+want.Path {
		s.Errorf("%s is not the request of the step", got)
		return
	}
	if authorization := request.Header.Get("Authorization"); authorization != "Bearer 5ec7e700000000000000000000000000" {
		s.Errorf("%s has the authorization %q", got, authorization)
	}
	var body any
	if err := json.NewDecoder(request.Body).Decode(&body); err != nil && err != io.EOF {
		s.Errorf("%s has a body that is no JSON: %v", got, err)
	}
	if !reflect.DeepEqual(body, want.Body) {
		s.Errorf("%s has the body %v, want %v", got, body, want.Body)
	}
	if s.step.Answer == nil {
		panic(http.ErrAbortHandler)
	}
	if status := s.step.Answer.Status; status >= 300 && status < 400 {
		response.Header().Set("Location", "/elsewhere")
	}
	response.WriteHeader(s.step.Answer.Status)
	response.Write(s.step.Answer.Body)
}

// A recorder is a testing.TB that records the client's messages and its cleanup.
type recorder struct {
	testing.TB
	name       string
	failed     bool
	fatal, log string
	cleanup    func()
}

// run calls a function in another goroutine, because the function may end the test, and waits for the goroutine to end.
func (r *recorder) run(function func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		function()
	}()
	<-ended
}

func (r *recorder) Helper()                {}
func (r *recorder) Failed() bool           { return r.failed }
func (r *recorder) Skipped() bool          { return false }
func (r *recorder) Name() string           { return r.name }
func (r *recorder) Cleanup(cleanup func()) { r.cleanup = cleanup }

func (r *recorder) Logf(format string, values ...any) {
	r.log += fmt.Sprintf(format, values...)
}

func (r *recorder) Errorf(format string, values ...any) {
	r.fatal += fmt.Sprintf(format, values...)
}

func (r *recorder) Fatalf(format string, values ...any) {
	r.Errorf(format, values...)
	runtime.Goexit()
}
