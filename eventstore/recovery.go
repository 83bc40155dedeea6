package eventstore

import "github.com/jackc/pgx/v5/pgconn"

// recovering reports whether a server refused because it is a standby, which
// has no unlogged tables. The routine tells it from other uses of the code.
func recovering(pg *pgconn.PgError) bool {
	return pg.Code == "0A000" && pg.Routine == "get_relation_info"
}

// KeepConnection is for OnPgError of a pgconn.Config. A session that may not
// write is given up, as one that the server ends: the server behind the address
// may be another by now, and a pool would hold on to the old one.
func KeepConnection(_ *pgconn.PgConn, err *pgconn.PgError) bool {
	return err.SeverityUnlocalized != "FATAL" && err.Code != "25006" && !recovering(err)
}
