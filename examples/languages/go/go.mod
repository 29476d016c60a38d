module cosid.dev/examples/go

go 1.22
