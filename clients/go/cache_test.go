package pgfreshtest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// inner is the environment variable that TestCacheSkipsTestsWithDatabases sets to enable the tests that it runs.
const inner = "PGFRESHTEST_CACHE"

func TestCacheSkipsTestsWithDatabases(t *testing.T) {
	t.Setenv("PGFRESH_CONTROL", "http://:secret@127.0.0.1:1")
	t.Setenv(inner, "1")
	for name, cached := range map[string]bool{"TestWithoutDatabase": true, "TestWithDatabase": false} {
		var output []byte
		for i := 0; i < 2; i++ {
			var err error
			if output, err = exec.Command("go", "test", "-run", "^"+name+"$", ".").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, output)
			}
		}
		if got := strings.Contains(string(output), "(cached)"); got != cached {
			t.Errorf("%s: the second run is cached: %v, want %v: %s", name, got, cached, output)
		}
	}
}

func TestWithoutDatabase(t *testing.T) {
	if os.Getenv(inner) == "" {
		t.Skip("TestCacheSkipsTestsWithDatabases runs this test")
	}
}

func TestWithDatabase(t *testing.T) {
	if os.Getenv(inner) == "" {
		t.Skip("TestCacheSkipsTestsWithDatabases runs this test")
	}
	if _, err := join(); err != nil {
		t.Fatal(err)
	}
}
