package main

import (
	"fmt"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/capabilities"
)

// options are what differs between API servers of one binary.
type options struct {
	// Minor is the emulated minor, such as 1.36. It is empty for the minor of the binary.
	Minor        string          `json:"minor"`
	FeatureGates map[string]bool `json:"featureGates"`
}

// newServer makes a server. The gates must be set before, because the handlers read some of them once.
func newServer(chosen options) (*server, error) {
	// No log is read here, and upstream waits a millisecond after each error that it logs.
	klog.SetLogger(logr.Discard())
	utilruntime.ErrorHandlers = nil
	effective := compatibility.DefaultComponentGlobalsRegistry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent)
	if chosen.Minor != "" {
		minor, err := version.ParseGeneric(chosen.Minor)
		if err != nil {
			return nil, fmt.Errorf("%q is not a minor of Kubernetes", chosen.Minor)
		}
		emulation, possible := effective.(basecompatibility.MutableEffectiveVersion)
		gates, versioned := utilfeature.DefaultMutableFeatureGate.(featuregate.MutableVersionedFeatureGate)
		if !possible || !versioned {
			return nil, fmt.Errorf("this module can't emulate %s", chosen.Minor)
		}
		emulation.SetEmulationVersion(minor)
		emulation.SetMinCompatibilityVersion(minor.SubtractMinor(1))
		if err := gates.SetEmulationVersion(minor); err != nil {
			return nil, err
		}
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(chosen.FeatureGates); err != nil {
		return nil, err
	}
	// Else privileged containers are refused. Only an API server's flag changes this.
	capabilities.Initialize(capabilities.Capabilities{AllowPrivileged: true})
	served, err := newBuiltIns(effective.EmulationVersion())
	if err != nil {
		return nil, err
	}
	if err := installAPIServices(served); err != nil {
		return nil, err
	}
	custom, err := installDefinitions(served)
	return &server{builtIns: served, definitions: custom}, err
}
