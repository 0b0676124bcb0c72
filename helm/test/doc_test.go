// Package test renders the chart with helm and checks the objects: that Kubernetes knows
// every field, that pods are restricted, that the programs know every flag, and that the
// chart refuses mistakes with a reason.
//
// It is a module of its own, so that the product does not depend on Kubernetes. `make
// chart-test` runs it, and passes the paths of helm (HELM) and of the programs (BIN).
package test
