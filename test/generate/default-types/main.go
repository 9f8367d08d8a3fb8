// Prints how Go reads and writes the built-in kinds as JSON, in the minor of Kubernetes whose go.mod is in the working
// folder; `write.ts` runs it in each and keeps what it says.
//
// For each struct its members, and for each of them what it is: `text`, `flag`, `number`, `quantity`, `either` a number
// or a text, `bytes`, `time`, `microtime`, `any` or a struct; `*` before it knows empty from absent, `[` is a list of
// them, `{` a map to them, and what starts with `?` is left out when it is empty.
package main

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
)

// A minor that doesn't have one of these kinds leaves it out.
var kinds = map[string][]string{
	"v1": {
		"ConfigMap", "LimitRange", "Namespace", "Node", "PersistentVolume", "PersistentVolumeClaim", "Pod", "PodTemplate",
		"ReplicationController", "ResourceQuota", "Secret", "Service", "ServiceAccount",
	},
	"apps/v1":                      {"DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"},
	"autoscaling/v2":               {"HorizontalPodAutoscaler"},
	"batch/v1":                     {"CronJob", "Job"},
	"certificates.k8s.io/v1":       {"CertificateSigningRequest"},
	"coordination.k8s.io/v1":       {"Lease"},
	"networking.k8s.io/v1":         {"Ingress", "IngressClass", "NetworkPolicy"},
	"node.k8s.io/v1":               {"RuntimeClass"},
	"policy/v1":                    {"PodDisruptionBudget"},
	"rbac.authorization.k8s.io/v1": {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"},
	"scheduling.k8s.io/v1":         {"PriorityClass"},
	"storage.k8s.io/v1":            {"CSINode", "StorageClass", "VolumeAttributesClass"},
}

// Types that are written by themselves.
var special = map[reflect.Type]string{
	reflect.TypeFor[resource.Quantity]():    "quantity",
	reflect.TypeFor[meta.Time]():            "time",
	reflect.TypeFor[meta.MicroTime]():       "microtime",
	reflect.TypeFor[intstr.IntOrString]():   "either",
	reflect.TypeFor[meta.FieldsV1]():        "any",
	reflect.TypeFor[runtime.RawExtension](): "any",
	reflect.TypeFor[[]byte]():               "bytes",
}

var types = map[string]map[string]string{}
var names = map[string]reflect.Type{}

func main() {
	served := map[string]map[string]string{}
	for version, names := range kinds {
		served[version] = map[string]string{}
		group, _ := schema.ParseGroupVersion(version)
		known := scheme.Scheme.KnownTypes(group)
		for _, name := range names {
			if kind, found := known[name]; found {
				served[version][name] = called(kind)
			}
		}
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(map[string]any{"kinds": served, "types": types}); err != nil {
		panic(err)
	}
}

// The name of a struct, which is put down with its members when it is first met.
func called(kind reflect.Type) string {
	name := kind.Name()
	if other, taken := names[name]; taken && other != kind {
		parts := strings.Split(kind.PkgPath(), "/")
		name = parts[len(parts)-2] + "." + name
	}
	if _, known := names[name]; !known {
		names[name] = kind
		types[name] = map[string]string{}
		members(kind, types[name])
	}
	return name
}

func members(kind reflect.Type, into map[string]string) {
	for index := range kind.NumField() {
		field := kind.Field(index)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" && field.Anonymous {
			members(field.Type, into)
			continue
		}
		if name == "-" || name == "" {
			continue
		}
		// A struct is never empty, so that only omitzero leaves it out.
		mark := ""
		switch omitted := strings.Split(options, ","); {
		case contains(omitted, "omitzero"):
			mark = "?"
		case contains(omitted, "omitempty") && (field.Type.Kind() != reflect.Struct):
			mark = "?"
		}
		into[name] = mark + shape(field.Type)
	}
}

func contains(list []string, wanted string) bool {
	for _, one := range list {
		if one == wanted {
			return true
		}
	}
	return false
}

func shape(kind reflect.Type) string {
	if name, found := special[kind]; found {
		return name
	}
	switch kind.Kind() {
	case reflect.Pointer:
		return "*" + shape(kind.Elem())
	case reflect.Slice:
		if kind.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "[" + shape(kind.Elem())
	case reflect.Map:
		return "{" + shape(kind.Elem())
	case reflect.Struct:
		return called(kind)
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "flag"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "number"
	}
	panic("no word for " + kind.String())
}
