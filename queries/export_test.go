package queries

// HistorySQL is for looking at its plan.
const HistorySQL = historySQL
