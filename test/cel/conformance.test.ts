import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { tests as checking } from "@bufbuild/cel-spec/testdata/checking.js";
import { tests as comprehension } from "@bufbuild/cel-spec/testdata/comprehension.js";
import { tests as conformance } from "@bufbuild/cel-spec/testdata/conformance.js";
import { tests as parsing } from "@bufbuild/cel-spec/testdata/parsing.js";
import type {
  SerializedIncrementalTestSuite,
  SerializedIncrementalTest as Test,
} from "@bufbuild/cel-spec/testdata/tests.js";
import { check } from "../../lib/cel/checker/checker.ts";
import { member, overload } from "../../lib/cel/functions.ts";
import { createAdmissionEnvironment } from "../../lib/cel/kubernetes.ts";
import { parse } from "../../lib/cel/parser/parser.ts";
import { compile } from "../../lib/cel/program/program.ts";
import * as types from "../../lib/cel/types.ts";
import { formatType, type Type } from "../../lib/cel/types.ts";
import {
  CelMap,
  EvaluationError,
  TypeValue,
  toDouble,
  toInt,
  toMapKey,
  toUint,
  type Value,
} from "../../lib/cel/values.ts";
import { newestMinor } from "../control-plane/binaries.ts";
import { needs } from "../parts.ts";
import { compare, print } from "./compare.ts";
import { generateTasks } from "./generate.ts";
import { toCanonical } from "./postern.ts";
import { startEvaluator } from "./upstream.ts";

// Runs the tests of CEL's specification. Kubernetes enables only a part of CEL, so tests of other parts are left out.

const protobufMessages = "protobuf's messages, wrappers and enums";
const otherVersion = "Kubernetes' version of cel-go and its libraries has another answer";
const uncheckedExpressions = "Kubernetes refuses unchecked expressions";
const mixedTypes = "Kubernetes refuses lists and maps of several types";

/**
 * The tests that are left out, with the reasons. `at` is matched with `file/section/test`, `having` with the JSON of
 * the test. Only the first row that matches a test is used.
 */
