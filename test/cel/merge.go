package main

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	policy "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/spec3"
)

// A patch of an ApplyConfiguration.
type merging struct {
	// A file with the OpenAPI document of the object's group and version, or with a CustomResourceDefinition.
	Schema string         `json:"schema"`
	Object map[string]any `json:"object"`
	Patch  map[string]any `json:"patch"`
	// An expression whose value is the patch, if there is one.
	Expression string `json:"expression"`
}

type merged struct {
	ID int64 `json:"id"`
	// The object as kube-apiserver shows it to webhooks.
	Object any    `json:"object,omitempty"`
	Value  any    `json:"value,omitempty"`
	Error  string `json:"error,omitempty"`
	// Other errors for the same patch: Go has no order for the keys of a map.
	Others []string `json:"others,omitempty"`
}

// Applies a patch as often as `repeat`.
func merge(compiler policy.Compiler, next task) *merged {
	found := &merged{ID: next.ID}
	if next.Merging.Expression != "" {
		compiled := compiler.CompileCELExpression(accessor{expression: next.Merging.Expression}, declarations["mutation"], environment.StoredExpressions)
		scope := &activation{values: map[string]any{"object": next.Merging.Object}}
		value, _, err := compiled.Program.ContextEval(context.Background(), scope)
		check(err)
		next.Merging.Patch = value.(*dynamic.ObjectVal).Value().(map[string]any)
	}
	converter := readSchema(next.Merging.Schema)
	original := toTyped(&unstructured.Unstructured{Object: next.Merging.Object})
	found.Object = original
	seen := map[string]bool{}
	for range max(next.Repeat, 1) {
		change := &unstructured.Unstructured{Object: maps.Clone(next.Merging.Patch)}
		change.SetGroupVersionKind(original.GetObjectKind().GroupVersionKind())
		result, err := patch.ApplyStructuredMergeDiff(converter, original, change)
		if err == nil {
			found.Value = result
			return found
		}
		text := "error applying patch: " + err.Error()
		if found.Error == "" {
			found.Error = text
		} else if text != found.Error && !seen[text] {
			found.Others = append(found.Others, text)
		}
		seen[text] = true
	}
	return found
}

// Returns an object of a built-in kind as the Go type that kube-apiserver has for it, unless it doesn't fit.
func toTyped(object *unstructured.Unstructured) runtime.Object {
	typed, err := scheme.Scheme.New(object.GroupVersionKind())
	if err != nil {
		return object
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, typed, true); err != nil {
		return object
	}
	typed.GetObjectKind().SetGroupVersionKind(object.GroupVersionKind())
	return typed
}

var schemas sync.Map

func readSchema(file string) managedfields.TypeConverter {
	if known, ok := schemas.Load(file); ok {
		return known.(managedfields.TypeConverter)
	}
	text, err := os.ReadFile(file)
	check(err)
	var document spec3.OpenAPI
	check(json.Unmarshal(text, &document))
	if document.Components == nil {
		var definition v1.CustomResourceDefinition
		check(json.Unmarshal(text, &definition))
		built, err := builder.BuildOpenAPIV3(&definition, definition.Spec.Versions[0].Name, builder.Options{})
		check(err)
		published, err := json.Marshal(built)
		check(err)
		check(json.Unmarshal(published, &document))
	}
	converter, err := managedfields.NewTypeConverter(document.Components.Schemas, false)
	check(err)
	schemas.Store(file, converter)
	return converter
}
