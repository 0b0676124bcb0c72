// Package k8stest installs dnprelay on a Kubernetes cluster of deploy/k8s, lets 50 clients
// and a game server play, breaks things, and reports what clients noticed. It runs inside
// the network of the cluster, where deploy/k8s-test/run starts it.
package k8stest
