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

// responseTimeout limits the time of a request. The timeouts of pgfresh itself are shorter.
const responseTimeout = 2 * time.Minute

// gone is the hint of an error without a response.
const gone = "If its server was stopped, start the tests again. If PGFRESH_CONTROL names a run that is over, unset it."

// An api is a client of the HTTP API.
type api struct {
	address string // HOST:PORT
	secret  string
	client  *http.Client
}

func newAPI(address, secret string) api {
	// This transport ignores the proxies of the environment. It keeps no connections: the server closes idle ones, and a
	// client cannot tell whether the server has processed a request that fails for this reason.
	transport := &http.Transport{DisableKeepAlives: true}
	return api{address: address, secret: secret, client: &http.Client{Transport: transport, Timeout: responseTimeout}}
}

// leaseRequest is the body of a request for a database.
type leaseRequest struct {
	Template  string `json:"template,omitempty"`
	Name      string `json:"name,omitempty"`
	Isolation string `json:"isolation,omitempty"`
	Holder    string `json:"holder,omitempty"`
	Record    bool   `json:"record,omitempty"`
	limits    limits
}

func (a api) lease(request leaseRequest) (*Database, error) {
	database := new(Database)
	if err := a.call("POST", "/v1/databases", request, database); err != nil {
		return nil, err
	}
	database.limits = request.limits
	return database, nil
}

// release ends the lease of a test. It returns the URL of the database if pgfresh keeps it, and "" otherwise.
func (a api) release(name string, failed bool, test string) (string, error) {
	var query []string
	if failed {
		query = append(query, "failed=true")
	}
	if test != "" {
		// QueryEscape encodes for forms: a space becomes a plus, and a plus becomes %2B.
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

// resetRequest is the body of a request for a reset. All fields but the first describe the test that has ended.
type resetRequest struct {
	CloseSessions bool        `json:"close_sessions,omitempty"`
	Test          string      `json:"test,omitempty"`
	Statements    json.Number `json:"statements,omitempty"`
	NPlusOne      json.Number `json:"n_plus_one,omitempty"`
	Time          string      `json:"time,omitempty"`
}

// reset returns the message about the budget if the test that has ended exceeded it, and "" otherwise.
func (a api) reset(name string, request resetRequest) (string, error) {
	var before measured
	err := a.call("POST", "/v1/databases/"+url.PathEscape(name)+"/reset", request, &before)
	return before.Message, err
}

// measured has the statements of a database since its lease or last reset.
type measured struct {
	Message    string // empty if no limit is exceeded
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

func (a api) measure(name string, limits limits) (result measured, err error) {
	path := "/v1/databases/" + url.PathEscape(name) + "/statements"
	if query := limits.query(); query != "" {
		path += "?" + query
	}
	err = a.call("GET", path, nil, &result)
	return result, err
}

// call sends a request and decodes the response into answer, a pointer. A nil body sends none. A response without content leaves
// answer as it is.
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
		return refusal(response)
	case response.StatusCode == http.StatusNoContent:
		return nil
	}
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
		return fmt.Errorf("could not read the answer of pgfresh at %s: %w", a.address, err)
	}
	return nil
}

// hints has hints in place of those that name options of the HTTP API, by remedy.
var hints = map[string]string{
	"close_sessions": "Close them first, or give Reset the option CloseSessions().",
	"record":         "Give New the option Record(), or a Budget.",
}

// refusal returns the error in the body of a response, or one with the status if the body has none.
func refusal(response *http.Response) error {
	var body errorBody
	if err := json.NewDecoder(response.Body).Decode(&body); err == nil {
		if err := body.err(); err != nil {
			return err
		}
	}
	return fmt.Errorf("pgfresh answered with status %d", response.StatusCode)
}

// errorBody is an error as pgfresh encodes it in JSON.
type errorBody struct {
	Error struct{ Message, Detail, Hint, Remedy string }
}

// err returns the error in PostgreSQL's form, or nil if the body has no error.
func (b errorBody) err() error {
	text := b.Error.Message
	if text == "" {
		return nil
	}
	if b.Error.Detail != "" {
		text += "\nDETAIL:  " + b.Error.Detail
	}
	hint, own := hints[b.Error.Remedy]
	if !own {
		hint = b.Error.Hint
	}
	if hint != "" {
		text += "\nHINT:  " + hint
	}
	return errors.New(text)
}
