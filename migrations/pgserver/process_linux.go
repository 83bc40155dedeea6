package pgserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// dieWithParent has the kernel ask the child to shut down when we die.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr.Pdeathsig = sigFast }

// runsIn reports whether a process is a server that works in a folder.
func runsIn(pid int, folder string) bool {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	cwd, err := os.Readlink(filepath.Join(proc, "cwd"))
	if err != nil {
		return false
	}
	resolved, err := filepath.EvalSymlinks(folder)
	if err != nil || cwd != resolved {
		return false
	}
	comm, err := os.ReadFile(filepath.Join(proc, "comm"))
	return err == nil && strings.TrimSpace(string(comm)) == "postgres"
}

// childrenOf lists the children of a process.
func childrenOf(parent int) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well formed
	var out []int
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it ended meanwhile
		}
		// "pid (name) state ppid …", where the name may hold spaces and brackets
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			out = append(out, firstNumber(file))
		}
	}
	return out
}
