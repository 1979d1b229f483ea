package web_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"example/library/librarytest"
	"example/library/web"
)

// A visitor sends requests to the library and compares the responses.
type visitor struct {
	*testing.T
	http.Handler
}

func visit(t *testing.T) visitor {
	t.Parallel()
	return visitor{t, web.Handler(librarytest.Open(t))}
}

// asks sends the request what, "METHOD PATH", and compares the response. The body may be empty.
func (v visitor) asks(what, body string, status int, answer string) {
	v.Helper()
	method, path, _ := strings.Cut(what, " ")
	response := httptest.NewRecorder()
	v.ServeHTTP(response, httptest.NewRequest(method, path, strings.NewReader(body)))
	if got := strings.TrimSpace(response.Body.String()); response.Code != status || !strings.Contains(got, answer) {
		v.Errorf("%s: %d %s, want %d %s", what, response.Code, got, status, answer)
	}
}

const emma = `{"isbn": "9780141439587", "title": "Emma", "author": "Jane Austen", "copies": 2}`

func TestALoanFromBeginningToEnd(t *testing.T) {
	v := visit(t)
	v.asks("POST /books", emma, 201, `"isbn":"9780141439587"`)
	v.asks("POST /members", `{"name": "Ann", "email": "ann@example.org"}`, 201, `{"id":1}`)
	v.asks("POST /loans", `{"member": 1, "isbn": "9780141439587"}`, 201, `"id":1`)
	v.asks("GET /books?q=emma", "", 200, `"copies":2,"available":1`)
	v.asks("DELETE /loans/1", "", 200, `{"fine":0}`)
	v.asks("GET /books?q=emma", "", 200, `"copies":2,"available":2`)
}

func TestWhatCannotBeIsSaidInAWord(t *testing.T) {
	v := visit(t)
	v.asks("POST /books", emma, 201, "")
	v.asks("POST /books", `{"isbn": "9780141439588", "title": "Emma"}`, 400, "not an ISBN")
	v.asks("POST /books", `{"isbn": "9780141439686"}`, 400, "books_title_check")
	v.asks("POST /books", `{`, 400, "the body cannot be read")
	v.asks("POST /members", `{"name": "Ann", "email": "ann@example.org"}`, 201, "")
	v.asks("POST /members", `{"name": "Ann", "email": "ANN@example.org"}`, 409, "members_email")
	v.asks("POST /loans", `{"member": 2, "isbn": "9780141439587"}`, 404, "there is no such thing")
	v.asks("DELETE /loans/1", "", 404, "there is no such thing")
	v.asks("DELETE /loans/one", "", 404, "there is no such thing")
}

func TestMembersAreCountedFromOneInEachLibrary(t *testing.T) {
	for _, name := range []string{"ann", "bob", "eve"} {
		t.Run(name, func(t *testing.T) {
			v := visit(t)
			v.asks("POST /members", `{"name": "`+name+`", "email": "me@example.org"}`, 201, `{"id":1}`)
		})
	}
}
