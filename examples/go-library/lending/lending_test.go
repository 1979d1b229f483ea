package lending_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"example/library/catalog"
	"example/library/lending"
	"example/library/librarytest"
)

const (
	emma       = "9780141439587"
	persuasion = "9780141439686"
)

// A house is a library on a fixed day, with one copy of each book.
type house struct {
	*testing.T
	lending.Desk
	today time.Time
}

func open(t *testing.T) *house {
	t.Parallel()
	h := &house{T: t, today: time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)}
	h.Desk = lending.Desk{Pool: librarytest.Open(t), Today: func() time.Time { return h.today }}
	h.stock(emma, 1)
	h.stock(persuasion, 1)
	return h
}

func (h *house) stock(isbn string, copies int) {
	h.Helper()
	if err := catalog.Add(h.Context(), h.Pool, catalog.Book{ISBN: isbn, Title: "A book", Author: "N. N."}, copies); err != nil {
		h.Fatal(err)
	}
}

func (h *house) member(name string) int64 {
	h.Helper()
	id, err := h.Join(h.Context(), name, name+"@example.org")
	if err != nil {
		h.Fatal(err)
	}
	return id
}

func (h *house) borrow(member int64, isbn string) lending.Loan {
	h.Helper()
	loan, err := h.Borrow(h.Context(), member, isbn)
	if err != nil {
		h.Fatal(err)
	}
	return loan
}

func (h *house) giveBack(loan lending.Loan) (fine int) {
	h.Helper()
	fine, err := h.Return(h.Context(), loan.ID)
	if err != nil {
		h.Fatal(err)
	}
	return fine
}

func (h *house) hold(member int64, isbn string, want int) {
	h.Helper()
	if place, err := h.Hold(h.Context(), member, isbn); err != nil || place != want {
		h.Errorf("place %d in the queue, want %d: %v", place, want, err)
	}
}

func (h *house) refuses(member int64, isbn string, want error) {
	h.Helper()
	if _, err := h.Borrow(h.Context(), member, isbn); !errors.Is(err, want) {
		h.Errorf("the answer is %v, want %v", err, want)
	}
}

func TestALoanLastsFourWeeks(t *testing.T) {
	h := open(t)
	loan := h.borrow(h.member("ann"), emma)
	if want := h.today.AddDate(0, 0, 28); !loan.Due.Equal(want) {
		t.Errorf("due on %v, want %v", loan.Due, want)
	}
}

func TestACopyIsWithOneMemberAtATime(t *testing.T) {
	h := open(t)
	ann, bob := h.member("ann"), h.member("bob")
	loan := h.borrow(ann, emma)
	h.refuses(bob, emma, lending.ErrUnavailable)
	h.giveBack(loan)
	h.borrow(bob, emma)
}

func TestOnlyOneOfManyGetsTheLastCopy(t *testing.T) {
	h := open(t)
	var group sync.WaitGroup
	results := make(chan error, 8)
	for i := range cap(results) {
		member := h.member(fmt.Sprint("member", i))
		group.Go(func() {
			_, err := h.Borrow(t.Context(), member, emma)
			results <- err
		})
	}
	group.Wait()
	close(results)
	lent := 0
	for err := range results {
		if err == nil {
			lent++
		} else if !errors.Is(err, lending.ErrUnavailable) {
			t.Error(err)
		}
	}
	if lent != 1 {
		t.Errorf("the only copy was lent %d times", lent)
	}
}

func TestAMemberHasThreeLoansEvenIfTheyAskAtOnce(t *testing.T) {
	h := open(t)
	h.stock(emma, 9)
	ann := h.member("ann")
	var group sync.WaitGroup
	results := make(chan error, 8)
	for range cap(results) {
		group.Go(func() {
			_, err := h.Borrow(t.Context(), ann, emma)
			results <- err
		})
	}
	group.Wait()
	close(results)
	lent := 0
	for err := range results {
		if err == nil {
			lent++
		} else if !errors.Is(err, lending.ErrTooMany) {
			t.Error(err)
		}
	}
	if lent != lending.MaxLoans {
		t.Errorf("lent %d, want %d", lent, lending.MaxLoans)
	}
}

