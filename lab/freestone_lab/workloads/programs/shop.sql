-- A shop in memory: rows by recursion, indexes, joins, windows, full-text search, JSON.
PRAGMA journal_mode = off;
CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT, price REAL, tags TEXT);
CREATE TABLE sale(id INTEGER PRIMARY KEY, item INTEGER, amount INTEGER, buyer TEXT);
WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
  INSERT INTO item SELECT i, printf('item %x of %d', i * 7919 % 65537, i % 113), (i * 37 % 10007) / 100.0,
    json_array(i % 7, printf('t%d', i % 31), i % 3 = 0) FROM n;
WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < 120000)
  INSERT INTO sale SELECT i, (i * 48271) % 20000 + 1, i % 9 + 1, printf('buyer-%d', (i * 16807) % 5003) FROM n;
CREATE INDEX sale_item ON sale(item);
CREATE INDEX sale_buyer ON sale(buyer, item);
SELECT 'sum', count(*), round(sum(s.amount * i.price), 2) FROM sale s JOIN item i ON i.id = s.item;
SELECT 'best', buyer, n FROM (SELECT buyer, count(*) AS n FROM sale GROUP BY buyer) ORDER BY n DESC, buyer LIMIT 3;
SELECT 'tags', value, count(*) FROM item, json_each(item.tags) GROUP BY value ORDER BY count(*) DESC, value LIMIT 4;
SELECT 'joined', count(*), sum(length(list)) FROM (SELECT group_concat(name, ';') AS list
  FROM item i JOIN sale s ON s.item = i.id GROUP BY s.buyer);
SELECT 'ranked', count(*), sum(r) FROM (SELECT rank() OVER (PARTITION BY item ORDER BY amount, id) AS r FROM sale);
UPDATE sale SET buyer = buyer || '-' || amount WHERE amount > 6;
DELETE FROM sale WHERE id % 5 = 0;
SELECT 'left', count(*), count(DISTINCT buyer) FROM sale;
CREATE VIRTUAL TABLE words USING fts5(body);
INSERT INTO words SELECT name || ' ' || replace(tags, '"', ' ') FROM item;
SELECT 'found', count(*) FROM words WHERE words MATCH 't7 OR t11';
