import { newestMinor } from "../../infra/parity/control-plane/binaries.ts";
import { type CheckedExpression, check, formatIssues } from "../../lib/cel/checker.ts";
import { type ExpressionContext, formatRuntimeType } from "../../lib/cel/contexts.ts";
import type { Environment } from "../../lib/cel/environment.ts";
import { createAdmissionEnvironment } from "../../lib/cel/kubernetes.ts";
import {
  type AuthorizationAnswer,
  type AuthorizationAttributes,
  createAuthorizer,
  createResourceCheck,
} from "../../lib/cel/libraries/authorizer.ts";
import { Cidr } from "../../lib/cel/libraries/cidr.ts";
import { formatIp, Ip } from "../../lib/cel/libraries/ip.ts";
import { Quantity } from "../../lib/cel/libraries/quantity.ts";
import { Semver } from "../../lib/cel/libraries/semver.ts";
import { parse } from "../../lib/cel/parser.ts";
import { type Budget, compile, FieldObject, type Program, StructValue } from "../../lib/cel/program.ts";
import type { Issue } from "../../lib/cel/syntax.ts";
import * as types from "../../lib/cel/types.ts";
import { formatType, type Type } from "../../lib/cel/types.ts";
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
  Uint,
  type Value,
} from "../../lib/cel/values.ts";
import type { Task } from "./generate.ts";
import type { Answer } from "./upstream.ts";

const variablesType = types.struct("kubernetes.variables");
const variableKinds = new Set(["bool", "bytes", "double", "duration", "int", "null", "string", "timestamp", "uint"]);

/** Returns the type that a variable of a policy has in other expressions; undefined stands for one that is wrong. */
const toVariableType = (type: Type | undefined): Type => {
  if (type?.kind === "list" || type?.kind === "map")
    return { ...type, parameters: type.parameters.map(toVariableType) };
  return type && variableKinds.has(type.kind) ? type : types.dyn;
};

const scopes: Record<Task["mode"], ExpressionContext> = {
  validation: { hasParams: true, hasAuthorizer: true },
  message: { hasParams: true },
  condition: { hasParams: true, hasAuthorizer: true },
  mutation: { hasParams: true, hasAuthorizer: true, isMutation: true },
};

/** The limit of one expression. */
const expressionLimit = 1_000_000;

const isIssues = (result: object): result is readonly Issue[] => Array.isArray(result);

type Compiled = { checked?: CheckedExpression; program?: Program; answer: Answer };

const compileText = (text: string, environment: Environment): Compiled => {
  const parsed = parse(text, environment.macros, environment.hasQuotedNames);
  if (isIssues(parsed)) return { answer: { issues: formatIssues(parsed, text) } };
  const checked = check(parsed, environment);
  if (isIssues(checked)) return { answer: { issues: formatIssues(checked, text) } };
  try {
    const [type, printed] = [formatType(checked.type), formatRuntimeType(checked.type)];
    const answer = { type, ...(printed !== type && { printed }) };
    return { checked, program: compile(checked, environment), answer };
  } catch (error) {
    if (!(error instanceof EvaluationError)) throw error;
    return { checked, answer: { creation: error.message } };
  }
};

/** The variables of a policy, each of which is computed when it is used first. */
class PolicyVariables extends FieldObject {
  readonly #compute: (name: string) => Value | undefined;
  readonly #known = new Map<string, Value | undefined | EvaluationError>();
  constructor(compute: (name: string) => Value | undefined) {
    super();
    this.#compute = compute;
  }
  get type(): Type {
    return variablesType;
  }
  find(name: string): Value | undefined {
    if (!this.#known.has(name)) {
      try {
        this.#known.set(name, this.#compute(name));
      } catch (error) {
        if (!(error instanceof EvaluationError)) throw error;
        this.#known.set(name, error);
      }
    }
    const known = this.#known.get(name);
    if (known instanceof EvaluationError) throw known;
    return known;
  }
}

/** Returns what this implementation finds for a task, in a minor of Kubernetes. */
export const evaluateTask = (task: Task, minor: string): Answer => {
  try {
    return evaluate(task, minor);
  } catch (error) {
    return { error: `failure: ${error instanceof Error ? error.stack : error}` };
  }
};