func TestTheQueueIsServedInOrder(t *testing.T) {
	h := open(t)
	ann, bob, eve := h.member("ann"), h.member("bob"), h.member("eve")
	loan := h.borrow(ann, emma)
	h.hold(bob, emma, 1)
	h.hold(eve, emma, 2)
	h.hold(bob, emma, 1)
	h.giveBack(loan)
	h.refuses(ann, emma, lending.ErrUnavailable)
	h.refuses(eve, emma, lending.ErrUnavailable)
	h.giveBack(h.borrow(bob, emma))
	h.refuses(ann, emma, lending.ErrUnavailable)
	h.borrow(eve, emma)
}

func TestWithASecondCopyTheSecondInTheQueueIsServedToo(t *testing.T) {
	h := open(t)
	h.stock(emma, 1)
	ann, bob, eve := h.member("ann"), h.member("bob"), h.member("eve")
	h.hold(ann, emma, 1)
	h.hold(bob, emma, 2)
	h.refuses(eve, emma, lending.ErrUnavailable)
	h.borrow(bob, emma)
	h.borrow(ann, emma)
}

func TestALoanIsRenewedTwice(t *testing.T) {
	h := open(t)
	loan := h.borrow(h.member("ann"), emma)
	for range 2 {
		h.today = h.today.AddDate(0, 0, 20)
		renewed, err := h.Renew(t.Context(), loan.ID)
		if want := h.today.AddDate(0, 0, 28); err != nil || !renewed.Due.Equal(want) {
			t.Errorf("due on %v, want %v: %v", renewed.Due, want, err)
		}
	}
	if _, err := h.Renew(t.Context(), loan.ID); !errors.Is(err, lending.ErrRenewed) {
		t.Error(err)
	}
}

func TestWhatOthersWaitForIsNotRenewed(t *testing.T) {
	h := open(t)
	loan := h.borrow(h.member("ann"), emma)
	h.hold(h.member("bob"), emma, 1)
	if _, err := h.Renew(t.Context(), loan.ID); !errors.Is(err, lending.ErrWanted) {
		t.Error(err)
	}
}

func TestTheFineIsForEachDay(t *testing.T) {
	for days, want := range map[int]int{0: 0, 28: 0, 29: 25, 38: 250} {
		t.Run(fmt.Sprint(days), func(t *testing.T) {
			h := open(t)
			loan := h.borrow(h.member("ann"), emma)
			h.today = h.today.AddDate(0, 0, days)
			if fine := h.giveBack(loan); fine != want {
				t.Errorf("%d cents, want %d", fine, want)
			}
		})
	}
}

func TestWhoOwesTooMuchPaysFirst(t *testing.T) {
	h := open(t)
	ann := h.member("ann")
	loan := h.borrow(ann, emma)
	h.today = h.today.AddDate(0, 0, 28+21)
	if fine := h.giveBack(loan); fine != 525 {
		t.Errorf("fined %d", fine)
	}
	h.refuses(ann, persuasion, lending.ErrDebt)
	if paid, err := h.Pay(t.Context(), ann); err != nil || paid != 525 {
		t.Errorf("paid %d: %v", paid, err)
	}
	h.borrow(ann, persuasion)
}

func TestACopyComesBackOnce(t *testing.T) {
	h := open(t)
	loan := h.borrow(h.member("ann"), emma)
	h.giveBack(loan)
	if _, err := h.Return(t.Context(), loan.ID); !errors.Is(err, lending.ErrUnknown) {
		t.Error(err)
	}
}

func TestWhatIsNotThere(t *testing.T) {
	h := open(t)
	h.refuses(4711, emma, lending.ErrUnknown)
	h.refuses(h.member("ann"), "9780000000002", lending.ErrUnknown)
	if _, err := h.Renew(t.Context(), 4711); !errors.Is(err, lending.ErrUnknown) {
		t.Error(err)
	}
}
