import { isMap, type Json } from "#lib/json.ts";
import { find, get, indexIn, insert, missing, put, type Root, take } from "./places.ts";

/**
 * RFC 6902 as an API server applies it, with its slack and in its words: a member that isn't there can be replaced,
 * indexes count from the end where they are negative, and what `test` compares is the text of values.
 */
export const patched = (document: Json, operations: readonly Json[]): unknown => {
  const root: { value: unknown } = { value: document };
  const budget = { copied: 0 };
  // What is the document's own is shared with others until it is written to.
  const owned = new WeakSet<object>();
  for (const operation of operations) apply(root, operation, budget, owned);
  return root.value;
};

/** The operations of a patch; what it throws is why it can't be read. */
export const operationsIn = (text: string): Json[] => {
  let read: unknown;
  try {
    read = JSON.parse(text, keepSource);
  } catch {
    throw new Error("invalid character in JSON");
  }
  if (read === null) return [];
  if (!Array.isArray(read)) throw mismatch(read, "jsonpatch.Patch");
  return read.map((one: unknown) => {
    if (one === null) return {};
    if (!isMap(one) || one instanceof Scalar) throw mismatch(one, "jsonpatch.Operation");
    return one;
  });
};

/** A value that isn't a map or a list, with the text that it was written as. */
class Scalar {
  readonly value: unknown;
  readonly source: string;
  constructor(value: unknown, source: string) {
    this.value = value;
    this.source = source;
  }
}

const keepSource = (_: string, value: unknown, context?: { source?: string }): unknown =>
  value === null || typeof value === "object" ? value : new Scalar(value, context?.source ?? JSON.stringify(value));

/** A value without the texts. */
const plain = (value: unknown): unknown => {
  if (value instanceof Scalar) return value.value;
  if (Array.isArray(value)) return value.map(plain);
  if (!isMap(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, plain(one)]));
};

/** The operations as whoever sent them meant them. */
export const shownOperations = (operations: readonly Json[]): unknown[] => operations.map(plain);

const typeName = (value: unknown): string => {
  const inner = plain(value);
  if (Array.isArray(inner)) return "array";
  return typeof inner === "boolean" ? "bool" : typeof inner;
};

const mismatch = (value: unknown, type: string) =>
  new Error(`json: cannot unmarshal ${typeName(value)} into Go value of type ${type}`);

const apply = (root: { value: unknown }, operation: Json, budget: { copied: number }, owned: WeakSet<object>): void => {
  const kind = text(operation, "op", "");
  const name = "fault" in kind ? "unknown" : kind.value;
  if (!Object.hasOwn(operations, name)) throw new Error(`Unexpected kind: ${name}`);
  operations[name]?.({ root, operation, budget, owned });
};

interface Act extends Root {
  operation: Json;
  budget: { copied: number };
}

