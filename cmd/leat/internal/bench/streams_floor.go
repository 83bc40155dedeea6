package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"golang.org/x/sync/errgroup"

	"leat/commands"
)

// bareFlow is a table like the log, and a tail of it that decodes what comes and
// hands it on, in this process.
type bareFlow struct {
	conn *pgx.Conn // of the writer
	url  string
	key  string
	fan  *fan
}

// fan is one tail for all readers.
type fan struct {
	running atomic.Bool
	readers chan chan [][]byte // that join
}

const publicationSQL = `
drop publication if exists floor_tail;
create publication floor_tail for table floor.events (position, payload)
    with (publish = 'insert', publish_via_partition_root = true)`

func (l *lab) bareFlow(ctx context.Context) (flow, error) {
	if _, err := l.main.node.Pool.Exec(ctx, publicationSQL); err != nil {
		return nil, fmt.Errorf("make publication of the floor: %w", err)
	}
	f := &bareFlow{url: l.main.url, key: l.keys[0], fan: &fan{readers: make(chan chan [][]byte)}}
	conns, err := l.floors.open(ctx, 1, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.PgConn().CopyFrom(ctx, bytes.NewReader(copyData(1, f.key, l.payload(0))), copyFloorSQL)
		return err
	})
	if err != nil {
		return nil, err
	}
	f.conn = conns[0]
	return f, nil
}

func (f *bareFlow) write(ctx context.Context, messages []commands.Message) error {
	data := copyData(len(messages), f.key, messages[0].Payload)
	_, err := f.conn.PgConn().CopyFrom(ctx, bytes.NewReader(data), copyFloorSQL)
	return err
}

// read shares the tail of the first reader that came.
func (f *bareFlow) read(ctx context.Context, begun func(), see func([][]byte) error) error {
	mine := make(chan [][]byte, 1024)
	if f.fan.running.CompareAndSwap(false, true) {
		return f.fan.serve(ctx, f.url, mine, begun, see)
	}
	select {
	case f.fan.readers <- mine:
	case <-ctx.Done():
		return ctx.Err()
	}
	begun()
	return drainTo(ctx, mine, see)
}

// serve tails for all readers, and is one.
func (f *fan) serve(ctx context.Context, url string, mine chan [][]byte, begun func(), see func([][]byte) error) error {
	conn, start, err := openBareTail(ctx, url)
	if err != nil {
		return err
	}
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // the slot goes with it
		return f.pump(running, conn, start, mine)
	})
	begun()
	group.Go(func() error { return drainTo(running, mine, see) })
	return group.Wait()
}

func drainTo(ctx context.Context, from chan [][]byte, see func([][]byte) error) error {
	for {
		select {
		case payloads := <-from:
			if err := see(payloads); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// openBareTail makes a slot and begins to read it.
func openBareTail(ctx context.Context, url string) (*pgconn.PgConn, pglogrepl.LSN, error) {
	config, err := pgconn.ParseConfig(url)
	if err != nil {
		return nil, 0, fmt.Errorf("parse database URL: %w", err)
	}
	config.RuntimeParams["replication"] = "database"
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return nil, 0, fmt.Errorf("connect for replication: %w", err)
	}
	slot := "leat_bench_" + strings.ToLower(rand.Text()[:10])
	made, err := pglogrepl.CreateReplicationSlot(ctx, conn, slot, "pgoutput", pglogrepl.CreateReplicationSlotOptions{Temporary: true})
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("create slot: %w", err), conn.Close(ctx))
	}
	start, err := pglogrepl.ParseLSN(made.ConsistentPoint)
	if err == nil {
		err = pglogrepl.StartReplication(ctx, conn, slot, start, pglogrepl.StartReplicationOptions{
			PluginArgs: []string{"proto_version '1'", "publication_names 'floor_tail'", "binary 'true'"},
		})
	}
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("start replication: %w", err), conn.Close(ctx))
	}
	return conn, start, nil
}

// bareStatus is how often the server is told what was received.
const bareStatus = time.Second

func (f *fan) pump(ctx context.Context, conn *pgconn.PgConn, at pglogrepl.LSN, first chan [][]byte) error {
	readers := []chan [][]byte{first}
	told := time.Now()
	var payloads [][]byte
	for {
		if time.Since(told) > bareStatus {
			if err := pglogrepl.SendStandbyStatusUpdate(ctx, conn, pglogrepl.StandbyStatusUpdate{WALWritePosition: at}); err != nil {
				return err
			}
			told = time.Now()
		}
		select {
		case reader := <-f.readers:
			readers = append(readers, reader)
		default:
		}
		// Short, so that a new reader need not wait for a message.
		wait, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		message, err := conn.ReceiveMessage(wait)
		cancel()
		if pgconn.Timeout(err) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return err
		}
		payload, committed, end, err := bareDecode(message)
		if err != nil {
			return err
		}
		at = max(at, end)
		if payload != nil {
			payloads = append(payloads, payload)
		}
		if !committed || len(payloads) == 0 {
			continue
		}
		for _, reader := range readers {
			select {
			case reader <- payloads:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		payloads = nil
	}
}

// bareDecode is the payload of an insert, or the end of a transaction.
func bareDecode(message pgproto3.BackendMessage) (payload []byte, committed bool, end pglogrepl.LSN, err error) {
	data, ok := message.(*pgproto3.CopyData)
	if !ok || len(data.Data) == 0 || data.Data[0] != pglogrepl.XLogDataByteID {
		return nil, false, 0, nil
	}
	log, err := pglogrepl.ParseXLogData(data.Data[1:])
	if err != nil {
		return nil, false, 0, err
	}
	end = log.WALStart
	switch pglogrepl.MessageType(log.WALData[0]) {
	case pglogrepl.MessageTypeInsert:
		parsed, err := pglogrepl.Parse(log.WALData)
		if err != nil {
			return nil, false, end, err
		}
		insert, ok := parsed.(*pglogrepl.InsertMessage)
		if !ok || len(insert.Tuple.Columns) == 0 {
			return nil, false, end, nil
		}
		// The last column; what is read is only lent.
		return bytes.Clone(insert.Tuple.Columns[len(insert.Tuple.Columns)-1].Data), false, end, nil
	case pglogrepl.MessageTypeCommit:
		return nil, true, end, nil
	default:
		return nil, false, end, nil
	}
}
