package dbtest

import "syscall"

// inMemory is a file system in memory, "" if it has too little room: 4 GiB, as tests
// of several packages run side by side. Each database is some hundred small files, made
// and removed soon, which costs several times as much processor time on a disk.
func inMemory() string {
	const folder, room, mayWrite = "/dev/shm", 4 << 30, 2
	var fs syscall.Statfs_t
	if err := syscall.Statfs(folder, &fs); err != nil || int64(fs.Bavail)*fs.Bsize < room || syscall.Access(folder, mayWrite) != nil {
		return ""
	}
	return folder
}
