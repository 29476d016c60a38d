// Goroutines that share one source of IDs.
//
//	cd examples/languages/go && COSID_SOCKET=... go run . orders 4 1000
//
// prints 1000 IDs of each of 4 goroutines.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"cosid.dev/examples/go/cosid"
)

// How long one ID may take.
const patience = 2 * time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "no ID:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("usage: GENERATOR GOROUTINES COUNT")
	}
	workers, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	count, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	source, err := cosid.Open(args[0], cosid.Options{})
	if err != nil {
		return err
	}
	defer source.Close()

	ids := make([][]uint64, workers)
	failed := make([]error, workers)
	var all sync.WaitGroup
	for worker := range workers {
		all.Add(1)
		go func() {
			defer all.Done()
			for range count {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				id, err := source.Next(ctx)
				cancel()
				if err != nil {
					failed[worker] = err
					return
				}
				ids[worker] = append(ids[worker], id)
			}
		}()
	}
	all.Wait()

	out := bufio.NewWriter(os.Stdout)
	for worker := range workers {
		if failed[worker] != nil {
			return failed[worker]
		}
		for _, id := range ids[worker] {
			fmt.Fprintln(out, id)
		}
	}
	return out.Flush()
}
