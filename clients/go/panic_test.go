package pgfreshtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func TestPanicReportsFailedTest(t *testing.T) {
	var released []string
	server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		if request.Method == "POST" {
			var body struct{ Name string }
			json.NewDecoder(request.Body).Decode(&body)
			fmt.Fprintf(response, `{"name": %q, "url": "u", "jdbc_url": "j", "socket_url": "s", "template": "t"}`, body.Name)
			return
		}
		released = append(released, request.RequestURI)
		response.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(server.Close)
	t.Setenv("PGFRESH_CONTROL", strings.Replace(server.URL, "http://", "http://:secret@", 1))
	joined := join
	t.Cleanup(func() { join = joined })
	join = connect

	// Like package testing, run the cleanups before the panic is handled.
	run := func(name string, test func()) {
		defer func() { recover() }()
		recorder := &recorder{TB: t, name: "Test/" + name + "&ü\xff"}
		defer func() { recorder.cleanup() }()
		New(recorder, Name(name))
		test()
	}
	run("passed", func() {})
	run("panicked", func() { panic("as a test may") })
	run("recovered", func() { func() { defer func() { recover() }(); panic("and caught") }() })
	want := []string{
		"/v1/databases/passed?test=pgfresh.invalid%2Fpgfreshtest.Test%2Fpassed%26%C3%BC%FF",
		"/v1/databases/panicked?failed=true&test=pgfresh.invalid%2Fpgfreshtest.Test%2Fpanicked%26%C3%BC%FF",
		"/v1/databases/recovered?test=pgfresh.invalid%2Fpgfreshtest.Test%2Frecovered%26%C3%BC%FF",
	}
	if !slices.Equal(released, want) {
		t.Errorf("released %q, want %q", released, want)
	}
}
