package pgfreshtest

import (
	"bufio"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// A trust has the certificates that the client trusts for a server on another machine. It is nil for a local server.
type trust struct {
	roots      *x509.CertPool // nil for the system's certificates
	parameters string         // URL parameters that make drivers verify the server, too
}

// newTrust returns the certificates in file. If file is empty or "system", it returns the system's certificates.
func newTrust(file string) (*trust, error) {
	if file == "" || file == "system" {
		return &trust{parameters: "sslmode=verify-full"}, nil
	}
	text, err := os.ReadFile(file)
	roots := x509.NewCertPool()
	if err == nil && !roots.AppendCertsFromPEM(text) {
		err = errors.New("it has no certificate in PEM")
	}
	if err != nil {
		var at *fs.PathError // Its text would repeat the path.
		if errors.As(err, &at) {
			err = at.Err
		}
		return nil, fmt.Errorf("cannot read the certificate %q, which PGSSLROOTCERT names: %w", file, err)
	}
	return &trust{roots, "sslmode=verify-full&sslrootcert=" + escape(file)}, nil
}

// addTo adds the parameters that verify the server to a database URL. An empty URL stays empty.
func (t *trust) addTo(url string) string {
	switch {
	case t == nil || url == "":
		return url
	case strings.Contains(url, "?"):
		return url + "&" + t.parameters
	default:
		return url + "?" + t.parameters
	}
}

// remote returns a server on another machine. If holder is empty, remote opens a new holder, which ends with this
// process.
func remote(address, secret, holder string) (*server, error) {
	trust, err := newTrust(os.Getenv("PGSSLROOTCERT"))
	if err != nil {
		return nil, err
	}
	found := &server{api: newAPI(address, secret, trust), holder: holder}
	if holder == "" {
		found.holder, found.lifeline, err = found.hold()
	}
	return found, err
}

// hold returns a new holder, which ends when the lifeline closes.
func (a api) hold() (holder string, lifeline io.Closer, err error) {
	// The response stays open as long as the tests run, so there is no timeout.
	untimed := newClient(a.client.Transport, 0)
	response, err := a.send(untimed, "GET", "/v1/hold", nil)
	if err != nil {
		return "", nil, err
	}
	var named struct{ Holder string }
	line, err := bufio.NewReader(response.Body).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &named)
	}
	if err == nil && named.Holder == "" {
		err = errors.New("it names no holder")
	}
	if err != nil {
		response.Body.Close()
		return "", nil, a.unreadable(err)
	}
	return named.Holder, response.Body, nil
}
