// Evaluates expressions of CEL as kube-apiserver's admission policies do: reads tasks as lines of JSON, and writes an
// answer for each, in any order.
//
//	{"id": 1, "expression": "object.a + 1", "mode": "validation", "variables": {"object": {"a": 1}}}
//	{"id": 1, "type": "int", "value": {"int": "2"}, "cost": 3}
//
// Modes: "validation" (the default), "message" (without an authorizer), "condition" (without composed variables) and
// "mutation" (with the types of patches). `composed` lists a policy's variables with their expressions. With `repeat`,
// the task is run so often, and `others` has the answers that differ from the first one. `policy` has the expressions of
// a policy instead: the answer is how long they take. `merging` is a patch of an ApplyConfiguration to apply instead.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/big"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/util/json"
	policy "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
)

type task struct {
	ID         int64          `json:"id"`
	Expression string         `json:"expression"`
	Mode       string         `json:"mode"`
	Variables  map[string]any `json:"variables"`
	Composed   []named        `json:"composed"`
	Repeat     int            `json:"repeat"`
	Policy     []string       `json:"policy"`
	Merging    *merging       `json:"merging"`
}

type named struct {
	Name       string `json:"name"`
	Expression string `json:"expression"`
}

type answer struct {
	ID int64 `json:"id"`
	// What the parser or the checker found, with lines of source text.
	Issues string `json:"issues,omitempty"`
	Type   string `json:"type,omitempty"`
	// The type as errors about the type of a whole expression name it.
	Printed string `json:"printed,omitempty"`
	Value   any    `json:"value,omitempty"`
	// Why no program could be made.
	Creation string `json:"creation,omitempty"`
	Error    string `json:"error,omitempty"`
	// The cost with that of the composed variables that were used.
	Cost   *uint64  `json:"cost,omitempty"`
	Others []answer `json:"others,omitempty"`
}

type accessor struct{ name, expression string }

func (a accessor) GetName() string          { return a.name }
func (a accessor) GetExpression() string    { return a.expression }
func (a accessor) ReturnTypes() []*cel.Type { return []*cel.Type{cel.AnyType} }

var declarations = map[string]policy.OptionalVariableDeclarations{
	"":           {HasParams: true, HasAuthorizer: true},
	"validation": {HasParams: true, HasAuthorizer: true},
	"condition":  {HasParams: true, HasAuthorizer: true},
	"message":    {HasParams: true},
	"mutation":   {HasParams: true, HasAuthorizer: true, HasPatchTypes: true},
}

func main() {
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	tasks := make(chan []byte, 64)
	answers := make(chan []byte, 64)
	var workers sync.WaitGroup
	for range min(2, runtime.NumCPU()) {
		workers.Add(1)
		go func() {
			defer workers.Done()
			work(base, tasks, answers)
		}()
	}
	var writer sync.WaitGroup
	writer.Add(1)
	go func() {
		defer writer.Done()
		out := bufio.NewWriterSize(os.Stdout, 1<<16)
		for line := range answers {
			_, err := out.Write(line)
			check(err)
			if len(answers) == 0 {
				check(out.Flush())
			}
		}
		check(out.Flush())
	}()
	in := bufio.NewReaderSize(os.Stdin, 1<<16)
	for {
		line, err := in.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			tasks <- line
		}
		if err != nil {
			break
		}
	}
	close(tasks)
	workers.Wait()
	close(answers)
	writer.Wait()
}

func work(base *environment.EnvSet, tasks <-chan []byte, answers chan<- []byte) {
	composited, err := policy.NewCompositedCompiler(base)
	check(err)
	plain := policy.NewCompiler(base)
	for line := range tasks {
		var next task
		check(kjson.Unmarshal(line, &next))
		if next.Policy != nil {
			answers <- encode(measure(plain, next))
			continue
		}
		if next.Merging != nil {
			answers <- encode(merge(plain, next))
			continue
		}
		found := run(composited, plain, next)
		found.ID = next.ID
		if next.Repeat > 1 {
			seen := []string{string(encode(found))}
			for range next.Repeat - 1 {
				other := run(composited, plain, next)
				other.ID = next.ID
				if text := string(encode(other)); !slices.Contains(seen, text) {
					seen = append(seen, text)
					found.Others = append(found.Others, other)
				}
			}
		}
		answers <- encode(found)
	}
}

