package queries

import "github.com/jackc/pgx/v5"

// pageBytes bounds the payloads, headers and lists of ids of a page, as they are
// stored: what lies beyond is never fetched, and comes with the next page. A
// single larger row is a page of its own.
const pageBytes = 8 << 20

// sized is a row of a page, and how many rows the page would have if payloads
// weighed nothing.
type sized[T any] struct {
	row   T
	total int
}

// withTotal makes a scan function of one that has the total as its last column.
func withTotal[T any](scan func(row pgx.CollectableRow, total *int) (T, error)) pgx.RowToFunc[sized[T]] {
	return func(row pgx.CollectableRow) (s sized[T], err error) {
		s.row, err = scan(row, &s.total)
		return s, err
	}
}

// cut drops the row that was read to see whether there is another page, and
// gives the cursor of that page.
func cut[T any](rows []sized[T], limit int, id func(T) int64) (page []T, next string) {
	for _, r := range rows[:min(len(rows), limit)] {
		page = append(page, r.row)
	}
	if len(page) > 0 && rows[0].total > len(page) {
		next = cursor(id(page[len(page)-1])).String()
	}
	return page, next
}

func checkPage(from string, wanted int) (after cursor, limit int, err error) {
	if after, err = parseCursor(from); err != nil {
		return 0, 0, err
	}
	limit, err = checkLimit(wanted)
	return after, limit, err
}
