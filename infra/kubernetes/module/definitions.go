package main

import (
	"net/http"
	"strconv"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/tools/cache"
)

// definitions serves the custom resources of the definitions that it got, by upstream's handler.
type definitions struct {
	cache.SharedIndexInformer
	index   cache.Indexer
	handler http.Handler
	kinds   map[schema.GroupVersionKind]servedKind
	// events are upstream's functions that drop what the handler keeps of a changed definition.
	events cache.ResourceEventHandler
	serial int
}

func definitionCodec(schema.GroupResource) (runtime.Codec, error) {
	return apiextensionsserver.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion), nil
}

// customCodec returns the codec of custom resources, to which upstream's handler adds pruning, defaults and conversion.
func customCodec(schema.GroupResource) (runtime.Codec, error) {
	return unstructured.UnstructuredJSONScheme, nil
}

// installDefinitions adds CustomResourceDefinition to the built-in kinds, and returns the definitions, of which there
// are none yet.
func installDefinitions(served *builtIns) (*definitions, error) {
	resource, err := customresourcedefinition.NewREST(apiextensionsserver.Scheme, storageOptions(definitionCodec))
	if err != nil {
		return nil, err
	}
	info := genericapiserver.NewDefaultAPIGroupInfo(apiextensions.GroupName, apiextensionsserver.Scheme,
		metav1.ParameterCodec, apiextensionsserver.Codecs)
	info.VersionedResourcesStorageMap["v1"] = map[string]rest.Storage{
		"customresourcedefinitions":        resource,
		"customresourcedefinitions/status": customresourcedefinition.NewStatusREST(apiextensionsserver.Scheme, resource),
	}
	if err := served.install(info, listEnabledVersions()); err != nil {
		return nil, err
	}
	custom := &definitions{
		index: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
		kinds: map[schema.GroupVersionKind]servedKind{},
	}
	custom.handler, err = apiextensionsserver.NewCustomResourceDefinitionHandler(nil, nil, custom, http.NotFoundHandler(),
		storageOptions(customCodec),
		admission, nil, webhook.NewDefaultServiceResolver(),
		webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, nil, nil), 1,
		authorizerfactory.NewAlwaysAllowAuthorizer(), time.Minute, time.Minute, nil, maxBodyBytes)
	return custom, err
}

func (custom *definitions) Informer() cache.SharedIndexInformer { return custom }

func (custom *definitions) Lister() listers.CustomResourceDefinitionLister {
	return listers.NewCustomResourceDefinitionLister(custom.index)
}

func (custom *definitions) AddEventHandler(events cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	custom.events = events
	return nil, nil
}

// add serves the kinds of a definition that an API server accepted. It replaces a definition of the same name.
func (custom *definitions) add(accepted []byte) error {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DecodeInto(apiextensionsserver.Codecs.UniversalDeserializer(), accepted, definition); err != nil {
		return err
	}
	// What the controllers of an API server write. The handler sleeps when it sees a definition that is new.
	custom.serial++
	definition.UID = types.UID(strconv.Itoa(custom.serial))
	definition.Status.AcceptedNames = definition.Spec.Names
	long := metav1.NewTime(time.Unix(0, 0))
	definition.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{
		{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: long},
		{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: long},
	}
	group := definition.Spec.Group
	if previous, found, _ := custom.index.GetByKey(definition.Name); found {
		for _, version := range previous.(*apiextensionsv1.CustomResourceDefinition).Spec.Versions {
			delete(custom.kinds, schema.GroupVersionKind{Group: group, Version: version.Name, Kind: definition.Spec.Names.Kind})
		}
		defer custom.events.OnUpdate(previous, definition)
	}
	if err := custom.index.Add(definition); err != nil {
		return err
	}
	for _, version := range definition.Spec.Versions {
		if !version.Served {
			continue
		}
		kind := schema.GroupVersionKind{Group: group, Version: version.Name, Kind: definition.Spec.Names.Kind}
		custom.kinds[kind] = servedKind{
			root:       genericapiserver.APIGroupPrefix + "/" + kind.GroupVersion().String(),
			resource:   definition.Spec.Names.Plural,
			namespaced: definition.Spec.Scope == apiextensionsv1.NamespaceScoped,
		}
	}
	return nil
}
