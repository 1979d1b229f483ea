package pgfreshtest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// remoteHost stands for another machine.
const remoteHost = "127.0.0.2"

// A remoteServer is a pgfresh server that other machines can use. PGFRESH_CONTROL names it.
type remoteServer struct {
	*testing.T
	folder   string
	options  []string
	port     int
	root     string
	process  *exec.Cmd
	lifeline io.Closer
}

func newRemoteServer(t *testing.T, folder string, options ...string) *remoteServer {
	s := &remoteServer{T: t, folder: folder, options: options}
	s.start()
	t.Cleanup(s.stop)
	t.Setenv("PGFRESH_HOLDER", "")
	t.Setenv("PGFRESH_CONTROL", fmt.Sprintf("https://:far%%3Aaway@%s:%d", remoteHost, s.port))
	t.Setenv("PGSSLROOTCERT", s.root)
	return s
}

// start starts the server. A restarted server keeps its port.
func (s *remoteServer) start() {
	s.Helper()
	binary, err := find(os.Getenv("PGFRESH_BIN"))
	if err != nil {
		s.Fatal(err)
	}
	words := []string{"serve", "--json", "--listen", remoteHost, "--port", fmt.Sprint(s.port)}
	s.process = exec.Command(binary, append(words, s.options...)...)
	s.process.Dir = s.folder
	s.process.Env = append(os.Environ(), "PGFRESH_CONTROL=", "PGFRESH_PASSWORD=far:away")
	s.process.Stderr = os.Stderr
	s.lifeline, err = s.process.StdinPipe()
	output, noOutput := s.process.StdoutPipe()
	if err := errors.Join(err, noOutput, s.process.Start()); err != nil {
		s.Fatal(err)
	}
	ready := struct {
		Port int
		Root string `json:"root_certificate"`
	}{Root: filepath.Join(s.folder, "server.crt")}
	if err := json.NewDecoder(output).Decode(&ready); err != nil {
		s.Fatal(err)
	}
	s.port, s.root = ready.Port, ready.Root
}

func (s *remoteServer) stop() {
	s.lifeline.Close()
	s.process.Wait()
}

// refuses checks that the client fails with an error that starts with begin and ends with end.
func refuses(t *testing.T, begin, end string) {
	t.Helper()
	_, err := connect()
	if err == nil || !strings.HasPrefix(err.Error(), begin) || !strings.HasSuffix(err.Error(), end) {
		t.Errorf("the error is %q, want %q … %q", err, begin, end)
	}
}

func TestLeasesEndWithRemoteProcess(t *testing.T) {
	remote := newRemoteServer(t, t.TempDir())
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), joinOnly+"=lease")
	process.Stderr = os.Stderr
	output, err := process.StdoutPipe()
	if err := errors.Join(err, process.Start()); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url := strings.TrimSpace(line)
	begin := fmt.Sprintf("postgresql://postgres:far%%3Aaway@%s:%d/", remoteHost, remote.port)
	name, parameters, _ := strings.Cut(strings.TrimPrefix(url, begin), "?")
	if !strings.HasPrefix(url, begin) || !strings.HasPrefix(parameters, "sslmode=verify-full&sslrootcert=%2F") {
		t.Errorf("the URL is %s", url)
	}
	server, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.reset(name, resetRequest{}); err != nil {
		t.Error(err)
	}
	process.Process.Kill()
	process.Wait()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		_, err := server.reset(name, resetRequest{})
		if err != nil && strings.Contains(err.Error(), "is not leased") {
			return
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the lease has not ended: %v", err)
		}
	}
}

func TestRemoteServerRefusesWrongCertificates(t *testing.T) {
	remote := newRemoteServer(t, t.TempDir())
	former, err := os.ReadFile(remote.root)
	if err != nil {
		t.Fatal(err)
	}
	remote.stop()
	remote.start()
	file := filepath.Join(remote.folder, "former.crt")
	if err := os.WriteFile(file, former, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PGSSLROOTCERT", file)
	refuses(t, fmt.Sprintf("could not talk to pgfresh at %s:%d: ", remoteHost, remote.port), "\nHINT:  "+untrusted)
	t.Setenv("PGSSLROOTCERT", "/nowhere/root.crt")
	refuses(t, "cannot read the certificate \"/nowhere/root.crt\", which PGSSLROOTCERT names: no such file or directory", "")
}

func TestRemoteServerRefusesWrongPasswords(t *testing.T) {
	remote := newRemoteServer(t, t.TempDir())
	t.Setenv("PGFRESH_CONTROL", fmt.Sprintf("https://:near@%s:%d", remoteHost, remote.port))
	refuses(t, "the token is missing or wrong", "\nHINT:  Check the password in PGFRESH_CONTROL.")
}

func TestUnreachableRemoteServerIsNamed(t *testing.T) {
	listener, err := net.Listen("tcp", remoteHost+":0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	t.Setenv("PGFRESH_CONTROL", "https://:secret@"+address)
	t.Setenv("PGSSLROOTCERT", "")
	refuses(t, "could not talk to pgfresh at "+address+": ", "\nHINT:  "+unreachable)
}

func TestRestartedRemoteServerEndsHolder(t *testing.T) {
	folder := t.TempDir()
	words := "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=pgfresh" +
		" -addext subjectAltName=IP:" + remoteHost +
		" -addext basicConstraints=critical,CA:FALSE -keyout server.key -out server.crt"
	openssl := exec.Command("openssl", strings.Fields(words)...)
	openssl.Dir = folder
	if output, err := openssl.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	remote := newRemoteServer(t, folder, "--tls-cert", "server.crt", "--tls-key", "server.key")
	server, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	request := leaseRequest{Holder: server.holder}
	if _, err := server.lease(request); err != nil {
		t.Fatal(err)
	}
	remote.stop()
	remote.start()
	_, err = server.lease(request)
	if want := "\nHINT:  The server was restarted. Start the tests again."; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("the error is %v, want %q", err, want)
	}
}
