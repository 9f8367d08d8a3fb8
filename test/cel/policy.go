package main

import (
	"context"
	"time"

	policy "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// How many nanoseconds all expressions of a policy take together, and what they result in.
type timing struct {
	Compilation int64  `json:"compilation"`
	Evaluation  int64  `json:"evaluation"`
	Results     []any  `json:"results"`
	Cost        uint64 `json:"cost"`
}

// Compiles the expressions of a policy once, and evaluates all of them as often as `repeat`.
func measure(compiler policy.Compiler, next task) *timing {
	programs := make([]policy.CompilationResult, len(next.Policy))
	found := &timing{Results: make([]any, len(next.Policy))}
	begun := time.Now()
	for index, expression := range next.Policy {
		programs[index] = compiler.CompileCELExpression(accessor{expression: expression}, declarations["condition"], environment.StoredExpressions)
	}
	found.Compilation = time.Since(begun).Nanoseconds()
	scope := &activation{values: next.Variables}
	begun = time.Now()
	for round := range next.Repeat {
		for index, compiled := range programs {
			value, details, err := compiled.Program.ContextEval(context.Background(), scope)
			check(err)
			if round == 0 {
				found.Results[index] = toCanonical(value)
				found.Cost += *details.ActualCost()
			}
		}
	}
	found.Evaluation = time.Since(begun).Nanoseconds() / int64(next.Repeat)
	return found
}
