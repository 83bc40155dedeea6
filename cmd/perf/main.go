package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

var ctx = context.Background()

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func cpu(pid int) time.Duration {
	b := must(os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid)))
	var ns int64
	fmt.Sscan(strings.Fields(string(b))[0], &ns)
	return time.Duration(ns)
}

func main() {
	db := flag.String("db", "perf", "")
	n := flag.Int("n", 1000, "batches")
	size := flag.Int("batch", 100, "")
	mode := flag.String("mode", "ours", "")
	fifo := flag.Bool("fifo", false, "")
	pgss := flag.Bool("pgss", false, "")
	prof := flag.String("prof", "", "")
	flag.Parse()
	conn := must(pgx.Connect(ctx, "postgres://postgres@127.0.0.1:54377/"+*db))
	must(conn.Exec(ctx, "create extension if not exists pg_stat_statements"))
	var pid int
	must(0, conn.QueryRow(ctx, "select pg_backend_pid()").Scan(&pid))
	payload := []byte(strings.Repeat("x", 256))
	payloads := make([][]byte, *size)
	keys := make([]string, *size)
	ones := make([]int32, *size)
	actors := make([]string, *size)
	for i := range payloads {
		payloads[i] = payload
		keys[i] = "key-1"
		ones[i] = 1
		actors[i] = "127.0.0.1"
	}
	var lsn func() int64 = func() int64 {
		var l int64
		must(0, conn.QueryRow(ctx, `select (pg_current_wal_insert_lsn() - '0/0')::bigint`).Scan(&l))
		return l
	}
	measure := func(name string, f func()) {
		must(conn.Exec(ctx, "select pg_stat_statements_reset()"))
		if *prof == name {
			cmd := exec.Command("perf", "record", "-F", "4000", "-g", "-o", "/tmp/perfpg/p.data", "-p", fmt.Sprint(pid))
			must(0, cmd.Start())
			time.Sleep(500 * time.Millisecond)
			defer func() { cmd.Process.Signal(os.Interrupt); cmd.Wait() }()
		}
		w, c, t := lsn(), cpu(pid), time.Now()
		f()
		d := time.Since(t)
		c = cpu(pid) - c
		w = lsn() - w
		total := float64(*n * *size)
		fmt.Printf("%-10s %6.2f us cpu/msg  %6.2f us elapsed/msg  %6.1f WAL B/msg\n", name, float64(c.Nanoseconds())/1e3/total, float64(d.Nanoseconds())/1e3/total, float64(w)/total)
		if *pgss {
			rows := must(conn.Query(ctx, `select round((total_exec_time*1000/$1)::numeric,2)::float8, calls, left(regexp_replace(query,'\s+',' ','g'),110) from pg_stat_statements order by 1 desc limit 12`, total))
			for rows.Next() {
				var us float64
				var calls int64
				var q string
				must(0, rows.Scan(&us, &calls, &q))
				fmt.Printf("      %6.2f %6d %s\n", us, calls, q)
			}
		}
	}
	switch *mode {
	case "ours":
		qmode := "standard"
		if *fifo {
			qmode = "fifo"
		}
		var ch int32
		must(conn.Exec(ctx, `select leat.make_partitions()`))
		must(0, conn.QueryRow(ctx, `insert into leat.channels (name, kind, mode, lease, max_deliveries, retry_strategy, base_delay, max_delay, jitter, non_retryable, dead_letter_expired, dedup_window, priority_ageing, declared_at, epoch) values ('q'||clock_timestamp(), 'queue', $1, '30s', 5, 'exponential','1s','30s',0.2,'{}',false,'10min','0',now(),1) returning id`, qmode).Scan(&ch))
		chs := make([]int32, *size)
		for i := range chs {
			chs[i] = ch
		}
		measure("publish", func() {
			for range *n {
				var ids []int64
				var st []int16
				must(0, conn.QueryRow(ctx, `select ids, statuses from leat.publish_many($1,$2,$3,$4,null,null,null,null,null,null,null,null,$5,false)`, ones, chs, keys, payloads, actors).Scan(&ids, &st))
			}
		})
		var ds, ms []int64
		measure("claim", func() {
			for range *n {
				rows := must(conn.Query(ctx, `select * from leat.claim($1,$2,$3,$4,null,null)`, ch, []int32{int32(*size)}, []*string{nil}, []string{"c"}))
				for rows.Next() {
					var rq int
					var d int64
					var lu time.Time
					var ids []int64
					var keys []string
					var prios []int16
					var att []int32
					var ats []time.Time
					var cts []*string
					var hs, ps [][]byte
					must(0, rows.Scan(&rq, &d, &lu, &ids, &keys, &prios, &att, &ats, &cts, &hs, &ps))
					ms = append(ms, ids...)
					ds = append(ds, d)
				}
				must(0, rows.Err())
			}
		})
		if len(ms) != *n**size {
			panic(len(ms))
		}
		measure("ack", func() {
			for i := range *n {
				var st []int16
				must(0, conn.QueryRow(ctx, `select leat.ack_many($1,$2,$3,$4,$5)`, []int32{ch}, []string{"127.0.0.1"}, []int64{ds[i]}, []int32{1}, ms[i**size:(i+1)**size]).Scan(&st))
				if st != nil {
					panic("status")
				}
			}
		})
	case "proto":
		must(conn.Exec(ctx, string(must(os.ReadFile("/tmp/perfpg/proto.sql")))))
		measure("publish", func() {
			for range *n {
				var ids []int64
				must(0, conn.QueryRow(ctx, `select publish(1,$1,$2)`, keys, payloads).Scan(&ids))
			}
		})
		var ls []int64
		var ms []int64
		measure("claim", func() {
			for range *n {
				rows := must(conn.Query(ctx, `select * from claim(1,$1)`, *size))
				for rows.Next() {
					v := rows.RawValues()
					ls = append(ls, i64(v[0]))
					ms = append(ms, i64(v[1]))
				}
				must(0, rows.Err())
			}
		})
		measure("ack", func() {
			for i := range *n {
				var st int
				must(0, conn.QueryRow(ctx, `select ack($1,$2)`, ls[i**size], ms[i**size:(i+1)**size]).Scan(&st))
			}
		})
	case "copy":
		must(conn.Exec(ctx, `drop table if exists public.floor; create table public.floor (like leat.events including defaults including indexes); alter table public.floor alter position drop default`))
		p := int64(0)
		measure("copy", func() {
			for range *n {
				must(conn.CopyFrom(ctx, pgx.Identifier{"public", "floor"}, []string{"position", "channel_id", "kind", "routing_key", "payload", "actor"}, pgx.CopyFromSlice(*size, func(i int) ([]any, error) {
					p++
					return []any{p, int32(1), "message.published", "key-1", payload, "127.0.0.1"}, nil
				})))
			}
		})
	}
}

func i64(b []byte) int64 {
	var v int64
	for _, x := range b {
		v = v<<8 | int64(x)
	}
	return v
}
