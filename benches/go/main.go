// bwmarrin/snowflake in turns: for each line with a number it makes so many IDs, and prints the ns that it took.
package main

import (
	"bufio"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/bwmarrin/snowflake"
)

// For someone to look at, or the IDs need not be made.
var last snowflake.ID

func turn(node *snowflake.Node, count int) time.Duration {
	start := time.Now()
	for range count {
		last ^= node.Generate()
	}
	return time.Since(start)
}

func main() {
	// As many sequences as nobody uses up in a millisecond, as all others have them here.
	snowflake.NodeBits, snowflake.StepBits = 2, 20
	node, err := snowflake.NewNode(1)
	if err != nil {
		log.Fatal(err)
	}
	turn(node, 1_000_000)
	fmt.Println("ready")
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		count, err := strconv.Atoi(orders.Text())
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(turn(node, count).Nanoseconds())
	}
}
