# Strings, hashes, arrays and structs, with the collector at work.
require 'digest'
Point = Struct.new(:x, :y, :label)
random = Random.new(3)
points = Array.new(80_000) { |i| Point.new(random.rand(1000), random.rand(1000), "p#{i}" * (1 + i % 9)) }
groups = points.group_by { |point| [point.x / 50, point.y / 50] }
lines = groups.sort.map { |key, list| key.join(':') + ' ' + list.map(&:label).join(',') }
words = Hash.new { |hash, key| hash[key] = [] }
250_000.times { |i| words["word number #{i * 7919 % 40_009} of many"] << i }
text = words.map { |key, list| "#{key.upcase} #{list.size}" }.sort.join("\n")
5.times { text = text.gsub(/NUMBER (\d+)/) { "number #{$1.reverse}" }.gsub('number', 'NUMBER') }
tree = ->(depth) { depth.zero? ? [] : [tree[depth - 1], tree[depth - 1], depth.to_s * 30] }
12.times { tree[13] }
puts "groups #{groups.size} words #{words.size} #{Digest::SHA256.hexdigest(lines.join + text)}"
