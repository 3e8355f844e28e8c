<?php
// Arrays, objects, strings and JSON; USE_ZEND_ALLOC=0 sends every one of them to malloc.
class Node {
    public array $children = [];
    public function __construct(public string $name, public int $value) {}
}
mt_srand(5);
function grow(int $depth): Node {
    $node = new Node('n' . mt_rand(), $depth);
    if ($depth > 0) for ($i = 0; $i < 4; $i++) $node->children[] = grow($depth - 1);
    return $node;
}
$total = 0;
for ($round = 0; $round < 12; $round++) $total += strlen(json_encode(grow(7)));
$words = [];
for ($i = 0; $i < 300000; $i++) { $word = 'w' . ($i * 7919 % 30011); $words[$word][] = $i; }
ksort($words);
$text = implode(' ', array_map(fn($key) => strrev($key) . count($words[$key]), array_keys($words)));
$again = json_decode(json_encode($words), true);
$copy = preg_replace('/(\d+)w(\d+)/', '$2-$1', $text);
printf("total %d words %d again %d copy %s\n", $total, count($words), count($again), md5($copy));
