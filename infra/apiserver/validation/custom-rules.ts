import { mostExpressionCost } from "#lib/cel/cost-formulas.ts";
import { type CompiledExpression, compileExpression, createAdmissionEnvironment } from "#lib/cel/kubernetes.ts";
import { dyn, optionalOf } from "#lib/cel/types.ts";
import { Double, Duration, emptyOptional, Optional, Timestamp, type Value } from "#lib/cel/values.ts";
import { getOwn, isMap, isSame, type JsonMap, toList, toMap } from "#lib/json.ts";
import { selectTraits } from "./changes.ts";
import type { FieldFault } from "./fields.ts";
import { formatBadValue, pickKeys, toIdentity } from "./schema.ts";

// Evaluates the rules (x-kubernetes-validations) of a CustomResourceDefinition. The API server has already accepted the
// definition, so that expressions compile; their variables have no static types here, but the values have theirs.

/**
 * Returns the faults of an object by the rules of its kind; `old` is the object before an update. Calls `tell` for each rule
 * that has a value here, but an expression that doesn't compile here.
 */
export type RuleValidation = (object: unknown, old: unknown, tell: (sentence: string) => void) => FieldFault[];

interface Rule {
  text: string;
  program: CompiledExpression;
  usesOldSelf: boolean;
  optionalOldSelf: boolean;
  message: string | undefined;
  messageProgram: CompiledExpression | undefined;
  reason: string;
  fieldPath: string;
}

interface Run {
  /** What all rules of an object may still cost. */
  budget: number;
  faults: FieldFault[];
  kubernetes: string | undefined;
  tell(sentence: string): void;
}

/** The most that the rules of one object may cost together. */
const mostCost = 10_000_000;

export const createRuleValidation = (schema: JsonMap, kubernetes: string | undefined): RuleValidation => {
  const compiled = new Map<JsonMap, Rule[]>();
  return (object, old, tell) => {
    const run: Run = { budget: mostCost, faults: [], kubernetes, tell };
    validate(object, old, { ...schema, "x-kubernetes-embedded-resource": true }, "", run, (own) => {
      const rules = toList(own["x-kubernetes-validations"]);
      if (rules.length === 0) return [];
      const key = rules as unknown as JsonMap;
      const found = compiled.get(key) ?? rules.map((rule) => compileRule(toMap(rule), kubernetes));
      compiled.set(key, found);
      return found;
    });
    return run.faults;
  };
};

const compileRule = (rule: JsonMap, kubernetes: string | undefined): Rule => {
  const text = String(rule.rule).trim();
  const optionalOldSelf = rule.optionalOldSelf === true;
  const environment = {
    ...createAdmissionEnvironment({ ...(kubernetes !== undefined && { kubernetes }) }),
    variables: new Map([
      ["self", dyn],
      ["oldSelf", optionalOldSelf ? optionalOf(dyn) : dyn],
    ]),
  };
  const { message, messageExpression, reason, fieldPath } = rule;
  return {
    text,
    program: compileExpression(String(rule.rule), environment, undefined),
    usesOldSelf: /\boldSelf\b/.test(text),
    optionalOldSelf,
    message: typeof message === "string" && message !== "" ? message.trim() : undefined,
    messageProgram:
      typeof messageExpression === "string" ? compileExpression(messageExpression, environment, undefined) : undefined,
    reason: typeof reason === "string" ? reason : "FieldValueInvalid",
    fieldPath: typeof fieldPath === "string" ? fieldPath : "",
  };
};

type FindRules = (schema: JsonMap) => readonly Rule[];

const validate = (value: unknown, old: unknown, schema: JsonMap, field: string, run: Run, find: FindRules): void => {
  if (value === null || value === undefined || run.budget < 0) return;
  const before = old ?? undefined;
  evaluateRules(find(schema), value, before, schema, field, run);
  for (const inner of toList(schema.allOf).map(toMap)) {
    if (run.budget < 0) return;
    // Rules of an alternative see values by the types around it.
    const own = { ...schema, ...pickRules(inner), properties: mergeRules(schema.properties, inner.properties) };
    if (hasOwnRules(inner)) validate(value, before, { ...own, allOf: [] }, field, run, find);
  }
  const { properties, additionalProperties, items } = schema;
  if (Array.isArray(value) && isMap(items)) {
    const findOld = indexElements(toList(before), schema);
    for (const [index, item] of value.entries()) validate(item, findOld(item), items, `${field}[${index}]`, run, find);
  }
  if (!isMap(value)) return;
  for (const [key, member] of Object.entries(value)) {
    const own = getOwn(properties, key);
    const at = field === "" ? key : `${field}.${key}`;
    if (isMap(additionalProperties))
      validate(member, getOwn(before, key), additionalProperties, `${field}[${key}]`, run, find);
    if (isMap(own)) validate(member, getOwn(before, key), own, at, run, find);
  }
};