const operations: Record<string, (act: Act) => void> = {
  add: (act) => {
    const path = text(act.operation, "path", "operation missing path field: missing value");
    if ("fault" in path) throw new Error(`add operation failed to decode path: ${missing}`);
    const place = find(act, path.value);
    if (place === undefined)
      throw new Error(`add operation does not apply: doc is missing path: "${path.value}": ${missing}`);
    said(`error in add for path: '${path.value}': `, () => insert(place, plain(act.operation.value ?? null)));
  },

  remove: (act) => {
    const path = text(act.operation, "path", "");
    if ("fault" in path) throw new Error(`remove operation failed to decode path: ${missing}`);
    const place = find(act, path.value);
    if (place === undefined)
      throw new Error(`remove operation does not apply: doc is missing path: "${path.value}": ${missing}`);
    said(`error in remove for path: '${path.value}': `, () => take(place));
  },

  replace: (act) => {
    const path = needed(
      act.operation,
      "path",
      "replace operation failed to decode path: ",
      "operation missing path field",
    );
    const value = plain(act.operation.value ?? null);
    if (path === "") {
      if (typeof value !== "object" || value === null)
        throw new Error("replace operation value must be object or array: %!w(<nil>)");
      act.root.value = value;
      return;
    }
    const place = find(act, path);
    if (place === undefined)
      throw new Error(`replace operation does not apply: doc is missing path: ${path}: ${missing}`);
    if (Array.isArray(place.parent) && typeof indexIn(place.parent, place.key) === "string")
      throw new Error(`replace operation does not apply: doc is missing key: ${path}: ${missing}`);
    put(place, value);
  },

  move: (act) => {
    const from = needed(
      act.operation,
      "from",
      "move operation failed to decode from: ",
      "operation, missing from field",
    );
    const source = find(act, from);
    if (source === undefined)
      throw new Error(`move operation does not apply: doc is missing from path: ${from}: ${missing}`);
    const value = said(`error in move for path: '${source.key}': `, () => {
      const there = get(source);
      take(source);
      return there;
    });
    const path = needed(
      act.operation,
      "path",
      "move operation failed to decode path: ",
      "operation missing path field",
    );
    const target = find(act, path);
    if (target === undefined)
      throw new Error(`move operation does not apply: doc is missing destination path: ${path}: ${missing}`);
    said(`error in move for path: '${path}': `, () => insert(target, value ?? null));
  },

  copy: (act) => {
    const from = needed(
      act.operation,
      "from",
      "copy operation failed to decode from: ",
      "operation, missing from field",
    );
    const source = find(act, from);
    if (source === undefined)
      throw new Error(`copy operation does not apply: doc is missing from path: ${from}: ${missing}`);
    const value = said(`error in copy for from: '${from}': `, () => get(source));
    const path = text(act.operation, "path", "");
    if ("fault" in path) throw new Error(`copy operation failed to decode path: ${missing}`);
    const target = find(act, path.value);
    if (target === undefined)
      throw new Error(`copy operation does not apply: doc is missing destination path: ${path.value}: ${missing}`);
    const written = value === undefined ? "null" : JSON.stringify(value);
    act.budget.copied += value == null ? 0 : Buffer.byteLength(escaped(written));
    if (act.budget.copied > mostCopied)
      throw new Error(
        `Unable to complete the copy, the accumulated size increase of copy is ${act.budget.copied}, exceeding the limit ${mostCopied}`,
      );
    said("error while adding value during copy: ", () => insert(target, JSON.parse(written)));
  },

  test: (act) => {
    const path = needed(
      act.operation,
      "path",
      "test operation failed to decode path: ",
      "operation missing path field",
    );
    const { value } = act.operation;
    const failed = new Error(`testing value ${path} failed: test failed`);
    if (path === "") {
      if (!isEqual(act.root.value, value ?? null)) throw failed;
      return;
    }
    const place = find(act, path);
    if (place === undefined) throw new Error(`test operation does not apply: is missing path: ${path}: ${missing}`);
    const there = said(`error in test for path: '${path}': `, () => get(place));
    if (!isEqual(there ?? null, value ?? null)) throw failed;
  },
};

/** What kube-apiserver lets a patch copy, all in all. */
const mostCopied = 3 * 1024 * 1024;

const text = (operation: Json, key: string, otherwise: string): { value: string } | { fault: string } => {
  const given = Object.hasOwn(operation, key) ? operation[key] : null;
  if (given == null) return { fault: otherwise };
  if (given instanceof Scalar && typeof given.value === "string") return { value: given.value };
  return { fault: `json: cannot unmarshal ${typeName(given)} into Go value of type string` };
};

const needed = (operation: Json, key: string, before: string, absent: string): string => {
  const found = text(operation, key, `${absent}: ${missing}`);
  if ("fault" in found) throw new Error(`${before}${found.fault}`);
  return found.value;
};

const said = <T>(before: string, act: () => T): T => {
  try {
    return act();
  } catch (error) {
    throw new Error(`${before}${error instanceof Error ? error.message : String(error)}`);
  }
};

/** Texts are compared as they are written: Go writes `<` as six characters, and a hook that doesn't has another text. */
const isEqual = (there: unknown, given: unknown): boolean => {
  if (given instanceof Scalar) return typeof there !== "object" && escaped(JSON.stringify(there)) === given.source;
  if (there === null || given === null) return there === given;
  if (Array.isArray(there) || Array.isArray(given))
    return (
      Array.isArray(there) &&
      Array.isArray(given) &&
      there.length === given.length &&
      there.every((one, index) => isEqual(one, given[index]))
    );
  if (!isMap(there) || !isMap(given)) return false;
  const keys = Object.keys(there);
  return (
    keys.length === Object.keys(given).length &&
    keys.every((key) => Object.hasOwn(given, key) && isEqual(there[key], given[key]))
  );
};

/** JSON as Go writes it. */
export const escaped = (json: string): string =>
  json.replace(/[<>&\u2028\u2029]/g, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
