# Data frames grouped, merged and sorted, a linear model, strings taken apart.
set.seed(7)
rows <- 60000L
table <- data.frame(key = sample.int(900L, rows, TRUE), word = sprintf("w%d", sample.int(5000L, rows, TRUE)),
                    x = (seq_len(rows) * 7919L) %% 1009L)
table$y <- 3 * table$x + (seq_len(rows) %% 17L)
sums <- aggregate(cbind(x, y) ~ key, data = table, FUN = sum)
joined <- merge(table, sums, by = "key")
joined <- joined[order(joined$y.x, joined$word), ]
fit <- lm(y ~ x, data = table)
parts <- unlist(strsplit(paste(table$word, collapse = " "), " ", fixed = TRUE))
counts <- sort(table(parts), decreasing = TRUE)
lists <- lapply(split(table$x, table$key), function(values) quantile(values, c(0.1, 0.5, 0.9)))
cat("rows", nrow(joined), "words", length(counts), "groups", length(lists), "slope", round(coef(fit)[["x"]], 6), "\n")