const leftOut: readonly { reason: string; at?: RegExp; having?: RegExp }[] = [
  { reason: protobufMessages, at: /^(dynamic|enums|proto2|proto2_ext|proto3|wrappers|comparisons\/eq_wrapper)\// },
  { reason: "the library math", at: /^math_ext\// },
  { reason: "cel.bind", at: /^bindings_ext\// },
  { reason: "cel.block", at: /^block_ext\// },
  { reason: "the library base64", at: /^encoders_ext\// },
  { reason: "containers", at: /^namespace\/namespace\// },
  { reason: protobufMessages, having: /TestAllTypes|objectValue|google\.protobuf\.\w+\{/ },
  { reason: otherVersion, at: /^string_ext\/value_errors\/(last)?indexof_out_of_range$/ },
  {
    reason: otherVersion,
    at: /^string_ext\/format\//,
    having: /%(\.\d)?e|Infinity|NaN|"%s\\"\.format\(\[(dyn\()?[[{]/,
  },
  { reason: otherVersion, at: /^fields\/map_fields\/map_bad_key_type_(or_true|and_false)$/ },
  { reason: otherVersion, at: /^fields\/qualified_identifier_resolution\/map_value_repeat_key$/ },
  { reason: otherVersion, at: /^optionals\/optionals\/map_(null_entry_no_such_key|present_key_invalid_field)$/ },
];

/** The number of tests that pass, and of those that are left out for each reason. */
const expectedCounts = {
  passed: 1310,
  [protobufMessages]: 682,
  "the library math": 199,
  [mixedTypes]: 46,
  "cel.block": 37,
  [uncheckedExpressions]: 32,
  [otherVersion]: 27,
  "cel.bind": 5,
  "the library base64": 4,
  containers: 2,
};

/** A protobuf message as JSON. */
type Json = any;

/** Converts a `cel.expr.Value` of the specification into a value of lib/cel. */
const toValue = (json: Json): Value => {
  const [[kind, value] = ["nothing"]] = Object.entries<Json>(json);
  switch (kind) {
    case "boolValue":
    case "nullValue":
    case "stringValue":
      return value;
    case "bytesValue":
      return new Uint8Array(Buffer.from(value, "base64"));
    case "doubleValue":
      return toDouble(Number(value));
    case "int64Value":
      return toInt(BigInt(value));
    case "uint64Value":
      return toUint(BigInt(value));
    case "listValue":
      return (value.values ?? []).map(toValue);
    case "mapValue":
      return new CelMap(
        new Map(
          (value.entries ?? []).map((entry: Json) => {
            const key = toValue(entry.key);
            return [toMapKey(key), [key, toValue(entry.value)]];
          }),
        ),
      );
    case "typeValue":
      return new TypeValue(types.opaque(value));
  }
  throw new Error(`there is no value for ${kind}`);
};

/** The types of lib/cel by their names in the specification's protobuf messages. */
const namedTypes: Readonly<Record<string, Type>> = {
  BOOL: types.bool,
  BYTES: types.bytes,
  DOUBLE: types.double,
  DURATION: types.duration,
  INT64: types.int,
  STRING: types.string,
  TIMESTAMP: types.timestamp,
  UINT64: types.uint,
};

/** Converts a `cel.expr.Type` of the specification into a type of lib/cel. */
const toType = (json: Json): Type => {
  const [[kind, value] = ["nothing"]] = Object.entries<Json>(json);
  switch (kind) {
    case "abstractType":
      return { ...types.opaque(value.name), parameters: value.parameterTypes.map(toType) };
    case "dyn":
      return types.dyn;
    case "listType":
      return types.listOf(toType(value.elemType));
    case "mapType":
      return types.mapOf(toType(value.keyType), toType(value.valueType));
    case "null":
      return types.nullType;
    case "primitive":
    case "wellKnown":
      if (namedTypes[value]) return namedTypes[value];
      break;
    case "typeParam":
      return types.parameter(value);
  }
  throw new Error(`there is no type for ${kind}`);
};

const admission = createAdmissionEnvironment({});

/** Runs a test of the specification. Returns the reason if the test must be left out, and the fault if it fails. */
const run = ({ original, type }: Test): { reason: string } | { wrong: string } | undefined => {
  const { expr, bindings = {}, typeEnv = [], evalError, typedResult }: Json = original;
  const { checkOnly, disableCheck, disableMacros }: Json = original;
  const variables = new Map<string, Type>();
  const functions = new Map(admission.functions);
  for (const { name, ident, function: declared } of typeEnv) {
    if (ident) variables.set(name, toType(ident.type));
    const overloads = (declared?.overloads ?? []).map((one: Json) =>
      (one.isInstanceFunction ? member : overload)(
        one.overloadId,
        (one.params ?? []).map(toType),
        toType(one.resultType),
      ),
    );
    if (declared) functions.set(name, { name, overloads });
  }
  const environment = { ...admission, variables, functions, macros: disableMacros ? [] : admission.macros };
  /** Returns the fault if an expression fails with this message, unless the test expects an error. */
  const fail = (message: string) => {
    // If the test expects an error, any error will do. But an "undeclared" error may mean that lib/cel lacks the name,
    // so it will do only if the test expects "undeclared", too.
    const isUndeclaredError = (text: string) => text.includes("undeclared");
    const isExpected = evalError && (!isUndeclaredError(message) || isUndeclaredError(evalError.errors[0].message));
    return isExpected ? undefined : { wrong: message };
  };

  const parsed = parse(expr, environment.macros);
  if (!("kind" in parsed)) return fail(`${parsed[0]?.message}`);
  const checked = check(parsed, environment);
  if (!("expression" in checked)) {
    const message = `${checked[0]?.message}`;
    const failure = fail(message);
    if (failure && disableCheck) return { reason: uncheckedExpressions };
    return failure && /^expected type '.*' but found '.*'$/.test(message) ? { reason: mixedTypes } : failure;
  }
  const actualType = formatType(checked.type);
  const wantedType = typedResult ? formatType(toType(typedResult.deducedType)) : type;
  if (wantedType !== undefined && actualType !== wantedType)
    return { wrong: `has type ${actualType} instead of ${wantedType}` };
  if (checkOnly) return undefined;
  try {
    const find = (name: string) => (bindings[name] ? toValue(bindings[name].value) : undefined);
    const outcome = compile(checked, environment).evaluate({ find });
    if ("error" in outcome) return fail(outcome.error);
    const value = print(toCanonical(outcome.value));
    if (evalError) return { wrong: `${value} instead of ${evalError.errors[0].message}` };
    // A test without a value expects `true`.
    const wanted = print(toCanonical(toValue(typedResult?.result ?? original.value ?? { boolValue: true })));
    return value === wanted ? undefined : { wrong: `${value} instead of ${wanted}` };
  } catch (error) {
    if (error instanceof EvaluationError) return fail(error.message);
    throw error;
  }
};

const listTests = ({
  name,
  suites = [],
  tests = [],
}: SerializedIncrementalTestSuite): { path: string; test: Test }[] => [
  ...tests.map((test) => ({ path: `${name}/${test.original.name}`, test })),
  ...suites.flatMap(listTests).map(({ path, test }) => ({ path: `${name}/${path}`, test })),
];

it("the tests of CEL's specification pass, except for tests of what Kubernetes doesn't have", (context) => {
  const countsByOutcome: Record<string, number> = {};
  const failures: string[] = [];
  for (const { path, test } of (conformance.suites ?? []).flatMap(listTests)) {
    const json = JSON.stringify(test.original);
    const exception = leftOut.find(({ at, having }) => (at?.test(path) ?? true) && (having?.test(json) ?? true));
    const outcome = exception ?? run(test);
    if (outcome && "wrong" in outcome) failures.push(`${path}: ${test.original.expr}: ${outcome.wrong}`);
    else {
      const name = outcome?.reason ?? "passed";
      countsByOutcome[name] = (countsByOutcome[name] ?? 0) + 1;
    }
  }
  for (const [name, count] of Object.entries(countsByOutcome)) context.diagnostic(`${count} ${name}`);
  assert.deepEqual(failures, []);
  assert.deepEqual(countsByOutcome, expectedCounts);
});

describe("the expressions of CEL's specification", await needs("CEL evaluator"), () => {
  it("the expressions of CEL's specification get from lib/cel the answers of kube-apiserver's packages", async () => {
    const evaluator = await startEvaluator(newestMinor);
    const { value: base } = generateTasks(1).next();
    const tests = [checking, comprehension, conformance, parsing].flatMap(listTests);
    const tasks = [...new Set(tests.map(({ test }) => test.original.expr))]
      // Kubernetes knows the messages of protobuf itself, and lib/cel doesn't.
      .filter((expression) => !/google\.protobuf\.\w+\{/.test(expression))
      .map((expression) => ({ ...base, expression, policyVariables: [] }));
    const { differences } = await compare(evaluator, { taskCount: tasks.length, tasks: tasks.values() });
    await evaluator.stop();
    assert.deepEqual(differences, []);
  });
});
