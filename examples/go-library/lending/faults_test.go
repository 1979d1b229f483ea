package lending_test

import (
	"testing"
	"time"

	"example/library/lending"
	"example/library/librarytest"

	"pgfresh.invalid/pgfreshtest"
)

// The database misbehaves while a member requests a hold, but the member doesn't notice.
func TestAHoldSurvivesFaults(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]pgfreshtest.Fault{
		"serialization failures": {Error: "40001", At: pgfreshtest.AtCommit, Times: 2},
		"a lost connection":      {Connection: pgfreshtest.Lost, Statement: "INSERT INTO holds"},
		"a lost commit":          {Connection: pgfreshtest.Lost, At: pgfreshtest.AfterCommit},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgfreshtest.New(t)
			h := &house{T: t}
			h.Desk = lending.Desk{Pool: librarytest.Connect(t, db), Today: time.Now}
			h.stock(emma, 1)
			ann := h.member("ann")
			db.Fault(t, fault)
			if place, err := h.Hold(t.Context(), ann, emma); err != nil || place != 1 {
				t.Errorf("place %d, %v", place, err)
			}
			var holds int
			if err := h.Pool.QueryRow(t.Context(), "SELECT count(*) FROM holds").Scan(&holds); err != nil || holds != 1 {
				t.Errorf("%d holds, %v", holds, err)
			}
		})
	}
}

func TestAHoldGivesUpAfterThreeAttempts(t *testing.T) {
	t.Parallel()
	db := pgfreshtest.New(t)
	h := &house{T: t}
	h.Desk = lending.Desk{Pool: librarytest.Connect(t, db), Today: time.Now}
	h.stock(emma, 1)
	ann := h.member("ann")
	db.Fault(t, pgfreshtest.Fault{Error: "40P01", Statement: "INSERT INTO holds", Times: 10})
	if _, err := h.Hold(t.Context(), ann, emma); err == nil {
		t.Error("it succeeded")
	}
	if fired := db.Faults(t)[0].Fired; fired != 3 {
		t.Errorf("%d attempts", fired)
	}
}
