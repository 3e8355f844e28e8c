#!/bin/sh
# Measures what the documents of a release show, on a machine where nothing else runs. With two processors the full
# suite takes 100 minutes, its longest piece 25. A piece whose result is in FOLDER is left out: an interrupted
# measurement goes on where it stopped. The allocator, the workloads and the traces must not change
# meanwhile, as `freestone docs --release` would say.
#
#     packaging/measure.sh [FOLDER]     default: build/measured
set -eu
cd "$(dirname "$0")/.."
folder=${1:-build/measured}
mkdir -p "$folder"
every=freestone,freestone-hardened,mimalloc,mimalloc-no-thp,mimalloc-v2,jemalloc,snmalloc,rpmalloc,tcmalloc,gperftools
every=$every,tbbmalloc,scudo,hardened-malloc
rivals="--only $every --option mimalloc-v2:MIMALLOC_ALLOW_THP=0 --no-null"

# piece NAME OPTION COMMAND...: the option that names the result file
piece() {
  result=$1 option=$2
  shift 2
  [ -e "$folder/$result.json.gz" ] && return
  echo "$result: freestone $*"
  ./freestone "$@" "$option" "$folder/part.json.gz" --force
  mv "$folder/part.json.gz" "$folder/$result.json.gz"
}
# parts NAME COUNT COMMAND...
parts() {
  name=$1 count=$2
  shift 2
  for k in $(seq "$count"); do piece "$name-$k" --json "$@" --part "$k/$count" $rivals; done
  ./freestone join "$folder/$name"-[0-9]*.json.gz -o "docs/results/$name.json.gz" --force
}

# once NAME PAGE_RESULT OPTION COMMAND...
once() {
  name=$1 to=$2
  shift 2
  piece "$name" "$@"
  cp "$folder/$name.json.gz" "docs/results/$to.json.gz"
}

./freestone peers install
parts full 9 bench full --rounds 5
parts traces 4 bench traces --rounds 5
parts aged 4 bench apps --aged 1 --rounds 5
hard=freestone-hardened,freestone,hardened-malloc,hardened-malloc-light,scudo,snmalloc-checked,isoalloc,mimalloc-secure
once mitigations mitigations -o bench mitigations
once reuse attacks/reuse --json bench hardening --only $hard,glibc --no-null --rounds 5 --seed 7
attacked="freestone-hardened freestone hardened-malloc scudo isoalloc snmalloc-checked glibc"
once attacks attacks/enumerated -o bench attacks --rounds 60 --first-seed 13 $attacked
./freestone docs
