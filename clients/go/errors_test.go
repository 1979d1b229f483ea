package pgfreshtest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHintsNameGoOptions(t *testing.T) {
	for hint, translated := range map[string]string{
		`Close them first, or set "close_sessions".`: "Close them first, or give Reset the option CloseSessions().",
		`Lease it with "record": true.`:              "Give New the option Record(), or a Budget.",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
			response.WriteHeader(http.StatusConflict)
			json.NewEncoder(response).Encode(map[string]any{"error": map[string]string{"message": "no", "hint": hint}})
		}))
		_, err := newAPI(strings.TrimPrefix(server.URL, "http://"), "").reset("x", resetRequest{})
		server.Close()
		if want := "no\nHINT:  " + translated; err == nil || err.Error() != want {
			t.Errorf("the error is %q, want %q", err, want)
		}
	}
}

func TestNameBeginsWithPackage(t *testing.T) {
	if got, want := nameOf(t), "pgfresh.invalid/pgfreshtest.TestNameBeginsWithPackage"; got != want {
		t.Errorf("the name is %q, want %q", got, want)
	}
}
