// The mutation of default-toleration-seconds as controller-runtime has one write it, to measure beside Postern. Prints
// its URL when it is served, then for each line on its standard input the CPU time it has used; ends when that ends.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

var lost = []string{"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}

type tolerations struct{}

// Default adds what is missing.
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

func covered(present []corev1.Toleration, key string) bool {
	for _, one := range present {
		if (one.Key == "" || one.Key == key) && (one.Effect == "" || one.Effect == corev1.TaintEffectNoExecute) {
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
		// As kubebuilder sets a project up; it is also the faster one here.
		TLSOpts: []func(*tls.Config){func(config *tls.Config) { config.NextProtos = []string{"http/1.1"} }},
	})
	server.Register("/mutate", admission.WithDefaulter[*corev1.Pod](scheme.Scheme, tolerations{}))
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
