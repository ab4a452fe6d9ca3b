// Package bench measures the agent in network namespaces, beside a script that does what people do today. It is all in
// its test: `make bench-agent`.
package bench
