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
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"
)

// serve has the arguments of the binary.
var serve = []string{"serve", "--shared", "--json"}

// A server is a pgfresh server that leases databases.
type server struct {
	api
	holder string // process whose databases pgfresh releases when the process ends; empty within "pgfresh run"

	// lifeline is the standard input of the binary, or the holder's connection to another machine. When the lifeline
	// closes, the binary or the holder ends. The kernel closes the lifeline when this process ends. This field keeps
	// the lifeline reachable, because the garbage collector would close it.
	lifeline io.Closer
}

// join returns the server of this process. All calls share one server or one error.
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

// skipTestCache prevents "go test" from caching the result of this run. Go compares the module's files and the
// variables that the tests have read, but a template depends on more: its setup, other folders, PostgreSQL. Go
// doesn't cache a result without the file that lists these reads, so skipTestCache removes the file. Go itself
// removes the folder of the file.
func skipTestCache() {
	if list := flag.Lookup("test.testlogfile"); list != nil && list.Value.String() != "" {
		os.Remove(list.Value.String()) // After an error, Go caches the result.
	}
}

// find returns the path of the binary: named, the value of PGFRESH_BIN, or if named is empty, pgfresh on PATH.
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
		return "", fmt.Errorf("cannot find %q\nHINT:  %s", binary, installHint(runtime.GOOS))
	}
}

// installCommands maps runtime.GOOS to the command that installs pgfresh from a checkout. "make install" isn't for
// macOS, because its scripts need a newer bash than macOS has.
var installCommands = map[string]string{
	"linux":  "make install",
	"darwin": "cargo install --locked --path crates/pgfresh",
}

// installHint returns the hint for a missing binary. The parameter system is a value of runtime.GOOS.
func installHint(system string) string {
	if command := installCommands[system]; command != "" {
		return fmt.Sprintf("Run %q in a checkout of pgfresh, or set PGFRESH_BIN to where it is.", command)
	}
	return "pgfresh runs on Linux and macOS, not on " + system +
		". Run the tests in WSL 2, or set PGFRESH_CONTROL to a server on another machine."
}

// Hints for a binary that is missing, and for a binary that isn't pgfresh.
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

// secretForm matches secrets that a header can contain.
var secretForm = regexp.MustCompile("^[!-~]+$")

// existing returns the server at control, which a parent process has started or which runs on another machine.
func existing(control, holder string) (*server, error) {
	if address, err := url.Parse(control); err == nil {
		secret, _ := address.User.Password()
		isComplete := address.Hostname() != "" && address.Port() != "" && secretForm.MatchString(secret)
		switch {
		case isComplete && address.Scheme == "http":
			return &server{api: newAPI(address.Host, secret, nil), holder: holder}, nil
		case isComplete && address.Scheme == "https":
			return remote(address.Host, secret, holder)
		}
	}
	return nil, errors.New("cannot read PGFRESH_CONTROL: it is not http[s]://:SECRET@HOST:PORT")
}

// start runs the binary and waits for the line with the address of the server. The binary may build a template first,
// which takes as long as the migrations. The binary reports progress and errors on standard error.
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
		var at *fs.PathError // Its text would repeat the path.
		if errors.As(err, &at) {
			err = at.Err
		}
		return nil, notRun(command.Path, err)
	}
	line, err := bufio.NewReader(output).ReadBytes('\n')
	if err != nil {
		end(command, lifeline)
		return nil, fmt.Errorf("pgfresh ended with %s before it was ready\nHINT:  Its own message is on standard error.",
			strings.Replace(command.ProcessState.String(), "exit status", "exit code", 1))
	}
	server, err := parse(line, command.Path)
	if err != nil {
		end(command, lifeline) // Afterwards, standard error is complete.
		return nil, err
	}
	server.lifeline = lifeline
	return server, nil
}

// end closes the lifeline and waits for the program. It kills a program that doesn't end within 10 s, because
// PGFRESH_BIN may name a program that isn't pgfresh.
func end(command *exec.Cmd, lifeline io.Closer) {
	lifeline.Close()
	defer time.AfterFunc(10*time.Second, func() { command.Process.Kill() }).Stop()
	command.Wait() // ProcessState has the result.
}

// parse returns the server that the line from the binary describes, or the error in the line.
func parse(line []byte, binary string) (*server, error) {
	var fields struct {
		errorBody
		HTTPURL  string `json:"http_url"`
		Password string `json:"password"`
		Holder   string `json:"holder"`
	}
	unreadable := json.Unmarshal(line, &fields)
	if err := fields.err(); err != nil {
		return nil, err
	}
	address, err := url.Parse(fields.HTTPURL)
	if unreadable != nil || err != nil || address.Host == "" {
		return nil, fmt.Errorf("could not read what %q printed\n%s", binary, check)
	}
	return &server{api: newAPI(address.Host, fields.Password, nil), holder: fields.Holder}, nil
}
