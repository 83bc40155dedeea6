package pgserver

import "strings"

// mainConf is written once, by initdb's side; it is the user's file.
const mainConf = `# Your settings for the PostgreSQL server that Leat runs. They win over leat.conf,
# which is written anew at every start. Port, socket folder, wal_level and logging
# are set by Leat on the command line.
include 'leat.conf'

`

// probed picks from initdb's settings the one that it found out by trying: not
// every container has a usable /dev/shm.
func probed(conf string) string {
	for line := range strings.Lines(conf) {
		if strings.HasPrefix(line, "dynamic_shared_memory_type") {
			return line
		}
	}
	return ""
}

// defaults suit a broker on a small machine that it shares with others.
const defaults = `# Written by Leat at every start: put your settings into postgresql.conf.

max_connections = 100
shared_buffers = 128MB
superuser_reserved_connections = 3

# Few, spread out checkpoints: every first change of a page after one costs a
# full page in the log.
checkpoint_timeout = 10min
max_wal_size = 2GB
min_wal_size = 256MB
wal_compression = off

# Each broker holds one temporary slot. The bound keeps a stuck one from
# filling the disk.
max_wal_senders = 20
max_replication_slots = 20
max_slot_wal_keep_size = 4GB

# Queue tables turn over fast: look at them often, and clean without pauses.
autovacuum_naptime = 10s
autovacuum_vacuum_cost_delay = 1ms

# Disks are solid these days. Queries are short: parallel workers and compiled
# plans only cost them.
random_page_cost = 1.1
max_parallel_workers_per_gather = 0
jit = off

timezone = 'UTC'
log_timezone = 'UTC'
datestyle = 'iso, mdy'
lc_messages = 'C'
lc_monetary = 'C'
lc_numeric = 'C'
lc_time = 'C'
default_text_search_config = 'pg_catalog.simple'
`
