import {
  createPolicyCompiler,
  evaluatePass,
  type PolicyCompiler,
  type PolicyCompilerOptions,
} from "../../lib/admission-policies/expressions.ts";
import { formatRuntimeType } from "../../lib/cel/contexts.ts";
import {
  type AuthorizationAnswer,
  type AuthorizationAttributes,
  createAuthorizer,
  createResourceCheck,
} from "../../lib/cel/libraries/kubernetes/authorizer.ts";
import { Cidr } from "../../lib/cel/libraries/kubernetes/cidr.ts";
import { formatIp, Ip } from "../../lib/cel/libraries/kubernetes/ip.ts";
import { Quantity } from "../../lib/cel/libraries/kubernetes/quantity.ts";
import { Semver } from "../../lib/cel/libraries/kubernetes/semver.ts";
import { StructValue } from "../../lib/cel/program/program.ts";
import { formatType } from "../../lib/cel/types.ts";
import {
  Duration,
  EvaluationError,
  getDouble,
  getType,
  isDouble,
  isInt,
  isList,
  isMap,
  listEntries,
  Optional,
  Timestamp,
  TypeValue,
  toArray,
  Uint,
  type Value,
} from "../../lib/cel/values.ts";
import { parseMinor } from "../../lib/since.ts";
import { newestMinor } from "../control-plane/binaries.ts";
import type { Task } from "./generate.ts";
import type { Answer } from "./upstream.ts";

const scopes: Record<Task["mode"], { options: PolicyCompilerOptions; hasAuthorizer: boolean }> = {
  validation: { options: {}, hasAuthorizer: true },
  message: { options: {}, hasAuthorizer: false },
  condition: { options: { hasVariables: false }, hasAuthorizer: true },
  mutation: { options: { isMutation: true }, hasAuthorizer: true },
};

/** Returns Postern's answer to a task, in a minor version of Kubernetes. */
export const evaluateTask = (task: Task, minor: string): Answer => {
  try {
    return evaluate(task, minor);
  } catch (error) {
    return { error: `failure: ${error instanceof Error ? error.stack : error}` };
  }
};

/** The compilers for tasks without variables of a policy, by minor version and mode. */
const compilers = new Map<string, PolicyCompiler>();

const createCompiler = (mode: Task["mode"], minor: string): PolicyCompiler =>
  createPolicyCompiler(
    // With any paramKind, expressions can use `params`.
    { paramKind: {} },
    {
      ...scopes[mode].options,
      // The Go program compiles stored expressions, which may use functions one minor earlier than new ones may. Of the
      // compared minors, only the newest has such functions, so Postern compiles its expressions as the next minor.
      kubernetes: minor === newestMinor ? `1.${parseMinor(minor) + 1}` : minor,
    },
  );

/** Returns the compiler for a task. A task that declares variables of a policy gets a compiler of its own. */
const findCompiler = ({ mode, policyVariables }: Task, minor: string): PolicyCompiler => {
  if (policyVariables.length > 0) return createCompiler(mode, minor);
  const compiler = compilers.get(`${minor} ${mode}`) ?? createCompiler(mode, minor);
  compilers.set(`${minor} ${mode}`, compiler);
  return compiler;
};

/** Evaluates a task by lib/cel, and returns the answer in the form of upstream's answers. */
const evaluate = (task: Task, minor: string): Answer => {
  const { expression: text, mode, variables, policyVariables } = task;
  const { hasAuthorizer } = scopes[mode];
  const compiler = findCompiler(task, minor);
  if (mode !== "condition") for (const { name, expression } of policyVariables) compiler.addVariable(name, expression);
  const expression = compiler.compile(text, undefined, hasAuthorizer);
  const { compiled } = expression;
  if ("error" in compiled)
    return compiled.error.startsWith(uncompiled)
      ? { issues: compiled.error.slice(uncompiled.length) }
      : { creation: compiled.error.replace(/^program instantiation failed: /, "") };

  const [type, printed] = [formatType(compiled.program.type), formatRuntimeType(compiled.program.type)];
  const names = ["object", "oldObject", "params", "request", "namespaceObject"];
  const input = Object.fromEntries(names.map((name) => [name, variables[name] ?? null]));
  const values = { ...input, ...(hasAuthorizer && createAuthorizerVariables(variables.request)) };
  const evaluateWithin = (budgetSize: number) => {
    const budget = { left: budgetSize };
    // The last argument is the list of typed objects. It is empty, because upstream gets JSON.
    const results = evaluatePass([expression], compiler.variables, values, budget, []);
    return { results, cost: budgetSize - budget.left };
  };
  const exact = evaluateWithin(Number.MAX_SAFE_INTEGER);
  // A macro `has` may cost -1. Costs are unsigned, as upstream's, so -1 becomes nearly 2^64: that needs a larger budget.
  const { results, cost } = "exhausted" in exact.results ? evaluateWithin(2 ** 65) : exact;
  const [result] = "exhausted" in results ? [] : results;
  const answer = { type, ...(printed !== type && { printed }), cost };
  if (result && "value" in result) return { ...answer, value: toCanonical(result.value) };
  const failed = `expression '${text}' resulted in error: `;
  if (!result || !("error" in result) || !result.error.startsWith(failed))
    throw new Error(`the result of ${text} is ${JSON.stringify(result)}`);
  return { ...answer, error: result.error.slice(failed.length) };
};

