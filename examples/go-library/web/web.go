// Package web provides the library's HTTP API, with JSON.
package web

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example/library/catalog"
	"example/library/lending"
)

// Handler returns a handler for the library in the database of pool.
func Handler(pool *pgxpool.Pool) http.Handler {
	desk := lending.Desk{Pool: pool, Today: time.Now}
	mux := http.NewServeMux()
	mux.Handle("GET /books", answer(http.StatusOK, func(r *http.Request) (any, error) {
		return catalog.Search(r.Context(), pool, r.FormValue("q"))
	}))
	mux.Handle("POST /books", answer(http.StatusCreated, func(r *http.Request) (any, error) {
		var book catalog.Book
		if err := read(r, &book); err != nil {
			return nil, err
		}
		return book, catalog.Add(r.Context(), pool, book, book.Copies)
	}))
	mux.Handle("POST /members", answer(http.StatusCreated, func(r *http.Request) (any, error) {
		var member struct{ Name, Email string }
		if err := read(r, &member); err != nil {
			return nil, err
		}
		id, err := desk.Join(r.Context(), member.Name, member.Email)
		return map[string]int64{"id": id}, err
	}))
	mux.Handle("POST /loans", answer(http.StatusCreated, func(r *http.Request) (any, error) {
		var wanted struct {
			Member int64
			ISBN   string
		}
		if err := read(r, &wanted); err != nil {
			return nil, err
		}
		return desk.Borrow(r.Context(), wanted.Member, wanted.ISBN)
	}))
	mux.Handle("DELETE /loans/{id}", answer(http.StatusOK, func(r *http.Request) (any, error) {
		id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
		if err != nil {
			return nil, lending.ErrUnknown
		}
		fine, err := desk.Return(r.Context(), id)
		return map[string]int{"fine": fine}, err
	}))
	return mux
}

var errBody = errors.New("the body cannot be read")

func read(r *http.Request, into any) error {
	if json.NewDecoder(r.Body).Decode(into) != nil {
		return errBody
	}
	return nil
}

// answer sends the result of f with status, or a short error.
func answer(status int, f func(*http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := f(r)
		code := status
		if err != nil {
			code = statusOf(err)
			body = map[string]string{"error": err.Error()}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		json.NewEncoder(w).Encode(body)
	})
}

func statusOf(err error) int {
	var refused *pgconn.PgError
	switch {
	case errors.Is(err, lending.ErrUnknown):
		return http.StatusNotFound
	case errors.Is(err, errBody), errors.Is(err, catalog.ErrISBN):
		return http.StatusBadRequest
	case errors.Is(err, lending.ErrUnavailable), errors.Is(err, lending.ErrTooMany), errors.Is(err, lending.ErrDebt):
		return http.StatusConflict
	case errors.As(err, &refused) && refused.Code == "23505": // unique_violation
		return http.StatusConflict
	case errors.As(err, &refused) && refused.Code == "23514": // check_violation
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}
