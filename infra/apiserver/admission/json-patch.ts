import { getErrorMessage } from "#lib/failure.ts";
import { isMap, isObject, type JsonMap, parsePointer } from "#lib/json.ts";

/**
 * Applies RFC 6902 with the API server's deviations and error texts: an absent member can be replaced, negative indexes
 * count from the end, and `test` compares the JSON text of values.
 */
export const applyPatch = (document: JsonMap, operations: readonly JsonMap[]): unknown => {
  const root: { value: unknown } = { value: document };
  const budget = { copied: 0 };
  // Parts of the given document are shared with the caller; they are copied before they are changed.
  const owned = new WeakSet<object>();
  for (const operation of operations) apply(root, operation, budget, owned);
  return root.value;
};

/** Parses the operations of a patch; throws the API server's error if they are invalid. */
export const parseOperations = (text: string): JsonMap[] => {
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

/** A string, number or boolean with its JSON source, which `test` compares. */
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

const plain = (value: unknown): unknown => {
  if (value instanceof Scalar) return value.value;
  if (Array.isArray(value)) return value.map(plain);
  if (!isMap(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, plain(one)]));
};

export const toPlain = (operations: readonly JsonMap[]): unknown[] => operations.map(plain);

const typeName = (value: unknown): string => {
  const inner = plain(value);
  if (Array.isArray(inner)) return "array";
  return typeof inner === "boolean" ? "bool" : typeof inner;
};

const mismatch = (value: unknown, type: string) =>
  new Error(`json: cannot unmarshal ${typeName(value)} into Go value of type ${type}`);

interface Act extends Root {
  name: string;
  operation: JsonMap;
  budget: { copied: number };
}

const apply = (root: Root["root"], operation: JsonMap, budget: Act["budget"], owned: WeakSet<object>): void => {
  const { op } = operation;
  const name = op instanceof Scalar && typeof op.value === "string" ? op.value : "unknown";
  if (!Object.hasOwn(operations, name)) throw new Error(`Unexpected kind: ${name}`);
  operations[name]?.({ root, name, operation, budget, owned });
};

const operations: Record<string, (act: Act) => void> = {
  add: (act) => {
    const path = memberOf(act, "path", true);
    const place = find(act, path, `doc is missing path: "${path}"`);
    withContext(`error in add for path: '${path}': `, () => insert(place, givenIn(act)));
  },

  remove: (act) => {
    const path = memberOf(act, "path", true);
    const place = find(act, path, `doc is missing path: "${path}"`);
    withContext(`error in remove for path: '${path}': `, () => take(place));
  },

  replace: (act) => {
    const path = memberOf(act, "path");
    const value = givenIn(act);
    if (path === "") {
      if (typeof value !== "object" || value === null)
        throw new Error("replace operation value must be object or array: %!w(<nil>)");
      act.root.value = value;
      return;
    }
    const { parent, key } = find(act, path, `doc is missing path: ${path}`);
    const index = Array.isArray(parent) ? indexIn(parent, key) : key;
    if (Array.isArray(parent) && typeof index === "string")
      throw new Error(`replace operation does not apply: doc is missing key: ${path}: ${missing}`);
    set(parent, index, value);
  },

  move: (act) => {
    const from = memberOf(act, "from");
    const source = find(act, from, `doc is missing from path: ${from}`);
    const value = withContext(`error in move for path: '${source.key}': `, () => {
      const there = get(source);
      take(source);
      return there;
    });
    const path = memberOf(act, "path");
    const target = find(act, path, `doc is missing destination path: ${path}`);
    withContext(`error in move for path: '${path}': `, () => insert(target, value ?? null));
  },

  copy: (act) => {
    const from = memberOf(act, "from");
    const source = find(act, from, `doc is missing from path: ${from}`);
    const value = withContext(`error in copy for from: '${from}': `, () => get(source));
    const path = memberOf(act, "path", true);
    const target = find(act, path, `doc is missing destination path: ${path}`);
    const written = JSON.stringify(value ?? null);
    act.budget.copied += value == null ? 0 : Buffer.byteLength(escaped(written));
    if (act.budget.copied > mostCopied)
      throw new Error(
        `Unable to complete the copy, the accumulated size increase of copy is ${act.budget.copied}, exceeding the limit ${mostCopied}`,
      );
    withContext("error while adding value during copy: ", () => insert(target, JSON.parse(written)));
  },

  test: (act) => {
    const path = memberOf(act, "path");
    const place = path === "" ? undefined : find(act, path, `is missing path: ${path}`);
    const there = place ? withContext(`error in test for path: '${path}': `, () => get(place)) : act.root.value;
    if (!isEqual(there ?? null, act.operation.value ?? null))
      throw new Error(`testing value ${path} failed: test failed`);
  },
};

/** kube-apiserver's limit for the bytes that all copy operations of a patch add. */
const mostCopied = 3 * 1024 * 1024;