const pickRules = ({ "x-kubernetes-validations": rules }: JsonMap) => ({ "x-kubernetes-validations": rules ?? [] });

const hasOwnRules = (schema: unknown): boolean =>
  isMap(schema) && (schema["x-kubernetes-validations"] !== undefined || Object.values(schema).some(hasOwnRules));

/** Returns properties with the rules of an alternative instead of their own. */
const mergeRules = (properties: unknown, nested: unknown): JsonMap =>
  Object.fromEntries(
    Object.entries(toMap(nested)).flatMap(([key, inner]) => {
      const own = getOwn(properties, key);
      if (!isMap(own)) return [];
      return [
        [key, { ...own, ...pickRules(toMap(inner)), properties: mergeRules(own.properties, toMap(inner).properties) }],
      ];
    }),
  );

/**
 * Returns a function that finds the element of a list before an update that is the same element: lists that aren't maps have
 * none.
 */
const indexElements = (olds: readonly unknown[], schema: JsonMap): ((item: unknown) => unknown) => {
  if (schema["x-kubernetes-list-type"] !== "map") return () => undefined;
  const keys = toList(schema["x-kubernetes-list-map-keys"]).map(String);
  const toKey = (item: unknown) => toIdentity(pickKeys(item, keys));
  // Of several elements with the same keys, the first counts.
  const byKey = new Map(olds.toReversed().map((old) => [toKey(old), old]));
  return (item) => byKey.get(toKey(item));
};

const evaluateRules = (
  rules: readonly Rule[],
  value: unknown,
  old: unknown,
  schema: JsonMap,
  field: string,
  run: Run,
): void => {
  if (rules.length === 0) return;
  const type = typeof schema.type === "string" ? schema.type : "";
  const name = field === "" ? "<nil>" : field;
  const refuse = (detail: string, at = name) =>
    run.faults.push({
      field: at,
      reason: "FieldValueInvalid",
      message: `Invalid value: ${JSON.stringify(type)}: ${detail}`,
    });
  if (run.budget <= 0) {
    refuse("validation failed due to running out of cost budget, no further validation rules will be run");
    run.budget = -1;
    return;
  }
  const self = toCelValue(value, schema);
  const oldSelf = old === undefined ? undefined : toCelValue(old, schema);
  for (const rule of rules) {
    if (rule.usesOldSelf && old === undefined && !rule.optionalOldSelf) continue;
    // An unchanged value stays valid, unless the rule is about the change.
    if (!rule.usesOldSelf && old !== undefined && isSame(value, old)) continue;
    const variables: Record<string, Value | undefined> = {
      self,
      oldSelf: rule.optionalOldSelf ? (oldSelf === undefined ? emptyOptional : new Optional(oldSelf)) : oldSelf,
    };
    const find = (variable: string) => (Object.hasOwn(variables, variable) ? variables[variable] : undefined);
    if ("error" in rule.program) {
      run.tell(`whether the rule ${rule.text} holds for ${name}, which can't be evaluated here: ${rule.program.error}`);
      continue;
    }
    const outcome = rule.program.program.evaluate({ find }, { left: mostExpressionCost });
    if (outcome.cost > run.budget) {
      refuse("validation failed due to running out of cost budget, no further validation rules will be run");
      run.budget = -1;
      return;
    }
    run.budget -= outcome.cost;
    if ("error" in outcome) {
      const about = rule.message ?? rule.text;
      if (outcome.error.startsWith("no such overload"))
        refuse(
          `'${outcome.error}': call arguments did not match a supported operator, function or macro signature for rule: ${about}`,
        );
      else if (outcome.error.startsWith("operation cancelled: actual cost limit exceeded")) {
        refuse(
          `'${outcome.error}': no further validation rules will be run due to call cost exceeds limit for rule: ${about}`,
        );
        run.budget = -1;
        return;
      } else refuse(`${outcome.error} evaluating rule: ${about}`);
      continue;
    }
    if (outcome.value === true) continue;
    const detail = evaluateMessage(rule, find, run) ?? rule.message ?? `failed rule: ${rule.text}`;
    const at =
      rule.fieldPath === "" ? name : `${field}${field === "" ? rule.fieldPath.replace(/^\./, "") : rule.fieldPath}`;
    run.faults.push(createRuleFault(at, describeValue(value, type, run.kubernetes), detail, rule.reason));
  }
};

