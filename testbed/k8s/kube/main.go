// Command kube is every daemon of Kubernetes in one program, chosen by the first
// argument: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet,
// kube-proxy. One program shares what all of them import, so it builds in a third of
// the time and has a third of the size.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var daemons = map[string]func() *cobra.Command{
	"kube-apiserver":          func() *cobra.Command { return apiserver.NewAPIServerCommand() },
	"kube-controller-manager": func() *cobra.Command { return controllers.NewControllerManagerCommand() },
	"kube-proxy":              func() *cobra.Command { return proxy.NewProxyCommand() },
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand() },
}

func main() {
	os.Args = os.Args[1:]
	if len(os.Args) > 0 && os.Args[0] == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	if len(os.Args) > 0 && daemons[os.Args[0]] != nil {
		os.Exit(cli.Run(daemons[os.Args[0]]()))
	}
	fmt.Fprintln(os.Stderr, "kube: want etcd, kube-apiserver, kube-controller-manager, kube-proxy, kube-scheduler or kubelet")
	os.Exit(2)
}
