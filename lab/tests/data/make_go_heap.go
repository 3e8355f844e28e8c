// Writes go-heap.pb.gz, a heap profile of Go's own making: an encoder that is not ours, for the test of the reader.
// go run make_go_heap.go go-heap.pb.gz
package main

import (
	"os"
	"runtime"
	"runtime/pprof"
)

var kept [][]byte

//go:noinline
func leaf(n int) { kept = append(kept, make([]byte, n)) }

//go:noinline
func branchA() {
	for i := 0; i < 100; i++ {
		leaf(10000)
	}
}

//go:noinline
func branchB() {
	for i := 0; i < 50; i++ {
		leaf(40000)
	}
}

func main() {
	runtime.MemProfileRate = 1
	branchA()
	branchB()
	f, _ := os.Create(os.Args[1])
	pprof.Lookup("heap").WriteTo(f, 0)
	f.Close()
}
