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
)

// transcripts say what every client must do. README.md there explains the keys.
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

func TestTranscripts(t *testing.T) {
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

// A stage is where a transcript is played: the real client between a server and a binary that only do as it says.
type stage struct {
	*testing.T
	script transcript
	binary *standIn

	lock sync.Mutex
	step *step // the current one; without a request once that has come
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
	packagePath = "" // Transcripts have names of any language.
	join = sync.OnceValues(connect)
	s.Cleanup(func() {
		if server, err := join(); err == nil && server.lifeline != nil {
			server.lifeline.Close()
			// Before the folder of its log goes.
			s.binary.hasEnded()
		}
		join, packagePath = processes, path
	})

	var test *audience
	var database *Database
	for i := range s.script.Steps {
		step := &s.script.Steps[i]
		s.enter(step)
		switch step.Do {
		case "lease":
			test = &audience{TB: s.T}
			test.see(func() { database = New(test, options(step)...) })
			if step.Raises == nil {
				s.compare(database, step.Answer.Body)
			}
		case "reset":
			test.see(func() { database.Reset(test, resetOptions(step)...) })
		case "release":
			test.failed, test.name = step.With.Failed, step.With.Test
			test.see(test.cleanup)
		default:
			s.Fatalf("what is to be done at %q?", step.Do)
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

func (s *stage) enter(step *step) {
	s.lock.Lock()
	defer s.lock.Unlock()
	current := *step
	s.step = &current
}

// leave compares what the test got to see.
func (s *stage) leave(step *step, test *audience) {
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

// compare checks that the database has all that the answer says.
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

// ServeHTTP answers the request of the current step, and nothing else.
func (s *stage) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	s.lock.Lock()
	defer s.lock.Unlock()
	want := s.step.Request
	s.step.Request = nil
	got := request.Method + " " + request.RequestURI
	if want == nil || got != want.Method+" "+want.Path {
		s.Errorf("%s is not what should come", got)
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
	response.WriteHeader(s.step.Answer.Status)
	response.Write(s.step.Answer.Body)
}

// An audience is the test that a client is told about: it notes what becomes of it.
type audience struct {
	testing.TB
	name       string
	failed     bool
	fatal, log string
	cleanup    func()
}

// see does something that may end the test.
func (a *audience) see(something func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		something()
	}()
	<-ended
}

func (a *audience) Helper()                {}
func (a *audience) Failed() bool           { return a.failed }
func (a *audience) Skipped() bool          { return false }
func (a *audience) Name() string           { return a.name }
func (a *audience) Cleanup(cleanup func()) { a.cleanup = cleanup }

func (a *audience) Logf(format string, values ...any) {
	a.log += fmt.Sprintf(format, values...)
}

func (a *audience) Errorf(format string, values ...any) {
	a.fatal += fmt.Sprintf(format, values...)
}

func (a *audience) Fatalf(format string, values ...any) {
	a.Errorf(format, values...)
	runtime.Goexit()
}
