package pgfreshtest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHintsNameGoOptions(t *testing.T) {
	for remedy, hint := range map[string]string{
		"close_sessions": "Close them first, or give Reset the option CloseSessions().",
		"record":         "Give New the option Record(), or a Budget.",
		"make_room":      "Whatever the server says.",
		"":               "Whatever the server says.",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
			response.WriteHeader(http.StatusConflict)
			err := map[string]string{"message": "no", "hint": "Whatever the server says.", "remedy": remedy}
			json.NewEncoder(response).Encode(map[string]any{"error": err})
		}))
		_, err := newAPI(strings.TrimPrefix(server.URL, "http://"), "", nil).reset("x", resetRequest{})
		server.Close()
		if want := "no\nHINT:  " + hint; err == nil || err.Error() != want {
			t.Errorf("the error is %q, want %q", err, want)
		}
	}
}

func TestNameBeginsWithPackage(t *testing.T) {
	if got, want := nameOf(t), "pgfresh.invalid/pgfreshtest.TestNameBeginsWithPackage"; got != want {
		t.Errorf("the name is %q, want %q", got, want)
	}
}
