// Program actionlint checks workflows of GitHub Actions. It is upstream's own command, pinned by go.mod.
package main

import (
	"os"

	"github.com/rhysd/actionlint"
)

func main() {
	command := actionlint.Command{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	os.Exit(command.Main(os.Args))
}
