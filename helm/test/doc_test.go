// Package test renders the chart with helm and looks at the objects that come out:
// whether Kubernetes knows every field, whether pods are restricted, whether every flag
// is one that the programs have, and whether mistakes are refused with a reason.
//
// It is a module of its own, so that the product does not depend on Kubernetes. Run it by
// `make chart-test`, which says where helm (HELM) and the programs (BIN) are.
package test