func encode(value any) []byte {
	var out bytes.Buffer
	lines := json.NewEncoder(&out)
	lines.SetEscapeHTML(false)
	check(lines.Encode(value))
	return out.Bytes()
}

func run(composited *policy.CompositedCompiler, plain policy.Compiler, next task) (found answer) {
	defer func() {
		if problem := recover(); problem != nil {
			found.Error = fmt.Sprintf("panic: %v", problem)
		}
	}()
	declared, ok := declarations[next.Mode]
	if !ok {
		panic("no such mode: " + next.Mode)
	}
	compiler := plain
	if next.Mode != "condition" {
		clearVariables(composited)
		for _, variable := range next.Composed {
			composited.CompileAndStoreVariable(accessor{variable.Name, variable.Expression}, declarations["validation"], environment.StoredExpressions)
		}
		compiler = composited
	}
	compiled := compiler.CompileCELExpression(accessor{expression: next.Expression}, declared, environment.StoredExpressions)
	if compiled.OutputType != nil {
		found.Type = checker.FormatCELType(compiled.OutputType)
		if text := compiled.OutputType.String(); text != found.Type {
			found.Printed = text
		}
	}
	if compiled.Error != nil {
		detail := compiled.Error.Detail
		if text, ok := strings.CutPrefix(detail, "compilation failed: "); ok {
			found.Issues = text
		} else {
			found.Creation = strings.TrimPrefix(detail, "program instantiation failed: ")
		}
		return
	}
	user := &user.DefaultInfo{Name: getText(next.Variables, "request", "userInfo", "username")}
	scope := &activation{values: map[string]any{}}
	for _, name := range []string{"object", "oldObject", "params", "request", "namespaceObject"} {
		scope.values[name] = next.Variables[name]
	}
	if declared.HasAuthorizer {
		scope.values["authorizer"] = library.NewAuthorizerVal(user, decider{})
		scope.values["authorizer.requestResource"] = library.NewResourceAuthorizerVal(user, decider{}, requested{next.Variables})
	}
	composition := composited.CreateContext(context.Background())
	if next.Mode != "condition" {
		scope.values["variables"] = composition.Variables(scope)
	}
	value, details, err := compiled.Program.ContextEval(composition, scope)
	if details != nil {
		cost := *details.ActualCost() + uint64(composition.GetAndResetCost())
		found.Cost = &cost
	}
	if err != nil {
		found.Error = err.Error()
		return
	}
	found.Value = toCanonical(value)
	return
}

// A new compiler takes long, so the variables of the last task are deleted from it.
func clearVariables(compiler *policy.CompositedCompiler) {
	state := reflect.ValueOf(compiler).Elem().FieldByName("state").Elem()
	clear(read[*apiservercel.DeclType](state.FieldByName("mapType")).Fields)
	clear(read[map[string]policy.CompilationResult](state.FieldByName("compiledVariables")))
}

// Returns the value of a field that is not exported.
func read[T any](field reflect.Value) T {
	return reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Interface().(T)
}

type activation struct{ values map[string]any }

func (a *activation) ResolveName(name string) (any, bool) {
	value, ok := a.values[name]
	return value, ok
}

func (a *activation) Parent() interpreter.Activation { return nil }

func getText(value any, path ...string) string {
	for _, name := range path {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	text, _ := value.(string)
	return text
}

type requested struct{ variables map[string]any }

func (r requested) get(path ...string) string { return getText(r.variables["request"], path...) }
func (r requested) GetName() string           { return r.get("name") }
func (r requested) GetNamespace() string      { return r.get("namespace") }
func (r requested) GetSubresource() string    { return r.get("requestSubResource") }
func (r requested) GetResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{
		Group:    r.get("requestResource", "group"),
		Version:  r.get("requestResource", "version"),
		Resource: r.get("requestResource", "resource"),
	}
}

// Decides by a digest of what it is asked, so that each part of a question counts, except for selectors.
type decider struct{}

func (decider) Authorize(_ context.Context, asked authorizer.Attributes) (authorizer.Decision, string, error) {
	words := []string{
		asked.GetUser().GetName(), asked.GetVerb(), asked.GetPath(), asked.GetAPIGroup(), asked.GetResource(),
		asked.GetSubresource(), asked.GetNamespace(), asked.GetName(),
	}
	text := strings.Join(words, "|")
	digest := fnv.New32a()
	digest.Write([]byte(text))
	switch digest.Sum32() % 4 {
	case 0:
		return authorizer.DecisionAllow, "", nil
	case 1:
		return authorizer.DecisionDeny, "denied: " + text, nil
	case 2:
		return authorizer.DecisionNoOpinion, "no opinion: " + text, nil
	default:
		return authorizer.DecisionNoOpinion, "", errors.New("failed: " + text)
	}
}