/** The environments without variables of a policy, by their minor and mode. */
const environments = new Map<string, Environment>();

const evaluate = ({ expression, mode, variables, composed }: Task, minor: string): Answer => {
  const variableTypes = new Map<string, Type>();
  const compiled = new Map<string, Compiled>();
  // Nothing keeps a reference to the types but the environment, which is used for this task only.
  let environment = composed.length === 0 ? environments.get(`${minor} ${mode}`) : undefined;
  if (!environment) {
    environment = createAdmissionEnvironment({
      ...scopes[mode],
      // The newest version has new functions in stored expressions only, and these are compared.
      ...(minor !== newestMinor && { kubernetes: minor }),
      ...(mode !== "condition" && { variables: variableTypes }),
    });
    if (composed.length === 0) environments.set(`${minor} ${mode}`, environment);
  }
  if (mode !== "condition")
    for (const { name, expression } of composed) {
      const one = compileText(expression, environment);
      compiled.set(name, one);
      variableTypes.set(name, toVariableType(one.program && one.checked?.type));
    }
  const { program, answer } = compileText(expression, environment);
  if (!program) return answer;

  let composedCost = 0;
  const policyVariables = new PolicyVariables((name) => {
    const one = compiled.get(name);
    if (!one) return undefined;
    if (!one.program) {
      const { issues, creation } = one.answer;
      const detail =
        issues === undefined ? `program instantiation failed: ${creation}` : `compilation failed: ${issues}`;
      throw new EvaluationError(`composited variable "${name}" fails to compile: ${detail}`);
    }
    const outcome = one.program.evaluate(scope, createBudget());
    composedCost += outcome.cost;
    if ("error" in outcome)
      throw new EvaluationError(`composited variable "${name}" fails to evaluate: ${outcome.error}`);
    return outcome.value;
  });
  const { authorizer, requested } = createAuthorizerVariables(variables.request);
  const scope = {
    find: (name: string): Value | undefined => {
      if (name === "variables") return policyVariables;
      if (name === "authorizer") return authorizer;
      if (name === "authorizer.requestResource") return requested;
      return variables[name] ?? null;
    },
  };
  const outcome = program.evaluate(scope, createBudget());
  const result = { ...answer, cost: outcome.cost, ...(composedCost > 0 && { composed: composedCost }) };
  return "error" in outcome ? { ...result, error: outcome.error } : { ...result, value: toCanonical(outcome.value) };
};

const createBudget = (): Budget => ({ left: expressionLimit });

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
  return { authorizer, requested };
};

/** Decides as main.go does: by a digest of what it is asked. */
const decide = (asked: AuthorizationAttributes): AuthorizationAnswer => {
  const resource = "resourceAttributes" in asked ? asked.resourceAttributes : undefined;
  const path = "nonResourceAttributes" in asked ? asked.nonResourceAttributes : undefined;
  const { group = "", resource: name = "", subresource = "", namespace = "" } = resource ?? {};
  const verb = resource?.verb ?? path?.verb;
  const text = [asked.user, verb, path?.path ?? "", group, name, subresource, namespace, resource?.name ?? ""].join(
    "|",
  );
  // FNV-1a, with 32 bits.
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

/** Returns a value as JSON in which values of all types differ, as main.go prints it. */
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
  if (value instanceof Duration) return { duration: `${value.nanoseconds}` };
  if (value instanceof Timestamp) return { timestamp: `${value.nanoseconds}` };
  if (value instanceof Optional) return { optional: value.value === undefined ? [] : [toCanonical(value.value)] };
  if (value instanceof TypeValue) return { type: value.of.name };
  if (isList(value)) return value.map(toCanonical);
  if (isMap(value)) return { map: [...listEntries(value)].map((entry) => entry.map(toCanonical)) };
  if (value instanceof StructValue) {
    const empty = value.type.name === "JSONPatch" ? { from: "", op: "", path: "" } : {};
    const own = [...value.fields].map(([name, field]) => [name, toCanonical(field)]);
    return { fields: { ...empty, ...Object.fromEntries(own) }, struct: value.type.name };
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