const describeValue = (value: unknown, type: string, kubernetes: string | undefined): string => {
  if (!selectTraits(kubernetes).showsScalars) return `: ${JSON.stringify(type)}`;
  return type === "object" || type === "array" ? "" : `: ${formatBadValue(value, kubernetes)}`;
};

const createRuleFault = (field: string, value: string, detail: string, reason: string): FieldFault => {
  if (reason === "FieldValueForbidden") return { field, reason, message: `Forbidden: ${detail}` };
  if (reason === "FieldValueRequired") return { field, reason, message: `Required value: ${detail}` };
  if (reason === "FieldValueDuplicate") return { field, reason, message: `Duplicate value${value}` };
  return { field, reason: "FieldValueInvalid", message: `Invalid value${value}: ${detail}` };
};

const evaluateMessage = (
  { messageProgram }: Rule,
  find: (variable: string) => Value | undefined,
  run: Run,
): string | undefined => {
  if (messageProgram === undefined || "error" in messageProgram) return undefined;
  const outcome = messageProgram.program.evaluate({ find }, { left: mostExpressionCost });
  run.budget -= outcome.cost;
  if ("error" in outcome || typeof outcome.value !== "string") return undefined;
  const text = outcome.value.trim();
  return text === "" || text.includes("\n") || Buffer.byteLength(text) > 5 * 1024 ? undefined : text;
};

const reserved = new Set(
  "true false null in as break const continue else for function if import let loop package namespace return var void while".split(
    " ",
  ),
);

/** Returns the name by which expressions select a field. */
const escapeName = (name: string): string => {
  if (reserved.has(name)) return `__${name}__`;
  return name.replaceAll(/__|[.\-/]/g, (part) => `__${escapes[part]}__`);
};
const escapes: Readonly<Record<string, string>> = { __: "underscores", ".": "dot", "-": "dash", "/": "slash" };

const toCelValue = (value: unknown, schema: JsonMap): Value => {
  const { type, format, properties, additionalProperties, items } = schema;
  if (typeof value === "number" && type === "number") return Number.isSafeInteger(value) ? new Double(value) : value;
  if (typeof value === "string" && type === "string") return toCelText(value, format);
  if (Array.isArray(value)) return value.map((item) => toCelValue(item, toMap(items)));
  if (!isMap(value)) return value as Value;
  return Object.fromEntries(
    Object.entries(value).flatMap(([key, member]) => {
      // An expression can't select a field that is null, but compares and counts it, so the field gets an impossible name.
      if (member === null && isMap(properties)) return [[`\0${key}`, null]];
      const own = getOwn(properties, key);
      if (own === undefined) return [[key, toCelValue(member, toMap(additionalProperties))]];
      const inner = toCelValue(member, toMap(own));
      const escaped = escapeName(key);
      // A field may also be named in backquotes.
      return escaped === key
        ? [[key, inner]]
        : [
            [escaped, inner],
            [key, inner],
          ];
    }),
  );
};

const toCelText = (text: string, format: unknown): Value => {
  const name = String(format).replaceAll("-", "");
  if (name === "byte") return Buffer.from(text, "base64");
  if (name === "datetime" || name === "date") {
    const [, fraction = ""] = /\.(\d+)/.exec(text) ?? [];
    const time = Date.parse(text.replace(/\.\d+/, ""));
    if (!Number.isNaN(time))
      return new Timestamp(BigInt(time) * 1_000_000n + BigInt(fraction.padEnd(9, "0").slice(0, 9)));
  }
  if (name === "duration") {
    const duration = parseDuration(text);
    if (duration !== undefined) return new Duration(duration);
  }
  return text;
};

const units: Readonly<Record<string, number>> = { h: 3.6e12, m: 6e10, s: 1e9, ms: 1e6, us: 1e3, µs: 1e3, ns: 1 };

const parseDuration = (text: string): bigint | undefined => {
  if (!/^-?(\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+$/.test(text)) return undefined;
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)/g)];
  const total = parts.reduce((sum, [, amount, unit]) => sum + Number(amount) * (units[unit ?? ""] ?? 0), 0);
  return BigInt(Math.round(text.startsWith("-") ? -total : total));
};
