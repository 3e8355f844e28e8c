# Counts, joins and sorts the words of a table with associative arrays.
{ for (i = 1; i <= NF; i++) { count[$i]++; where[$i] = where[$i] NR "," } total += NF; cell[NR % 5000, NF] = $1 $2 }
END {
  n = asorti(count, names)
  for (i = 1; i <= n; i++) { sum = (sum * 31 + count[names[i]] + length(where[names[i]])) % 1000003 }
  for (key in cell) { split(key, part, SUBSEP); size += length(cell[key]) + part[2] }
  print "words", total, "distinct", n, "sum", sum, "cells", size
}
