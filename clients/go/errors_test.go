package pgfreshtest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHintsAreInTheWordsOfThisPackage(t *testing.T) {
	for there, here := range map[string]string{
		`Close them first, or set "close_sessions".`: "Close them first, or give Reset the option CloseSessions().",
		`Lease it with "record": true.`:              "Give New the option Record(), or a Budget.",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
			response.WriteHeader(http.StatusConflict)
			json.NewEncoder(response).Encode(map[string]any{"error": map[string]string{"message": "no", "hint": there}})
		}))
		_, err := newAPI(strings.TrimPrefix(server.URL, "http://"), "").reset("x", resetWishes{})
		server.Close()
		if want := "no\nHINT:  " + here; err == nil || err.Error() != want {
			t.Errorf("the error is %q, want %q", err, want)
		}
	}
}

func TestTheNameOfATestBeginsWithItsPackage(t *testing.T) {
	if got, want := nameOf(t), "pgfresh.invalid/pgfreshtest.TestTheNameOfATestBeginsWithItsPackage"; got != want {
		t.Errorf("the name is %q, want %q", got, want)
	}
}
