package pgfreshtest

import (
	"net/url"
	"testing"
)

// Lags of a replica. A time with a unit, such as "500ms", is also a lag: the replica shows each commit after this time.
const (
	NoLag  = "none"   // a commit returns once the replica shows it
	Paused = "paused" // the replica doesn't show further commits
)

// SetReplicaLag makes the replica lag behind, for isolation "server". It returns once the replica lags. An error
// fails tb immediately.
func (d *Database) SetReplicaLag(tb testing.TB, lag string) {
	tb.Helper()
	request := struct {
		Lag string `json:"lag"`
	}{lag}
	d.act(tb, "replica", request)
}

// PromoteReplica stops the server of the database and promotes the replica, which takes the place of this server. An
// error fails tb immediately.
func (d *Database) PromoteReplica(tb testing.TB) {
	tb.Helper()
	d.act(tb, "promote", nil)
}

func (d *Database) act(tb testing.TB, action string, request any) {
	tb.Helper()
	var answer struct{}
	err := d.server.call("POST", "/v1/databases/"+url.PathEscape(d.Name)+"/"+action, request, &answer)
	if err != nil {
		tb.Fatalf("pgfresh: %v", err)
	}
}
