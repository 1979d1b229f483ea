package pgfreshtest

import (
	"net/url"
	"testing"
)

// Lags of a replica. A time with its unit, such as "500ms", is a lag, too: the replica shows each commit after this time.
const (
	NoLag  = "none"   // a commit returns once the replica shows it
	Paused = "paused" // the replica shows no further commit
)

// SetReplicaLag makes the replica lag behind, for isolation "server". It returns once the replica does so. An error fails tb at
// once.
func (d *Database) SetReplicaLag(tb testing.TB, lag string) {
	tb.Helper()
	request := struct {
		Lag string `json:"lag"`
	}{lag}
	d.act(tb, "replica", request)
}

// PromoteReplica stops the server of the database, and its replica takes its place. An error fails tb at once.
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
