package pgfreshtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// patience is how long an answer may take. What pgfresh itself waits for has shorter bounds.
const patience = 2 * time.Minute

// gone is what to do where there is no answer.
const gone = "If its server was stopped, start the tests again. If PGFRESH_CONTROL names a run that is over, unset it."

// An api speaks with pgfresh over HTTP.
type api struct {
	address string // HOST:PORT
	secret  string
	client  *http.Client
}

func newAPI(address, secret string) api {
	// No proxy of the environment has a part in this. Connections are not kept, for the server closes those that are idle,
	// and a request that meets that cannot know whether it was heard.
	transport := &http.Transport{DisableKeepAlives: true}
	return api{address: address, secret: secret, client: &http.Client{Transport: transport, Timeout: patience}}
}

// wishes are the body of a request for a database.
type wishes struct {
	Template  string `json:"template,omitempty"`
	Name      string `json:"name,omitempty"`
	Isolation string `json:"isolation,omitempty"`
	Holder    string `json:"holder,omitempty"`
	Record    bool   `json:"record,omitempty"`
	limits    limits
}

func (a api) lease(w wishes) (*Database, error) {
	database := new(Database)
	if err := a.call("POST", "/v1/databases", w, database); err != nil {
		return nil, err
	}
	database.limits = w.limits
	return database, nil
}

// release ends a lease, that of this test. If the database was kept, because its test has failed, it returns the URL.
func (a api) release(name string, failed bool, test string) (string, error) {
	var query []string
	if failed {
		query = append(query, "failed=true")
	}
	if test != "" {
		// This encodes for forms, where a space is a plus; a plus itself is %2B.
		query = append(query, "test="+strings.ReplaceAll(url.QueryEscape(test), "+", "%20"))
	}
	path := "/v1/databases/" + url.PathEscape(name)
	if query != nil {
		path += "?" + strings.Join(query, "&")
	}
	var kept struct{ URL string }
	err := a.call("DELETE", path, nil, &kept)
	return kept.URL, err
}

// resetWishes are the body of a request for a reset. All but the first are of the test that is over.
type resetWishes struct {
	CloseSessions bool        `json:"close_sessions,omitempty"`
	Test          string      `json:"test,omitempty"`
	Statements    json.Number `json:"statements,omitempty"`
	NPlusOne      json.Number `json:"n_plus_one,omitempty"`
	Time          string      `json:"time,omitempty"`
}

// reset returns what is to be said of the budget, if the test that is over has exceeded it.
func (a api) reset(name string, w resetWishes) (string, error) {
	var told measured
	err := a.call("POST", "/v1/databases/"+url.PathEscape(name)+"/reset", w, &told)
	return told.Message, err
}

// measured is what clients of a database have run since it was leased or reset.
type measured struct {
	Message    string // if that exceeds a limit
	Count      int
	Seconds    float64
	Complete   bool
	Statements []ranStatement
}

type ranStatement struct {
	Statement string
	Count     int
	Seconds   float64
	Rows      int
}

func (a api) measure(name string, limits limits) (told measured, err error) {
	path := "/v1/databases/" + url.PathEscape(name) + "/statements"
	if query := limits.query(); query != "" {
		path += "?" + query
	}
	err = a.call("GET", path, nil, &told)
	return told, err
}

// call sends a request, with a body unless that is nil, and reads the answer, if it has content, into what answer points to.
func (a api) call(method, path string, body, answer any) error {
	var content bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&content).Encode(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequest(method, "http://"+a.address+path, &content)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+a.secret)
	response, err := a.client.Do(request)
	if err != nil {
		return fmt.Errorf("could not talk to pgfresh at %s: %w\nHINT:  %s", a.address, errors.Unwrap(err), gone)
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode >= 300:
		return refused(response)
	case response.StatusCode == http.StatusNoContent:
		return nil
	}
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
		return fmt.Errorf("could not read the answer of pgfresh at %s: %w", a.address, err)
	}
	return nil
}

// inGo replaces what hints say to users of HTTP.
var inGo = strings.NewReplacer(
	`set "close_sessions"`, "give Reset the option CloseSessions()",
	`Lease it with "record": true`, "Give New the option Record(), or a Budget",
)

// refused returns the error in pgfresh's own words.
func refused(response *http.Response) error {
	var said said
	if err := json.NewDecoder(response.Body).Decode(&said); err == nil {
		if err := said.err(); err != nil {
			return err
		}
	}
	return fmt.Errorf("pgfresh answered with status %d", response.StatusCode)
}

// said is an error as pgfresh writes it.
type said struct {
	Error struct{ Message, Detail, Hint string }
}

// err returns it in PostgreSQL's form, or nil if there is none.
func (s said) err() error {
	text := s.Error.Message
	if text == "" {
		return nil
	}
	if s.Error.Detail != "" {
		text += "\nDETAIL:  " + s.Error.Detail
	}
	if s.Error.Hint != "" {
		text += "\nHINT:  " + inGo.Replace(s.Error.Hint)
	}
	return errors.New(text)
}
