// A webhook with controller-runtime, which is measured beside Postern. The path /mutate does what
// default-toleration-seconds does. For the trace, /pod also sets pull policies and requests, and /allow allows
// everything. The program prints its URL once it serves. Then it prints its CPU time after each line of standard input,
// and ends when the input ends.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// The taints of a node that is lost.
var lost = []string{"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}

var requests = corev1.ResourceList{
	corev1.ResourceCPU:    resource.MustParse("100m"),
	corev1.ResourceMemory: resource.MustParse("128Mi"),
}

type tolerations struct{}

// Default adds the tolerations that a Pod lacks.
func (tolerations) Default(_ context.Context, pod *corev1.Pod) error {
	seconds := int64(300)
	present := pod.Spec.Tolerations
	for _, key := range lost {
		if !covered(present, key) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
				Key:               key,
				Operator:          corev1.TolerationOpExists,
				Effect:            corev1.TaintEffectNoExecute,
				TolerationSeconds: &seconds,
			})
		}
	}
	return nil
}

type podDefaults struct{}

// Default makes the changes that the trace's group of rules makes in Pods: it sets the pull policy to Always, shortens
// the default tolerations from 300 to 60 seconds, and adds missing requests.
func (podDefaults) Default(_ context.Context, pod *corev1.Pod) error {
	seconds := int64(60)
	for i, toleration := range pod.Spec.Tolerations {
		current := toleration.TolerationSeconds
		if slices.Contains(lost, toleration.Key) && current != nil && *current == 300 {
			pod.Spec.Tolerations[i].TolerationSeconds = &seconds
		}
	}
	for i := range pod.Spec.Containers {
		container := &pod.Spec.Containers[i]
		container.ImagePullPolicy = corev1.PullAlways
		if container.Resources.Requests == nil {
			container.Resources.Requests = corev1.ResourceList{}
		}
		for name, amount := range requests {
			if _, found := container.Resources.Requests[name]; !found {
				container.Resources.Requests[name] = amount
			}
		}
	}
	return nil
}

func allow(context.Context, admission.Request) admission.Response {
	return admission.Allowed("")
}

// Reports whether a toleration tolerates the taint with this key and the effect NoExecute.
func covered(present []corev1.Toleration, key string) bool {
	for _, toleration := range present {
		matchesKey := toleration.Key == "" || toleration.Key == key
		if matchesKey && (toleration.Effect == "" || toleration.Effect == corev1.TaintEffectNoExecute) {
			return true
		}
	}
	return false
}

// The arguments are a port, and the folder of server.crt and server.key.
func main() {
	port, err := strconv.Atoi(os.Args[1])
	exitOn(err)
	server := webhook.NewServer(webhook.Options{
		Host:     "127.0.0.1",
		Port:     port,
		CertDir:  os.Args[2],
		CertName: "server.crt",
		KeyName:  "server.key",
		// kubebuilder configures HTTP/1.1 in new projects. In this benchmark, it is also faster than HTTP/2.
		TLSOpts: []func(*tls.Config){func(config *tls.Config) { config.NextProtos = []string{"http/1.1"} }},
	})
	server.Register("/mutate", admission.WithDefaulter[*corev1.Pod](scheme.Scheme, tolerations{}))
	server.Register("/pod", admission.WithDefaulter[*corev1.Pod](scheme.Scheme, podDefaults{}))
	server.Register("/allow", &admission.Webhook{Handler: admission.HandlerFunc(allow)})
	go func() { exitOn(server.Start(context.Background())) }()
	for server.StartedChecker()(nil) != nil {
		time.Sleep(10 * time.Millisecond)
	}

	say(fmt.Sprintf("https://127.0.0.1:%d/mutate", port))
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var used syscall.Rusage
		exitOn(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
		say(milliseconds(used.Utime) + milliseconds(used.Stime))
	}
}

func milliseconds(time syscall.Timeval) float64 {
	return float64(time.Sec)*1e3 + float64(time.Usec)/1e3
}

func say(what any) {
	exitOn(json.NewEncoder(os.Stdout).Encode(what))
}

func exitOn(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
