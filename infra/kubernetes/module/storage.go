package main

import (
	"context"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// storedObject is the JSON of the one object that the storage holds during a request: the object that the request
// updates or deletes. It is nil during a creation.
var storedObject []byte

// noStorage stands in for etcd. It returns storedObject for each key, and keeps nothing. The methods that no request
// calls are those of a nil interface.
type noStorage struct {
	storage.Interface
	codec runtime.Codec
}

func (noStorage) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

func (s noStorage) Create(_ context.Context, _ string, object, out runtime.Object, _ uint64) error {
	return s.store(object, out)
}

func (s noStorage) Get(_ context.Context, key string, options storage.GetOptions, out runtime.Object) error {
	if storedObject == nil {
		if options.IgnoreNotFound {
			return runtime.SetZeroValue(out)
		}
		return storage.NewKeyNotFoundError(key, 0)
	}
	return s.read(storedObject, out)
}

func (noStorage) GetList(context.Context, string, storage.ListOptions, runtime.Object) error {
	return nil
}

func (s noStorage) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, _ runtime.Object) error {
	current := reflect.New(reflect.TypeOf(out).Elem()).Interface().(runtime.Object)
	if err := s.Get(ctx, key, storage.GetOptions{IgnoreNotFound: ignoreNotFound}, current); err != nil {
		return err
	}
	if err := preconditions.Check(key, current); err != nil {
		return err
	}
	version, err := s.Versioner().ObjectResourceVersion(current)
	if err != nil {
		return err
	}
	updated, _, err := update(current, storage.ResponseMeta{ResourceVersion: version})
	if err != nil {
		return err
	}
	return s.store(updated, out)
}

func (s noStorage) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions) error {
	if err := s.Get(ctx, key, storage.GetOptions{}, out); err != nil {
		return err
	}
	if err := preconditions.Check(key, out); err != nil {
		return err
	}
	return validate(ctx, out)
}

// store does what writing an object to etcd and reading it does.
func (s noStorage) store(object, out runtime.Object) error {
	text, err := runtime.Encode(s.codec, object)
	if err != nil {
		return err
	}
	return s.read(text, out)
}

func (s noStorage) read(text []byte, out runtime.Object) error {
	object, _, err := s.codec.Decode(text, nil, out)
	if err != nil {
		return err
	}
	if object != out {
		reflect.ValueOf(out).Elem().Set(reflect.ValueOf(object).Elem())
	}
	// An object without a version counts as one that isn't stored.
	if version, err := s.Versioner().ObjectResourceVersion(out); err != nil || version > 0 {
		return err
	}
	return s.Versioner().UpdateObject(out, 1)
}

// storageOptions returns noStorage for each resource, with the codec by which an API server writes it to etcd.
type storageOptions func(schema.GroupResource) (runtime.Codec, error)

func (codec storageOptions) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	chosen, err := codec(resource)
	config := storagebackend.Config{Codec: chosen}
	return generic.RESTOptions{
		StorageConfig:  &storagebackend.ConfigForResource{Config: config, GroupResource: resource},
		ResourcePrefix: "/" + resource.Group + "/" + resource.Resource,
		// As an API server has it, whose deletions may set finalizers.
		EnableGarbageCollection: true,
		Decorator: func(config *storagebackend.ConfigForResource, _ string, _ func(runtime.Object) (string, error),
			_, _ func() runtime.Object, _ storage.AttrFunc, _ storage.IndexerFuncs, _ *cache.Indexers,
		) (storage.Interface, factory.DestroyFunc, error) {
			return noStorage{codec: config.Codec}, func() {}, nil
		},
	}, err
}

// builtInCodec returns the codec of a built-in resource, which is stored as protobuf.
func builtInCodec(resource schema.GroupResource) (runtime.Codec, error) {
	versions := serverstorage.NewDefaultResourceEncodingConfig(legacyscheme.Scheme)
	stored, err := versions.StorageEncodingFor(resource)
	if err != nil {
		return nil, err
	}
	internal, err := versions.InMemoryEncodingFor(resource)
	if err != nil {
		return nil, err
	}
	codec, _, err := serverstorage.NewStorageCodec(serverstorage.StorageCodecConfig{
		StorageMediaType:  runtime.ContentTypeProtobuf,
		StorageSerializer: legacyscheme.Codecs,
		StorageVersion:    stored,
		MemoryVersion:     internal,
	})
	return codec, err
}