const givenIn = ({ operation }: Act): unknown => plain(operation.value ?? null);

/** Returns a path of an operation. `isTerse` is for operations whose upstream error doesn't give the reason. */
const memberOf = ({ name, operation }: Act, key: "path" | "from", isTerse = false): string => {
  const given = Object.hasOwn(operation, key) ? operation[key] : null;
  if (given instanceof Scalar && typeof given.value === "string") return given.value;
  const absent = `operation${key === "from" ? "," : ""} missing ${key} field: ${missing}`;
  const reason = given == null ? absent : `json: cannot unmarshal ${typeName(given)} into Go value of type string`;
  throw new Error(`${name} operation failed to decode ${key}: ${isTerse ? missing : reason}`);
};

const withContext = <T>(before: string, act: () => T): T => {
  try {
    return act();
  } catch (error) {
    throw new Error(`${before}${getErrorMessage(error)}`);
  }
};

/** Compares JSON texts. Go escapes `<`, so a hook that doesn't escape it fails the test. */
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

/** Escapes characters in JSON as Go's encoder does. */
export const escaped = (json: string): string =>
  json.replace(/[<>&\u2028\u2029]/g, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);

interface Root {
  root: { value: unknown };
  /** The objects that the patch has copied and may change; all others are shared. */
  owned: WeakSet<object>;
}

const missing = "missing value";
const invalid = "invalid index referenced";

/** The position of a member: its parent, which may be changed, and its key. */
interface Place {
  parent: JsonMap | unknown[];
  key: string;
}

/** Finds the place of a path; copies the objects on the way that the patch doesn't own yet. */
const find = ({ root, owned, name }: Act, path: string, fault: string): Place => {
  const nowhere = new Error(`${name} operation does not apply: ${fault}: ${missing}`);
  const steps = parsePointer(path);
  const key = steps.pop();
  if (key === undefined) throw nowhere;
  let parent = own(root.value, owned);
  root.value = parent;
  for (const step of steps) {
    const at = Array.isArray(parent) ? indexIn(parent, step) : step;
    if (Array.isArray(parent) && typeof at === "string") throw nowhere;
    const next: unknown = Object.hasOwn(parent ?? {}, at) ? Reflect.get(parent ?? {}, at) : undefined;
    if (!isObject(next)) throw nowhere;
    const mine = own(next, owned);
    set(parent as JsonMap, at, mine);
    parent = mine;
  }
  return { parent: parent as Place["parent"], key };
};

const own = (value: unknown, owned: WeakSet<object>): unknown => {
  if (!isObject(value) || owned.has(value)) return value;
  const copy: object = Array.isArray(value) ? [...value] : Object.fromEntries(Object.entries(value));
  owned.add(copy);
  return copy;
};

const set = (parent: object, key: string | number, value: unknown) =>
  Reflect.defineProperty(parent, key, { value, writable: true, enumerable: true, configurable: true });

/** Parses an index as Go's strconv.Atoi does; returns the error text for an invalid one. */
const numberOf = (key: string): number | string => {
  if (!/^[-+]?\d+$/.test(key)) return `strconv.Atoi: parsing ${JSON.stringify(key)}: invalid syntax`;
  const number = Number(key);
  return Number.isSafeInteger(number) ? number : `strconv.Atoi: parsing ${JSON.stringify(key)}: value out of range`;
};

const indexIn = (list: readonly unknown[], key: string, size = list.length): number | string => {
  const number = numberOf(key);
  if (typeof number === "string") return number;
  const isThere = number < size && number >= -size;
  return isThere ? (number < 0 ? number + size : number) : `Unable to access invalid index: ${number}: ${invalid}`;
};

const get = ({ parent, key }: Place): unknown => {
  if (!Array.isArray(parent)) return Object.hasOwn(parent, key) ? parent[key] : undefined;
  const index = indexIn(parent, key);
  if (typeof index === "string") throw new Error(index);
  return parent[index];
};

const insert = ({ parent, key }: Place, value: unknown): void => {
  if (!Array.isArray(parent)) {
    set(parent, key, value);
    return;
  }
  if (key === "-") {
    parent.push(value);
    return;
  }
  const number = numberOf(key);
  if (typeof number === "string") throw new Error(`value was not a proper array index: '${key}': ${number}`);
  const index = indexIn(parent, key, parent.length + 1);
  if (typeof index === "string") throw new Error(index);
  parent.splice(index, 0, value);
};

const take = ({ parent, key }: Place): void => {
  if (Array.isArray(parent)) {
    const index = indexIn(parent, key);
    if (typeof index === "string") throw new Error(index);
    parent.splice(index, 1);
    return;
  }
  if (!Object.hasOwn(parent, key)) throw new Error(`Unable to remove nonexistent key: ${key}: ${missing}`);
  Reflect.deleteProperty(parent, key);
};
