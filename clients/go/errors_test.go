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

func TestMissingBinaryHasHintForSystem(t *testing.T) {
	for system, want := range map[string]string{
		"linux":   "Run \"make install\" in a checkout",
		"darwin":  "Run \"cargo install --locked --path crates/pgfresh\" in a checkout",
		"windows": "pgfresh runs on Linux and macOS, not on windows. Run the tests in WSL 2",
	} {
		if got := installHint(system); !strings.HasPrefix(got, want) {
			t.Errorf("the hint on %s is %q, want %q", system, got, want)
		}
	}
}
