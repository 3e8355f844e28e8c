-- A small shop in memory: inserts, text keys, two indexes, a join, grouping, JSON. Prints a few rows that depend on all of it.
PRAGMA cache_size = -65536;
CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT, city TEXT);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, item TEXT, amount REAL, note TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
INSERT INTO customer SELECT i, 'customer ' || (i * 7919 % 100003), 'city ' || (i * 31 % 97) FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
INSERT INTO orders
SELECT i, i * 104729 % 3000 + 1, 'item ' || (i * 2654435761 % 1009), (i * 37 % 10007) / 7.0,
       json_object('id', i, 'tags', json_array('a' || (i % 10), 'b' || (i % 7)), 'text', hex(i * 982451653))
FROM n;
CREATE INDEX orders_item ON orders (item, amount);
CREATE INDEX customer_city ON customer (city, name);
SELECT city, count(*), round(sum(amount), 2) FROM orders JOIN customer ON customer.id = orders.customer
GROUP BY city ORDER BY 3 DESC LIMIT 5;
SELECT item, group_concat(DISTINCT substr(note, 1, 20)) FROM orders WHERE amount > 1300 GROUP BY item ORDER BY item LIMIT 3;
SELECT json_extract(note, '$.tags[0]') AS tag, count(*), max(length(note)) FROM orders GROUP BY tag ORDER BY tag;
SELECT count(*) FROM (SELECT name FROM customer UNION SELECT item FROM orders);
