// Runs a command while FerretDB is running, a server with MongoDB's protocol that stores its data in PostgreSQL.
//
// DATABASE_URL is the PostgreSQL server's URL. The command gets MONGODB_URL, and this program exits with the command's
// exit code.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime/debug"

	"github.com/FerretDB/FerretDB/build/version"
	"github.com/FerretDB/FerretDB/ferretdb"
)

const module = "github.com/FerretDB/FerretDB"

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "ferretdb:", err)
	}
	os.Exit(code)
}

func run(command []string) (int, error) {
	if len(command) == 0 {
		return 2, errors.New("usage: ferretdb COMMAND [ARGUMENT...]")
	}
	name()
	server, err := ferretdb.New(&ferretdb.Config{
		Listener:      ferretdb.ListenerConfig{TCP: "127.0.0.1:0"},
		Handler:       "postgresql",
		PostgreSQLURL: os.Getenv("DATABASE_URL"),
		Logger:        slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return 1, err
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	child := exec.Command(command[0], command[1:]...)
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	child.Env = append(os.Environ(), "MONGODB_URL="+server.MongoDBURI())
	err = child.Run()
	stop()
	<-ended
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 127, err
	}
	return 0, nil
}

// name tells FerretDB its version, because a program that embeds FerretDB must supply it.
func name() {
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range build.Deps {
			if dependency.Path == module {
				version.Get().Version = dependency.Version
			}
		}
	}
}
