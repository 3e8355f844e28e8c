# Arrays, substrings, functions, here-strings and subshells.
declare -A counts
words=()
join() { local IFS=,; echo "$*"; }
for ((i = 0; i < 12000; ++i)); do
  word="w$((i * 7919 % 1009))"
  words+=("$word")
  counts[$word]=$((${counts[$word]:-0} + 1))
  line="$word=${word:1}${line:0:60}"
  line="${line//7/seven}"
done
total=0
for ((i = 0; i < 200; ++i)); do
  text=$(join "${words[@]:i:40}")
  IFS=, read -r -a fields <<< "$text"
  total=$((total + ${#fields[@]}))
done
echo "words ${#counts[@]} fields $total end ${#line}"
