-- Binary trees, strings joined and split, tables sorted: every object is an allocation of its own.
local function tree(depth)
  if depth == 0 then return {} end
  return { tree(depth - 1), tree(depth - 1) }
end
local function count(node)
  if not node[1] then return 1 end
  return 1 + count(node[1]) + count(node[2])
end
local total = 0
local kept = tree(15)
for depth = 4, 14, 2 do
  for _ = 1, 1 << (15 - depth) do total = total + count(tree(depth)) end
end
total = total + count(kept)
local seed = 42
local function random(limit)
  seed = (seed * 1103515245 + 12345) % 2147483648
  return seed % limit
end
local words, seen = {}, {}
for i = 1, 120000 do
  local word = string.format("%x-%d", random(50000), random(7))
  words[i] = word
  seen[word] = (seen[word] or 0) + 1
end
table.sort(words)
local text = table.concat(words, " ")
local pieces, sum = 0, 0
for piece in text:gmatch("%S+") do
  pieces = pieces + 1
  sum = (sum * 31 + #piece + piece:byte(1)) % 1000000007
end
local distinct = 0
for _ in pairs(seen) do distinct = distinct + 1 end
print("nodes", total, "pieces", pieces, "distinct", distinct, "sum", sum, "length", #text)
