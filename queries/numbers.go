package queries

// A list of ids goes to PostgreSQL as plain numbers: without prepared statements,
// as behind some poolers, pgx knows no list of another type.

func int64s[T ~int64](list []T) []int64 {
	numbers := make([]int64, len(list))
	for i, n := range list {
		numbers[i] = int64(n)
	}
	return numbers
}

func int32s[T ~int32](list []T) []int32 {
	if list == nil {
		return nil // null: any
	}
	numbers := make([]int32, len(list))
	for i, n := range list {
		numbers[i] = int32(n)
	}
	return numbers
}
