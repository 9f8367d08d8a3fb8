package main

import (
	"fmt"
	"net/http"
	"strings"

	restful "github.com/emicklei/go-restful/v3"
	apidiscovery "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	apiendpoints "k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/admission/install"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/apiserverinternal/install"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/authentication/install"
	_ "k8s.io/kubernetes/pkg/apis/authorization/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/extensions/install"
	_ "k8s.io/kubernetes/pkg/apis/flowcontrol/install"
	_ "k8s.io/kubernetes/pkg/apis/imagepolicy/install"
	_ "k8s.io/kubernetes/pkg/apis/lifecycle/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	_ "k8s.io/kubernetes/pkg/apis/storagemigration/install"
	admissionregistration "k8s.io/kubernetes/pkg/registry/admissionregistration/rest"
	apiserverinternal "k8s.io/kubernetes/pkg/registry/apiserverinternal/rest"
	apps "k8s.io/kubernetes/pkg/registry/apps/rest"
	authentication "k8s.io/kubernetes/pkg/registry/authentication/rest"
	authorization "k8s.io/kubernetes/pkg/registry/authorization/rest"
	autoscaling "k8s.io/kubernetes/pkg/registry/autoscaling/rest"
	batch "k8s.io/kubernetes/pkg/registry/batch/rest"
	certificates "k8s.io/kubernetes/pkg/registry/certificates/rest"
	coordination "k8s.io/kubernetes/pkg/registry/coordination/rest"
	discovery "k8s.io/kubernetes/pkg/registry/discovery/rest"
	eventsgroup "k8s.io/kubernetes/pkg/registry/events/rest"
	flowcontrol "k8s.io/kubernetes/pkg/registry/flowcontrol/rest"
	lifecycle "k8s.io/kubernetes/pkg/registry/lifecycle/rest"
	networking "k8s.io/kubernetes/pkg/registry/networking/rest"
	node "k8s.io/kubernetes/pkg/registry/node/rest"
	policy "k8s.io/kubernetes/pkg/registry/policy/rest"
	rbac "k8s.io/kubernetes/pkg/registry/rbac/rest"
	resource "k8s.io/kubernetes/pkg/registry/resource/rest"
	scheduling "k8s.io/kubernetes/pkg/registry/scheduling/rest"
	storageclasses "k8s.io/kubernetes/pkg/registry/storage/rest"
	storagemigration "k8s.io/kubernetes/pkg/registry/storagemigration/rest"
)

// storageProvider is what upstream has for each API group.
type storageProvider interface {
	GroupName() string
	NewRESTStorage(serverstorage.APIResourceConfigSource, generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error)
}

// servedKind says where a kind is served.
type servedKind struct {
	// root is the path of the version, such as /apis/apps/v1.
	root       string
	resource   string
	namespaced bool
}

// builtIns serves all built-in kinds.
type builtIns struct {
	container *restful.Container
	kinds     map[schema.GroupVersionKind]servedKind
	emulated  *version.Version
}

// listProviders returns the providers of pkg/controlplane, which doesn't compile for WebAssembly.
func listProviders() ([]storageProvider, error) {
	allow := authorizerfactory.NewAlwaysAllowAuthorizer()
	client, err := kubernetes.NewForConfigAndClient(&restclient.Config{Host: "http://localhost"}, &http.Client{Transport: noNetwork{}})
	if err != nil {
		return nil, err
	}
	return []storageProvider{
		coreGroup{},
		apiserverinternal.StorageProvider{},
		authentication.RESTStorageProvider{},
		authorization.RESTStorageProvider{Authorizer: allow},
		autoscaling.RESTStorageProvider{},
		batch.RESTStorageProvider{},
		certificates.RESTStorageProvider{Authorizer: allow},
		coordination.RESTStorageProvider{},
		discovery.StorageProvider{},
		lifecycle.RESTStorageProvider{},
		networking.RESTStorageProvider{},
		node.RESTStorageProvider{},
		policy.RESTStorageProvider{},
		rbac.RESTStorageProvider{Authorizer: allow},
		scheduling.RESTStorageProvider{},
		storageclasses.RESTStorageProvider{},
		storagemigration.RESTStorageProvider{},
		flowcontrol.RESTStorageProvider{},
		apps.StorageProvider{},
		admissionregistration.RESTStorageProvider{Authorizer: allow, DiscoveryClient: client.Discovery()},
		eventsgroup.RESTStorageProvider{},
		resource.RESTStorageProvider{NamespaceClient: client.CoreV1().Namespaces(), Authorizer: allow},
	}, nil
}

