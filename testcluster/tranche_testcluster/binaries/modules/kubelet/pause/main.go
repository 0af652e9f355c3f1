// Command pause holds the namespaces of a pod until it is told to end. It needs no file but itself.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signal.Ignore(syscall.SIGCHLD) // the kernel then removes orphans of a pod with a shared process namespace
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	<-end
}
