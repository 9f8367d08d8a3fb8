package main

import (
	"errors"
	"net"
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	api "k8s.io/kubernetes/pkg/apis/core"
	kubeletclient "k8s.io/kubernetes/pkg/kubelet/client"
	configmaps "k8s.io/kubernetes/pkg/registry/core/configmap/storage"
	endpoints "k8s.io/kubernetes/pkg/registry/core/endpoint/storage"
	events "k8s.io/kubernetes/pkg/registry/core/event/storage"
	limitranges "k8s.io/kubernetes/pkg/registry/core/limitrange/storage"
	namespaces "k8s.io/kubernetes/pkg/registry/core/namespace/storage"
	nodes "k8s.io/kubernetes/pkg/registry/core/node/storage"
	persistentvolumes "k8s.io/kubernetes/pkg/registry/core/persistentvolume/storage"
	persistentvolumeclaims "k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim/storage"
	pods "k8s.io/kubernetes/pkg/registry/core/pod/storage"
	podtemplates "k8s.io/kubernetes/pkg/registry/core/podtemplate/storage"
	replicationcontrollers "k8s.io/kubernetes/pkg/registry/core/replicationcontroller/storage"
	resourcequotas "k8s.io/kubernetes/pkg/registry/core/resourcequota/storage"
	secrets "k8s.io/kubernetes/pkg/registry/core/secret/storage"
	"k8s.io/kubernetes/pkg/registry/core/service/ipallocator"
	"k8s.io/kubernetes/pkg/registry/core/service/portallocator"
	services "k8s.io/kubernetes/pkg/registry/core/service/storage"
	serviceaccounts "k8s.io/kubernetes/pkg/registry/core/serviceaccount/storage"
)

// coreGroup has the resources of v1. Upstream's own provider of this group also starts controllers that need a network,
// and it doesn't compile for WebAssembly.
type coreGroup struct{}

func (coreGroup) GroupName() string { return "" }

func (coreGroup) NewRESTStorage(_ serverstorage.APIResourceConfigSource, options generic.RESTOptionsGetter) (
	genericapiserver.APIGroupInfo, error) {
	resources := map[string]rest.Storage{}
	var problems []error
	add := func(name string, resource rest.Storage, err error) {
		resources[name] = resource
		problems = append(problems, err)
	}

	event, err := events.NewREST(options, 3600)
	add("events", event, err)
	quota, quotaStatus, err := resourcequotas.NewREST(options)
	add("resourcequotas", quota, err)
	add("resourcequotas/status", quotaStatus, nil)
	secret, err := secrets.NewREST(options)
	add("secrets", secret, err)
	configMap, err := configmaps.NewREST(options)
	add("configmaps", configMap, err)
	namespace, namespaceStatus, finalize, err := namespaces.NewREST(options)
	add("namespaces", namespace, err)
	add("namespaces/status", namespaceStatus, nil)
	add("namespaces/finalize", finalize, nil)
	serviceAccount, err := serviceaccounts.NewREST(options, nil, nil, nil, 0, nil, nil, nil, nil, nil, false, 0)
	add("serviceaccounts", serviceAccount, err)
	podTemplate, err := podtemplates.NewREST(options)
	add("podtemplates", podTemplate, err)
	limitRange, err := limitranges.NewREST(options)
	add("limitranges", limitRange, err)
	volume, volumeStatus, err := persistentvolumes.NewREST(options)
	add("persistentvolumes", volume, err)
	add("persistentvolumes/status", volumeStatus, nil)
	claim, claimStatus, err := persistentvolumeclaims.NewREST(options)
	add("persistentvolumeclaims", claim, err)
	add("persistentvolumeclaims/status", claimStatus, nil)
	endpoint, err := endpoints.NewREST(options)
	add("endpoints", endpoint, err)
	controller, err := replicationcontrollers.NewStorage(options)
	add("replicationcontrollers", controller.Controller, err)
	add("replicationcontrollers/status", controller.Status, nil)
	add("replicationcontrollers/scale", controller.Scale, nil)
	node, err := nodes.NewStorage(options, kubeletclient.KubeletClientConfig{}, noNetwork{})
	if err != nil {
		return genericapiserver.APIGroupInfo{}, err
	}
	add("nodes", node.Node, nil)
	add("nodes/status", node.Status, nil)
	pod, err := pods.NewStorage(options, node.KubeletConnectionInfo, noNetwork{}, nil,
		authorizerfactory.NewAlwaysAllowAuthorizer())
	if err != nil {
		return genericapiserver.APIGroupInfo{}, err
	}
	add("pods", pod.Pod, nil)
	add("pods/status", pod.Status, nil)
	add("pods/ephemeralcontainers", pod.EphemeralContainers, nil)
	add("pods/resize", pod.Resize, nil)
	add("pods/binding", pod.Binding, nil)
	add("pods/eviction", pod.Eviction, nil)
	add("bindings", pod.LegacyBinding, nil)
	service, serviceStatus, err := newServices(options, pod.Pod)
	add("services", service, err)
	add("services/status", serviceStatus, nil)

	info := genericapiserver.NewDefaultAPIGroupInfo("", legacyscheme.Scheme, legacyscheme.ParameterCodec, legacyscheme.Codecs)
	info.VersionedResourcesStorageMap["v1"] = resources
	return info, errors.Join(problems...)
}

func newServices(options generic.RESTOptionsGetter, pods services.PodStorage) (*services.REST, *services.StatusREST, error) {
	if err := nodePorts.reset(); err != nil {
		return nil, nil, err
	}
	addresses := map[api.IPFamily]ipallocator.Interface{api.IPv4Protocol: anyAddress{}}
	service, status, _, err := services.NewREST(options, api.IPv4Protocol, addresses, nodePorts, nil, pods, noNetwork{})
	return service, status, err
}

// noNetwork refuses all HTTP requests.
type noNetwork struct{}

func (noNetwork) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("this module has no network")
}

// anyAddress gives all Services without an address the same one, and accepts each address that a Service asks for: the
// range and the allocated addresses are known in a cluster only.
type anyAddress struct{ ipallocator.Interface }

func (anyAddress) Allocate(net.IP) error                 { return nil }
func (anyAddress) AllocateNext() (net.IP, error)         { return net.IPv4(10, 96, 0, 10), nil }
func (anyAddress) Release(net.IP) error                  { return nil }
func (anyAddress) IPFamily() api.IPFamily                { return api.IPv4Protocol }
func (anyAddress) Has(net.IP) bool                       { return false }
func (address anyAddress) DryRun() ipallocator.Interface { return address }

// nodePorts has the default range of an API server. A request sees all ports free.
var nodePorts = &portsOfOneRequest{}

type portsOfOneRequest struct{ portallocator.Interface }

func (ports *portsOfOneRequest) reset() error {
	free, err := portallocator.NewInMemory(utilnet.PortRange{Base: 30000, Size: 2768})
	ports.Interface = free
	return err
}