// newBuiltIns makes the handlers of all built-in kinds, in the versions that an API server serves by default.
func newBuiltIns(emulated *version.Version) (*builtIns, error) {
	served := &builtIns{container: restful.NewContainer(), kinds: map[schema.GroupVersionKind]servedKind{}, emulated: emulated}
	options := storageOptions(builtInCodec)
	providers, err := listProviders()
	if err != nil {
		return nil, err
	}
	enabled := listEnabledVersions()
	for _, provider := range providers {
		info, err := provider.NewRESTStorage(enabled, options)
		if err == nil {
			err = served.install(info, enabled)
		}
		if err != nil {
			return nil, fmt.Errorf("API group %q: %w", provider.GroupName(), err)
		}
	}
	return served, nil
}

// listEnabledVersions returns the versions that an API server serves by default.
func listEnabledVersions() *serverstorage.ResourceConfig {
	config := serverstorage.NewResourceConfig()
	for _, version := range legacyscheme.Scheme.PrioritizedVersionsAllGroups() {
		if strings.Contains(version.Version, "alpha") || strings.Contains(version.Version, "beta") {
			config.DisableVersions(version)
		} else {
			config.EnableVersions(version)
		}
	}
	return config
}

// install adds the handlers of one API group.
func (served *builtIns) install(info genericapiserver.APIGroupInfo, enabled *serverstorage.ResourceConfig) error {
	if len(info.VersionedResourcesStorageMap) == 0 {
		return nil
	}
	group := info.PrioritizedVersions[0].Group
	lifecycle, err := genericapiserver.NewResourceExpirationEvaluator(served.emulated)
	if err != nil {
		return err
	}
	if err := lifecycle.RemoveUnavailableKinds(group, info.Scheme, info.VersionedResourcesStorageMap, enabled); err != nil {
		return err
	}
	root := genericapiserver.APIGroupPrefix
	if group == "" {
		root = genericapiserver.DefaultLegacyAPIPrefix
	}
	served.container.Router(restful.CurlyRouter{})
	for name, resources := range info.VersionedResourcesStorageMap {
		groupVersion := schema.GroupVersion{Group: group, Version: name}
		version := apiendpoints.APIGroupVersion{
			Storage:                    resources,
			Root:                       root,
			GroupVersion:               groupVersion,
			Serializer:                 info.NegotiatedSerializer,
			ParameterCodec:             info.ParameterCodec,
			Typer:                      info.Scheme,
			Creater:                    info.Scheme,
			Convertor:                  info.Scheme,
			ConvertabilityChecker:      info.Scheme,
			Defaulter:                  info.Scheme,
			Namer:                      runtime.Namer(meta.NewAccessor()),
			UnsafeConvertor:            runtime.UnsafeObjectConvertor(info.Scheme),
			TypeConverter:              managedfields.NewDeducedTypeConverter(),
			EquivalentResourceRegistry: runtime.NewEquivalentResourceRegistry(),
			OptionsExternalVersion:     info.OptionsExternalVersion,
			MetaGroupVersion:           info.MetaGroupVersion,
			Authorizer:                 authorizerfactory.NewAlwaysAllowAuthorizer(),
			Admit:                      admission,
			MaxRequestBodyBytes:        maxBodyBytes,
		}
		discovered, _, err := version.InstallREST(served.container)
		if err != nil {
			return err
		}
		for _, resource := range discovered {
			kind := groupVersion.WithKind(resource.ResponseKind.Kind)
			path := root + "/" + groupVersion.String()
			served.kinds[kind] = servedKind{path, resource.Resource, resource.Scope == apidiscovery.ScopeNamespace}
		}
	}
	return nil
}
