// In a bundle, this file replaces expression-check.ts. The build has checked the expressions of the function's
// settings.
import type { CheckedExpression } from "./checker/checker.ts";
import { describeContext } from "./contexts.ts";
import type { CheckResult, CollectedCheck, checkExpression as parseAndCheckExpression } from "./expression-check.ts";
import type { Expression } from "./parser/syntax.ts";
import type { Type } from "./types.ts";
import { Double, Uint } from "./values.ts";

/**
 * A value as JSON. An array stands for an object, a list or a special number. Its first element, the tag, says which:
 * - a text is the type, as in `["int", "5"]` or `["list", 1, 2]`;
 * - a number from 0 on is the index of the object's shape;
 * - a negative number refers to a separate list of values that occur several times: `[-1]` to its first value.
 */
type Encoded = string | number | boolean | null | readonly Encoded[];

/** The shape of several objects: members with the same values in all, and the names of the other members. */
type Shape = readonly [common: Readonly<Record<string, unknown>>, names: readonly string[]];

/** Checked expressions, or their errors, as JSON. */
export interface EncodedChecks {
  /** The shapes of all encoded objects. Each object contains the index of its shape. */
  readonly shapes: readonly Shape[];
  /** Values that occur several times. */
  readonly repeated: readonly Encoded[];
  /** By context (a key that lists the declared variables, see describeContext), and then by the expression's text. */
  readonly results: Readonly<Record<string, Readonly<Record<string, Encoded>>>>;
}

/** Reports whether `compile` reads a type: that of a message or of a type, or one without a name, which it refuses. */
const isReadByCompile = ({ kind, name, parameters }: Type): boolean =>
  kind === "struct" || kind === "type" || name === "" || parameters.some(isReadByCompile);

/** Returns checked expressions as JSON. */
export const encodeChecks = (checks: readonly CollectedCheck[]): EncodedChecks => {
  const shapes = new Map<string, { index: number; shape: Shape }>();
  /** Encodes an object as the index of its shape, followed by the values that the shape doesn't contain. */
  const encodeObject = (entries: readonly [string, unknown][]): Encoded => {
    // A shape contains the few different values of `kind` and of booleans, and only the names of other members.
    const isInShape = ([name, value]: readonly [string, unknown]) => name === "kind" || typeof value === "boolean";
    const others = entries.filter((entry) => !isInShape(entry));
    const shape: Shape = [Object.fromEntries(entries.filter(isInShape)), others.map(([name]) => name)];
    const key = JSON.stringify(shape);
    const { index } = shapes.get(key) ?? { index: shapes.size };
    shapes.set(key, { index, shape });
    return [index, ...others.map(([, value]) => encode(value))];
  };
  /** The checked expression that `encode` encodes now. It has the types and references of its parts. */
  let checked: CheckedExpression | undefined;
  const encode = (value: unknown): Encoded => {
    if (typeof value === "bigint") return ["int", String(value)];
    if (value instanceof Uint) return ["uint", String(value.value)];
    if (value instanceof Double) return ["double", Object.is(value.value, -0) ? "-0" : String(value.value)];
    if (value instanceof Uint8Array) return ["bytes", Buffer.from(value).toString("base64")];
    if (Array.isArray(value)) return ["list", ...value.map(encode)];
    if (typeof value !== "object" || value === null) return value as string | number | boolean | null;
    const [type, reference] = [checked?.types.get(value as Expression), checked?.references.get(value as Expression)];
    const members = {
      ...value,
      offset: undefined,
      // Other types are left out, because the compilation of the decoded expression doesn't read them.
      "@type": type && isReadByCompile(type) ? type : undefined,
      // The reference of most identifiers is their own name, which is left out.
      "@reference": Reflect.get(value, "name") === reference?.name ? undefined : reference,
    };
    return encodeObject(Object.entries(members).filter(([, member]) => member !== undefined));
  };
  const results: Record<string, Record<string, Encoded>> = {};
  for (const { context, text, result } of checks) {
    checked = "error" in result ? undefined : result;
    const encoded = "error" in result ? result.error : encode({ expression: result.expression, type: result.type });
    results[context] = { ...results[context], [text]: encoded };
  }
  const { repeated, replace } = findRepeatedValues(Object.values(results).flatMap(Object.values));
  for (const [context, byText] of Object.entries(results))
    results[context] = Object.fromEntries(Object.entries(byText).map(([text, value]) => [text, replace(value)]));
  return { shapes: Array.from(shapes.values(), ({ shape }) => shape), repeated, results };
};

