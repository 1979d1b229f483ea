package pgfreshtest

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// responseTimeout limits how long a request takes. The timeouts in pgfresh itself are shorter.
const responseTimeout = 2 * time.Minute

// connectTimeout limits how long it takes to connect to another machine.
const connectTimeout = 30 * time.Second

// Hints for requests without a response: from a server on this machine, from a server on another machine, and from a
// server whose certificate can't be verified.
const (
	gone        = "If its server was stopped, start the tests again. If PGFRESH_CONTROL names a run that is over, unset it."
	unreachable = "Check the host and the port in PGFRESH_CONTROL, and that \"pgfresh serve --listen\" runs there."
	untrusted   = "PGSSLROOTCERT must name the file of the server's root certificate. pgfresh makes a new one at each start."
)

// An api is a client of the HTTP API.
type api struct {
	address string // HOST:PORT
	secret  string
	trust   *trust // how to verify the server's certificate, for https; nil for http
	client  *http.Client
}

func newAPI(address, secret string, trust *trust) api {
	// This transport ignores proxy variables in the environment. It doesn't reuse connections: the server closes idle
	// connections, and if a request fails because of that, a client can't determine whether the server processed it.
	transport := &http.Transport{DisableKeepAlives: true}
	if trust != nil {
		transport.TLSClientConfig = &tls.Config{RootCAs: trust.roots}
		transport.TLSHandshakeTimeout = connectTimeout
		transport.DialContext = (&net.Dialer{Timeout: connectTimeout}).DialContext
	}
	return api{address, secret, trust, newClient(transport, responseTimeout)}
}

// newClient returns a client that doesn't follow redirects. Otherwise it would send the secret to the new location,
// even without TLS.
func newClient(transport http.RoundTripper, timeout time.Duration) *http.Client {
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: transport, Timeout: timeout, CheckRedirect: stay}
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
	needs := []string{"name", "url", "jdbc_url", "socket_url", "template"}
	if err := a.call("POST", "/v1/databases", request, database, needs...); err != nil {
		return nil, err
	}
	database.URL, database.JDBCURL = a.trust.addTo(database.URL), a.trust.addTo(database.JDBCURL)
	database.ReplicaURL = a.trust.addTo(database.ReplicaURL)
	database.limits = request.limits
	return database, nil
}

// endOfTest is the response to a reset or a release. It is empty if there is nothing to report.
type endOfTest struct {
	URL     string // of the database, if pgfresh keeps it
	Message string // about the budget, if the test exceeded it
	unfired
}

// release ends the lease of a test.
func (a api) release(name string, failed bool, test string) (ended endOfTest, err error) {
	var query []string
	if failed {
		query = append(query, "failed=true")
	}
	if test != "" {
		query = append(query, "test="+escape(test))
	}
	path := "/v1/databases/" + url.PathEscape(name)
	if query != nil {
		path += "?" + strings.Join(query, "&")
	}
	err = a.call("DELETE", path, nil, &ended)
	ended.URL = a.trust.addTo(ended.URL)
	return ended, err
}

// escape percent-encodes a parameter value. QueryEscape encodes for forms: a space becomes a plus, and a plus becomes
// %2B.
func escape(value string) string {
	return strings.ReplaceAll(url.QueryEscape(value), "+", "%20")
}

// resetRequest is the body of a reset request. All fields except CloseSessions describe the test that has ended.
type resetRequest struct {
	CloseSessions bool        `json:"close_sessions,omitempty"`
	Test          string      `json:"test,omitempty"`
	Statements    json.Number `json:"statements,omitempty"`
	NPlusOne      json.Number `json:"n_plus_one,omitempty"`
	Time          string      `json:"time,omitempty"`
}

// reset ends the test that has used the database.
func (a api) reset(name string, request resetRequest) (ended endOfTest, err error) {
	err = a.call("POST", "/v1/databases/"+url.PathEscape(name)+"/reset", request, &ended)
	return ended, err
}

// measured has the statements that a database received since its lease or last reset.
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
	err = a.call("GET", path, nil, &result, "count", "seconds", "complete", "statements")
	return result, err
}

// call sends a request and decodes the response into answer, a pointer. If body is nil, the request has no body. needs
// names the members that the response must have. A response without content leaves answer unchanged.
func (a api) call(method, path string, body, answer any, needs ...string) error {
	var content bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&content).Encode(body); err != nil {
			return err
		}
	}
	response, err := a.send(a.client, method, path, &content)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text := json.RawMessage("{}")
	if response.StatusCode != http.StatusNoContent {
		if err := json.NewDecoder(response.Body).Decode(&text); err != nil {
			return a.unreadable(err)
		}
	}
	var members map[string]any
	if err := json.Unmarshal(text, &members); err != nil {
		return a.unreadable(err)
	}
	for _, name := range needs {
		if members[name] == nil {
			return a.unreadable(fmt.Errorf("it has no %q", name))
		}
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return a.unreadable(err)
	}
	return nil
}

func (a api) unreadable(err error) error {
	return fmt.Errorf("could not read the response of pgfresh at %s: %w", a.address, err)
}

// send sends a request. It returns an error if there is no response or if its status is 300 or more.
func (a api) send(client *http.Client, method, path string, content io.Reader) (*http.Response, error) {
	scheme := "http"
	if a.trust != nil {
		scheme = "https"
	}
	request, err := http.NewRequest(method, scheme+"://"+a.address+path, content)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+a.secret)
	response, err := client.Do(request)
	if err != nil {
		return nil, a.lost(err)
	}
	if response.StatusCode >= 300 {
		defer response.Body.Close()
		return nil, refusal(response)
	}
	return response, nil
}

// lost returns the error for a request without a response.
func (a api) lost(err error) error {
	hint := gone
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &certificate):
		hint = untrusted
	case a.trust != nil:
		hint = unreachable
	}
	return fmt.Errorf("could not talk to pgfresh at %s: %w\nHINT:  %s", a.address, errors.Unwrap(err), hint)
}

// hints replaces hints that name HTTP API options with hints that name options of this package. The keys are remedies.
var hints = map[string]string{
	"begin_hold":     "The server was restarted. Start the tests again.",
	"close_sessions": "Close them first, or give Reset the option CloseSessions().",
	"record":         "Give New the option Record(), or a Budget.",
	"send_secret":    "Check the password in PGFRESH_CONTROL.",
}

// refusal returns the error in the response body. If the body has no error, the returned error contains the status.
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

// err returns the error in PostgreSQL's format, or nil if the body has no error.
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
