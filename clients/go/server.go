package pgfreshtest

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// serve is what pgfresh is asked for.
var serve = []string{"serve", "--shared", "--json"}

// A server hands out databases.
type server struct {
	api
	holder string // whom its databases belong to; may be empty

	// pgfresh goes when this is closed, which the kernel does when this process ends. It must stay reachable: what is not,
	// the garbage collector closes.
	lifeline io.Closer
}

// join returns the server of this process. All calls share one, or the error that there is none.
var join = sync.OnceValues(connect)

func connect() (*server, error) {
	skipTestCache()
	if control := os.Getenv("PGFRESH_CONTROL"); control != "" {
		return existing(control, os.Getenv("PGFRESH_HOLDER"))
	}
	path, err := find(os.Getenv("PGFRESH_BIN"))
	if err != nil {
		return nil, err
	}
	return start(exec.Command(path, serve...))
}

// skipTestCache keeps "go test" from taking this run's result for a later one. Go compares files of the module and variables
// that the tests have read, and a template depends on more: its setup, other folders, PostgreSQL. Go stores no result
// without the list of what was read. It removes the folder of that file itself.
func skipTestCache() {
	if list := flag.Lookup("test.testlogfile"); list != nil && list.Value.String() != "" {
		os.Remove(list.Value.String()) // An error leaves the cache as it is.
	}
}

// find is the program that PGFRESH_BIN names, or else the one on PATH.
func find(named string) (string, error) {
	binary := named
	if binary == "" {
		binary = "pgfresh"
	}
	path, err := exec.LookPath(binary)
	switch {
	case err == nil:
		return path, nil
	case named != "" && exists(named):
		return "", notRun(named, errors.New("it is not an executable file"))
	case named != "":
		return "", fmt.Errorf("cannot find %q, which PGFRESH_BIN names\n%s", named, set)
	default:
		return "", fmt.Errorf("cannot find %q\nHINT:  "+
			"Install it with the script of its release, sh pgfresh-install.sh, or set PGFRESH_BIN to where it is.", binary)
	}
}

// What to do where the binary is another one.
const (
	set   = "HINT:  Set PGFRESH_BIN to where pgfresh is, or unset it."
	check = "HINT:  Check that it is pgfresh, in the version of this client. PGFRESH_BIN sets another one."
)

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func notRun(path string, err error) error {
	return fmt.Errorf("cannot run %q: %w\n%s", path, err, set)
}

// existing is the server that somebody else started.
func existing(control, holder string) (*server, error) {
	if address, err := url.Parse(control); err == nil {
		if secret, given := address.User.Password(); given {
			return &server{api: newAPI(address.Host, secret), holder: holder}, nil
		}
	}
	return nil, errors.New("cannot read PGFRESH_CONTROL: it is not http://:SECRET@HOST:PORT")
}

// start runs pgfresh and waits for the line that says where its server is. It may have a template to build first, which
// takes as long as the migrations do; what it does and what goes wrong, it says itself.
func start(command *exec.Cmd) (*server, error) {
	command.Stderr = os.Stderr
	lifeline, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		var at *fs.PathError // It names the path once more.
		if errors.As(err, &at) {
			err = at.Err
		}
		return nil, notRun(command.Path, err)
	}
	line, err := bufio.NewReader(output).ReadBytes('\n')
	if err != nil {
		command.Wait() // It tells in ProcessState what its error would say.
		return nil, fmt.Errorf("pgfresh ended with %s before it was ready\nHINT:  Its own message is on standard error.",
			strings.Replace(command.ProcessState.String(), "exit status", "exit code", 1))
	}
	server, err := read(line, command.Path)
	if err != nil {
		lifeline.Close()
		// What is not pgfresh need not end by itself.
		defer time.AfterFunc(10*time.Second, func() { command.Process.Kill() }).Stop()
		command.Wait() // It has said all then.
		return nil, err
	}
	server.lifeline = lifeline
	return server, nil
}

// read is the server that the line of the binary tells of.
func read(line []byte, binary string) (*server, error) {
	var place struct {
		said
		HTTPURL  string `json:"http_url"`
		Password string `json:"password"`
		Holder   string `json:"holder"`
	}
	unreadable := json.Unmarshal(line, &place)
	if err := place.err(); err != nil {
		return nil, err
	}
	address, err := url.Parse(place.HTTPURL)
	if unreadable != nil || err != nil || address.Host == "" {
		return nil, fmt.Errorf("could not read what %q printed\n%s", binary, check)
	}
	return &server{api: newAPI(address.Host, place.Password), holder: place.Holder}, nil
}