const uncompiled = "compilation failed: ";

/** Returns the variables `authorizer` and `authorizer.requestResource` for a request. */
const createAuthorizerVariables = (request: Value | undefined) => {
  const getText = (...path: string[]) => {
    let value: Value | undefined = request;
    for (const name of path)
      value = value !== undefined && isMap(value) ? (value as Record<string, Value>)[name] : undefined;
    return typeof value === "string" ? value : "";
  };
  const authorizer = createAuthorizer({ user: getText("userInfo", "username") }, decide);
  const requested = createResourceCheck(authorizer, {
    group: getText("requestResource", "group"),
    resource: getText("requestResource", "resource"),
    subresource: getText("requestSubResource"),
    namespace: getText("namespace"),
    name: getText("name"),
  });
  return { authorizer, "authorizer.requestResource": requested };
};

/**
 * Answers the authorizer's question as main.go (the program with upstream's packages) does: by a hash of the question.
 */
const decide = (question: AuthorizationAttributes): AuthorizationAnswer => {
  const resource = "resourceAttributes" in question ? question.resourceAttributes : undefined;
  const path = "nonResourceAttributes" in question ? question.nonResourceAttributes : undefined;
  const { group = "", resource: resourceName = "", subresource = "", namespace = "", name = "" } = resource ?? {};
  const verb = resource?.verb ?? path?.verb;
  const parts = [question.user, verb, path?.path ?? "", group, resourceName, subresource, namespace, name];
  const text = parts.join("|");
  // The hash is FNV-1a with 32 bits.
  let digest = 0x811c9dc5;
  for (const byte of Buffer.from(text)) digest = Math.imul(digest ^ byte, 0x01000193);
  switch ((digest >>> 0) % 4) {
    case 0:
      return { allowed: true };
    case 1:
      return { allowed: false, reason: `denied: ${text}` };
    case 2:
      return { allowed: false, reason: `no opinion: ${text}` };
    default:
      return { allowed: false, error: `failed: ${text}` };
  }
};

/** Returns a value in the JSON that main.go prints. In this JSON, values of different types always differ. */
export const toCanonical = (value: Value): unknown => {
  if (value === null) return { null: null };
  // Upstream leaves some errors in fields and entries, and so does lib/cel, although an error is no value.
  if ((value as unknown) instanceof EvaluationError) return { error: (value as unknown as EvaluationError).message };
  if (typeof value === "boolean" || typeof value === "string") return value;
  if (isInt(value)) return { int: `${value}` };
  if (isDouble(value)) {
    const number = getDouble(value);
    return { double: Object.is(number, -0) ? "-0" : `${number}` };
  }
  if (value instanceof Uint) return { uint: `${value.value}` };
  if (value instanceof Uint8Array) return { bytes: Buffer.from(value).toString("base64") };
  if (value instanceof Duration) return { duration: `${value.nanos}` };
  if (value instanceof Timestamp) return { timestamp: `${value.nanos}` };
  if (value instanceof Optional) return { optional: value.value === undefined ? [] : [toCanonical(value.value)] };
  if (value instanceof TypeValue) return { type: value.of.name };
  if (isList(value)) return toArray(value).map(toCanonical);
  if (isMap(value)) return { map: [...listEntries(value)].map((entry) => entry.map(toCanonical)) };
  if (value instanceof StructValue) {
    const empty = value.type.name === "JSONPatch" ? { from: "", op: "", path: "" } : {};
    const setFields = [...value.fields].map(([name, field]) => [name, toCanonical(field)]);
    return { fields: { ...empty, ...Object.fromEntries(setFields) }, struct: value.type.name };
  }
  const opaque = getType(value).name;
  if (value instanceof Quantity) return { opaque, text: formatQuantity(value) };
  if (value instanceof Ip) return { opaque, text: formatIp(value) };
  if (value instanceof Cidr) return { opaque, text: `${formatIp(value.ip)}/${value.prefixLength}` };
  if (value instanceof Semver) {
    const version = value.numbers.join(".");
    return { opaque, text: value.prerelease.length > 0 ? `${version}-${value.prerelease.join(".")}` : version };
  }
  return { opaque };
};

/** Returns a quantity as a decimal number without zeros at its end. */
const formatQuantity = ({ amount: { digits, exponent } }: Quantity): string => {
  const sign = digits < 0n ? "-" : "";
  const text = `${digits < 0n ? -digits : digits}`;
  if (exponent >= 0) return digits === 0n ? "0" : `${sign}${text}${"0".repeat(exponent)}`;
  const padded = text.padStart(1 - exponent, "0");
  const fraction = padded.slice(exponent).replace(/0+$/, "");
  return `${sign}${padded.slice(0, exponent)}${fraction === "" ? "" : `.${fraction}`}`;
};