/** Returns the values that occur several times, and a function that replaces them by arrays such as `[-1]`. */
const findRepeatedValues = (values: readonly Encoded[]) => {
  const counts = new Map<string, number>();
  const count = (value: Encoded): void => {
    if (!Array.isArray(value)) return;
    const key = JSON.stringify(value);
    const earlierCount = counts.get(key) ?? 0;
    counts.set(key, earlierCount + 1);
    // A repeated value is written only once, so its parts count only once.
    if (earlierCount === 0) value.forEach(count);
  };
  values.forEach(count);
  const repeated: Encoded[] = [];
  const indexes = new Map<string, number>();
  const replace = (value: Encoded): Encoded => {
    if (!Array.isArray(value)) return value;
    const key = JSON.stringify(value);
    const parts = () => value.map(replace);
    if (counts.get(key) === 1 || key.length < minRepeatedLength) return parts();
    const index = indexes.get(key) ?? repeated.push(parts()) - 1;
    indexes.set(key, index);
    return [-1 - index];
  };
  return { repeated, replace };
};

/** A value with fewer characters of JSON is not replaced. */
const minRepeatedLength = 8;

/** Returns the checked expression that a value of `encodeChecks` stands for. */
const decode = (encoded: Encoded | undefined, { shapes, repeated }: EncodedChecks): CheckResult => {
  if (typeof encoded === "string") return { error: encoded };
  const types = new Map<Expression, Type>();
  const references = new Map();
  const toValue = (value: Encoded | undefined): unknown => {
    if (!Array.isArray(value)) return value;
    // The tag is the name of a type, the negative index of a repeated value, or the index of an object's shape.
    const [tag, ...parts] = value;
    const [part] = parts;
    // Each occurrence of a repeated value becomes another object, because `types` and `references` are by object.
    if (tag < 0) return toValue(repeated[-1 - tag]);
    if (tag === "list") return parts.map(toValue);
    if (tag === "int") return BigInt(part);
    if (tag === "uint") return new Uint(BigInt(part));
    if (tag === "double") return new Double(Number(part));
    if (tag === "bytes") return new Uint8Array(Buffer.from(part, "base64"));
    // `parts` has the values of the members that are not in `common`, in the order of their names.
    const [common, otherNames] = shapes[tag] as Shape;
    const object: Record<string, unknown> = { ...common };
    for (const [index, name] of otherNames.entries()) {
      const member = toValue(parts[index]);
      if (name === "@type") types.set(object as unknown as Expression, member as Type);
      else if (name === "@reference") references.set(object, member);
      else object[name] = member;
    }
    return object;
  };
  return { ...(toValue(encoded) as CheckedExpression), types, references };
};

/** Returns replacements for the functions of expression-check.ts, which find the build's results in `readChecks()`. */
export const createCheckLookup = (readChecks: () => EncodedChecks) => {
  let checks: EncodedChecks | undefined;
  const checkExpression: typeof parseAndCheckExpression = (text, { context }, resultTypes) => {
    checks ??= readChecks();
    const resultsByText = checks.results[describeContext(context, resultTypes)] ?? {};
    if (!Object.hasOwn(resultsByText, text))
      throw new Error(`the expression ${JSON.stringify(text)} isn't in the settings that this function was built with`);
    return decode(resultsByText[text], checks);
  };
  // The build has parsed and checked the expressions, so no variables or macros need to be declared.
  return { checkExpression, createDeclarations: () => ({ variables: {}, macros: [] }) };
};
