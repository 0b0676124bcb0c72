// Package arch has no code. Its tests read the source of the whole module and
// hold it to the rules that keep the architecture together:
//
//   - who may import whom (imports_test.go),
//   - that the packages with the rules of the protocols are functions of their
//     inputs, without clocks, goroutines, sockets, logs or locks (pure_test.go),
//   - how long files and functions may be (size_test.go),
//   - words that have no place in the repository (words_test.go),
//   - that no file is a copy of another one (copies_test.go).
//
// A new package needs a line in the import table. Changing a line of the table
// is a decision about the architecture, not a repair of a build.
package arch
