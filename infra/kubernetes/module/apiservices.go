package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	apiservices "k8s.io/kube-aggregator/pkg/registry/apiservice/rest"
)

// The aggregator, which isn't linked, also adds the options of requests and the Status of refusals.
func init() {
	options := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(aggregator.Scheme, options)
	aggregator.Scheme.AddUnversionedTypes(options, &metav1.Status{})
}

func apiServiceCodec(schema.GroupResource) (runtime.Codec, error) {
	return aggregator.Codecs.LegacyCodec(apiregistration.SchemeGroupVersion), nil
}

// installAPIServices adds APIService, which belongs to the aggregator in front of the other kinds.
func installAPIServices(served *builtIns) error {
	enabled := listEnabledVersions()
	enabled.EnableVersions(apiregistration.SchemeGroupVersion)
	return served.install(apiservices.NewRESTStorage(enabled, storageOptions(apiServiceCodec), false), enabled)
}
