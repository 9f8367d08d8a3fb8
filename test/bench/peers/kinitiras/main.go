// Measures kinitiras' own engine. A question is a line of JSON on standard input: policies, an object, and the number
// of evaluations. The answer is a line on standard output with the nanoseconds of each evaluation, from the object's
// bytes to the bytes of the patch. The policies are admitted before the first evaluation, as kinitiras' webhook would
// admit them.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	jsonpatch "github.com/evanphx/json-patch"
	jsonpatchv2 "gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	policyv1alpha1 "github.com/k-cloud-labs/pkg/apis/policy/v1alpha1"
	listers "github.com/k-cloud-labs/pkg/client/listers/policy/v1alpha1"
	"github.com/k-cloud-labs/pkg/utils/interrupter"
	"github.com/k-cloud-labs/pkg/utils/overridemanager"
	"github.com/k-cloud-labs/pkg/utils/templatemanager"
	"github.com/k-cloud-labs/pkg/utils/templatemanager/templates"
	"github.com/k-cloud-labs/pkg/utils/tokenmanager"
	"github.com/k-cloud-labs/pkg/utils/validatemanager"
)

type question struct {
	Policies  []json.RawMessage `json:"policies"`
	Object    json.RawMessage   `json:"object"`
	Operation string            `json:"operation"`
	Rounds    int               `json:"rounds"`
}

type answer struct {
	Nanoseconds []int64         `json:"nanoseconds"`
	Patch       json.RawMessage `json:"patch,omitempty"`
	Denied      string          `json:"denied,omitempty"`
	Error       string          `json:"error,omitempty"`
}

// The stores of the policies, and the parts of kinitiras that admit policies and evaluate them.
type engine struct {
	stores     map[string]cache.Indexer
	admission  interrupter.PolicyInterrupterManager
	overrides  overridemanager.OverrideManager
	validation validatemanager.ValidateManager
}

func newEngine() (*engine, error) {
	stores := map[string]cache.Indexer{}
	for _, kind := range []string{"OverridePolicy", "ClusterOverridePolicy", "ClusterValidatePolicy"} {
		stores[kind] = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	}
	overrideTemplates, err := templatemanager.NewOverrideTemplateManager(&templatemanager.TemplateSource{Content: templates.OverrideTemplate, TemplateName: "BaseTemplate"})
	if err != nil {
		return nil, err
	}
	validateTemplates, err := templatemanager.NewValidateTemplateManager(&templatemanager.TemplateSource{Content: templates.ValidateTemplate, TemplateName: "BaseTemplate"})
	if err != nil {
		return nil, err
	}
	base := interrupter.NewBaseInterrupter(overrideTemplates, validateTemplates, templatemanager.NewCueManager())
	tokens := tokenmanager.NewTokenManager()
	ops := listers.NewOverridePolicyLister(stores["OverridePolicy"])
	cops := listers.NewClusterOverridePolicyLister(stores["ClusterOverridePolicy"])
	cvps := listers.NewClusterValidatePolicyLister(stores["ClusterValidatePolicy"])
	admission := interrupter.NewPolicyInterrupterManager()
	op := interrupter.NewOverridePolicyInterrupter(base, tokens, nil, ops)
	version := policyv1alpha1.SchemeGroupVersion
	admission.AddInterrupter(version.WithKind("OverridePolicy"), op)
	admission.AddInterrupter(version.WithKind("ClusterOverridePolicy"), interrupter.NewClusterOverridePolicyInterrupter(op, cops))
	admission.AddInterrupter(version.WithKind("ClusterValidatePolicy"), interrupter.NewClusterValidatePolicyInterrupter(base, tokens, nil, cvps))
	return &engine{
		stores:     stores,
		admission:  admission,
		overrides:  overridemanager.NewOverrideManager(nil, cops, ops),
		validation: validatemanager.NewValidateManager(nil, cvps),
	}, nil
}

// Renders a policy's templates, and stores the policy.
func (e *engine) admit(raw json.RawMessage) error {
	policy := &unstructured.Unstructured{}
	if err := policy.UnmarshalJSON(raw); err != nil {
		return err
	}
	operations, err := e.admission.OnMutating(policy, nil, admissionv1.Create)
	if err != nil {
		return err
	}
	text, err := json.Marshal(operations)
	if err != nil {
		return err
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		return err
	}
	admitted, err := patch.Apply(raw)
	if err != nil {
		return err
	}
	kinds := map[string]interface{}{
		"OverridePolicy":        &policyv1alpha1.OverridePolicy{},
		"ClusterOverridePolicy": &policyv1alpha1.ClusterOverridePolicy{},
		"ClusterValidatePolicy": &policyv1alpha1.ClusterValidatePolicy{},
	}
	stored := kinds[policy.GetKind()]
	if err := json.Unmarshal(admitted, stored); err != nil {
		return err
	}
	return e.stores[policy.GetKind()].Add(stored)
}

// Returns the patch of an object, or the reason why a policy denies it.
func (e *engine) evaluate(raw json.RawMessage, operation admissionv1.Operation) (json.RawMessage, string, error) {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(raw); err != nil {
		return nil, "", err
	}
	if _, _, err := e.overrides.ApplyOverridePolicies(context.Background(), object, nil, operation); err != nil {
		return nil, "", err
	}
	verdict, err := e.validation.ApplyValidatePolicies(context.Background(), object, nil, operation)
	if err != nil {
		return nil, "", err
	}
	if !verdict.Valid {
		return nil, verdict.Reason, nil
	}
	after, err := object.MarshalJSON()
	if err != nil {
		return nil, "", err
	}
	operations, err := jsonpatchv2.CreatePatch(raw, after)
	if err != nil {
		return nil, "", err
	}
	patch, err := json.Marshal(operations)
	return patch, "", err
}

// Admits the policies of a question and evaluates them. The answer has the last patch, and the times of all
// evaluations.
func reply(asked question) (found answer) {
	failed := func(err error) answer { return answer{Error: err.Error()} }
	engine, err := newEngine()
	if err != nil {
		return failed(err)
	}
	for _, policy := range asked.Policies {
		if err := engine.admit(policy); err != nil {
			return failed(err)
		}
	}
	for round := 0; round < asked.Rounds; round++ {
		begun := time.Now()
		found.Patch, found.Denied, err = engine.evaluate(asked.Object, admissionv1.Operation(asked.Operation))
		if err != nil {
			return failed(err)
		}
		found.Nanoseconds = append(found.Nanoseconds, time.Since(begun).Nanoseconds())
	}
	return found
}

func main() {
	klog.LogToStderr(false)
	klog.SetOutput(discard{})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64*1024*1024)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var asked question
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if err := out.Encode(reply(asked)); err != nil {
			os.Exit(1)
		}
	}
}

type discard struct{}

func (discard) Write(text []byte) (int, error) { return len(text), nil }
