// Package proctest runs child processes for measurements and for tests of a whole deployment: it
// starts programs, ends them, and reads their CPU time and memory. Children end when this process
// ends, however it ends. It needs Linux.
package proctest