// Returns a value as JSON in which values of all types differ.
func toCanonical(value ref.Val) any {
	switch value := value.(type) {
	case types.Null:
		return object("null", nil)
	case types.Bool:
		return bool(value)
	case types.String:
		return string(value)
	case types.Int:
		return object("int", fmt.Sprint(int64(value)))
	case types.Uint:
		return object("uint", fmt.Sprint(uint64(value)))
	case types.Double:
		return object("double", formatDouble(float64(value)))
	case types.Bytes:
		return object("bytes", base64.StdEncoding.EncodeToString(value))
	case types.Duration:
		return object("duration", fmt.Sprint(value.Nanoseconds()))
	case types.Timestamp:
		nanoseconds := big.NewInt(value.Unix())
		nanoseconds.Mul(nanoseconds, big.NewInt(1e9)).Add(nanoseconds, big.NewInt(int64(value.Nanosecond())))
		return object("timestamp", nanoseconds.String())
	case *types.Optional:
		if !value.HasValue() {
			return object("optional", []any{})
		}
		return object("optional", []any{toCanonical(value.GetValue())})
	case *types.Type:
		return object("type", value.TypeName())
	case *dynamic.ObjectVal:
		fields := read[map[string]ref.Val](reflect.ValueOf(value).Elem().FieldByName("fields"))
		return toCanonicalStruct(value, fields)
	case *mutation.JSONPatchVal:
		fields := map[string]ref.Val{"op": types.String(value.Op), "path": types.String(value.Path), "from": types.String(value.From)}
		if value.Val != nil {
			fields["value"] = value.Val
		}
		return toCanonicalStruct(value, fields)
	case apiservercel.Quantity:
		return opaque(value, formatQuantity(value.Quantity))
	case *apiservercel.Quantity:
		return opaque(value, formatQuantity(value.Quantity))
	case apiservercel.IP:
		return opaque(value, value.Addr.String())
	case apiservercel.CIDR:
		return opaque(value, value.Prefix.String())
	case apiservercel.Semver:
		value.Version.Build = nil
		return opaque(value, value.Version.String())
	case traits.Lister:
		elements := []any{}
		for next := value.Iterator(); next.HasNext() == types.True; {
			elements = append(elements, toCanonical(next.Next()))
		}
		return elements
	case traits.Mapper:
		entries := [][2]any{}
		for next := value.Iterator(); next.HasNext() == types.True; {
			key := next.Next()
			if value, found := value.Find(key); found {
				entries = append(entries, [2]any{toCanonical(key), toCanonical(value)})
			}
		}
		slices.SortFunc(entries, func(one, other [2]any) int { return bytes.Compare(encode(one[0]), encode(other[0])) })
		return object("map", entries)
	case *types.Err:
		return object("error", value.Error())
	default:
		return object("opaque", value.Type().TypeName())
	}
}

func object(name string, value any) any { return map[string]any{name: value} }

func opaque(value ref.Val, text string) any {
	return map[string]any{"opaque": value.Type().TypeName(), "text": text}
}

func toCanonicalStruct(value ref.Val, fields map[string]ref.Val) any {
	canonical := map[string]any{}
	for name, field := range fields {
		canonical[name] = toCanonical(field)
	}
	return map[string]any{"struct": value.Type().TypeName(), "fields": canonical}
}

// Formats a double as JavaScript does.
func formatDouble(value float64) string {
	switch {
	case math.IsNaN(value):
		return "NaN"
	case math.IsInf(value, 1):
		return "Infinity"
	case math.IsInf(value, -1):
		return "-Infinity"
	}
	text := strings.TrimSpace(string(encode(value)))
	mantissa, exponent, found := strings.Cut(text, "e")
	if found && exponent[0] != '-' && exponent[0] != '+' {
		return mantissa + "e+" + exponent
	}
	return text
}

// Formats a quantity as a decimal number without zeros at its end.
func formatQuantity(quantity *resource.Quantity) string {
	text := quantity.AsDec().String()
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
