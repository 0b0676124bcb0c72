package test

import (
	"testing"

	core "k8s.io/api/core/v1"
)

// TestRestricted requires more of every pod than the profile restricted of Pod Security.
func TestRestricted(t *testing.T) {
	eachValues(t, func(t *testing.T, name string, all objects) {
		pods := all.pods()
		if len(pods) < 2 {
			t.Fatalf("only %d pods", len(pods))
		}
		for _, p := range pods {
			s := p.spec.SecurityContext
			if s == nil || !yes(s.RunAsNonRoot) || (s.RunAsUser == nil) != (name == "external-nkey") || s.RunAsUser != nil && *s.RunAsUser == 0 || s.SeccompProfile == nil || s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
				t.Errorf("pod of %s: security is %+v", p.name, s)
			}
			if auto := p.spec.AutomountServiceAccountToken; auto == nil || *auto {
				t.Errorf("pod of %s: has a token of its service account", p.name)
			}
			if p.spec.HostPID || p.spec.HostIPC || p.spec.HostNetwork && name != "hostnetwork" {
				t.Errorf("pod of %s: shares a namespace of the node", p.name)
			}
			for _, v := range p.spec.Volumes {
				if v.HostPath != nil {
					t.Errorf("pod of %s: mounts a path of the node", p.name)
				}
			}
			for _, c := range append(p.spec.Containers, p.spec.InitContainers...) {
				checkContainer(t, p.name, c)
			}
		}
	})
}

func checkContainer(t *testing.T, pod string, c core.Container) {
	t.Helper()
	s := c.SecurityContext
	if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || !yes(s.ReadOnlyRootFilesystem) || s.Privileged != nil ||
		s.Capabilities == nil || len(s.Capabilities.Drop) != 1 || s.Capabilities.Drop[0] != "ALL" || len(s.Capabilities.Add) > 0 {
		t.Errorf("container %s of %s: security is %+v", c.Name, pod, s)
	}
	if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
		t.Errorf("container %s of %s: has no memory limit or no CPU request", c.Name, pod)
	}
	for _, e := range c.Env {
		if e.Value != "" && (e.Name == "DNP_NATS_PASSWORD" || e.Name == "REDIS_PASSWORD" || e.Name == "TOKEN") {
			t.Errorf("container %s of %s: %s is in the manifest", c.Name, pod, e.Name)
		}
	}
}

func yes(b *bool) bool { return b != nil && *b }
