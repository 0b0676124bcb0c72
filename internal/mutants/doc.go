// Package mutants proves that tests guard what the project promises. Each mutant is a deliberate fault in one function, a
// mistake that somebody could make, which breaks a line of SECURITY.md or a guarantee. One test must notice it.
//
// A mutant names a function, not a file: its old text is searched in the declaration of that function only, so a function
// may move between the files of its package. TestMutantsApply checks within a second or two that every mutant still
// finds its place. TestMutants, with the flag -mutants, compiles one mutant after the other and runs its test:
//
//	go test ./internal/mutants -run 'TestMutants/(no_wait|one_copy_leads)$' -mutants -v
//
// The compiler lays the changed file over the source (go help build, -overlay), so the product contains no fault and its
// source shows none.
package mutants
