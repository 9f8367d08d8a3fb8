import { exactJson, readInteger } from "../exact-json.ts";
import { getErrorMessage } from "../failure.ts";
import { isMap, isObject, type JsonMap, parsePointer, setMember } from "../json.ts";

/**
 * Applies RFC 6902 with the API server's deviations and error texts: an absent member can be replaced, negative indexes
 * count from the end, and `test` compares the JSON text of values.
 */
export const applyJsonPatchAsApiServer = (document: JsonMap, operations: readonly JsonMap[]): unknown => {
  const root: { value: unknown } = { value: document };
  const budget = { copied: 0 };
  // The caller keeps using the given document, so its parts are copied before a change; `owned` has the copies.
  const owned = new WeakSet<object>();
  for (const operation of operations) applyOperation(root, operation, budget, owned);
  return root.value;
};

/** The error of a `test` operation that found another value. */
export class FailedPatchTest extends Error {}

/** Parses the operations of a patch; throws the API server's error if they are invalid. */
export const parsePatchOperations = (text: string): JsonMap[] => {
  let read: unknown;
  try {
    // Only the operation `test` needs the JSON text of values, which `keepSource` keeps. Parsing without it is faster.
    // A backslash may be a part of the word `test`, as in "t\u0065st".
    read = /test|\\/.test(text) ? JSON.parse(text, keepSource) : exactJson.parse(text);
  } catch {
    throw new Error("invalid character in JSON");
  }
  if (read === null) return [];
  if (!Array.isArray(read)) throw createTypeError(read, "jsonpatch.Patch");
  return read.map((operation: unknown) => {
    if (operation === null) return {};
    if (!isMap(operation) || operation instanceof JsonScalar) throw createTypeError(operation, "jsonpatch.Operation");
    return operation;
  });
};

/** A string, number or boolean with its JSON source, which `test` compares. */
class JsonScalar {
  readonly value: unknown;
  readonly source: string;
  constructor(value: unknown, source: string) {
    this.value = value;
    this.source = source;
  }
}

/** A null that an expression made. It equals no value in `test`: in upstream's Go code, no JSON parser has read it. */
export const nullFromExpression: unknown = new JsonScalar(null, "null");

/**
 * A reviver for JSON.parse. It replaces each string, number and boolean by a JsonScalar, which has the JSON text
 * that `test` compares. readInteger reads large integers exactly, and returns all other values unchanged.
 */
const keepSource = (key: string, value: unknown, context?: { source?: string }): unknown =>
  value === null || typeof value === "object"
    ? value
    : new JsonScalar(readInteger(key, value, context), context?.source ?? JSON.stringify(value));

/** Returns a value from a patch without the JSON texts of its scalars, which only the operation `test` needs. */
const toPlainValue = (value: unknown): unknown => {
  if (value instanceof JsonScalar) return value.value;
  if (Array.isArray(value)) return value.map(toPlainValue);
  if (!isMap(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, toPlainValue(member)]));
};

/** Returns the operations of a JSON patch with plain numbers, without the source text that the parser kept of each. */
export const dropNumberTextsFromPatch = (operations: readonly JsonMap[]): unknown[] => operations.map(toPlainValue);

const getTypeName = (value: unknown): string => {
  const inner = toPlainValue(value);
  if (Array.isArray(inner)) return "array";
  return typeof inner === "boolean" ? "bool" : typeof inner === "bigint" ? "number" : typeof inner;
};

const createTypeError = (value: unknown, type: string) =>
  new Error(`json: cannot unmarshal ${getTypeName(value)} into Go value of type ${type}`);

interface OperationRun extends PatchState {
  /** The operation's name, such as `add`. */
  name: string;
  operation: JsonMap;
  /** `copied`: how many bytes the patch's `copy` operations have copied so far. maxCopiedBytes limits it. */
  budget: { copied: number };
}

/** Applies one operation of a JSON patch. Lists and maps in `owned` may be changed in place. */
const applyOperation = (
  root: PatchState["root"],
  operation: JsonMap,
  budget: OperationRun["budget"],
  owned: WeakSet<object>,
): void => {
  const op = toPlainValue(operation.op);
  const name = typeof op === "string" ? op : "unknown";
  if (!Object.hasOwn(operations, name)) throw new Error(`Unexpected kind: ${name}`);
  operations[name]?.({ root, name, operation, budget, owned });
};

// The errors are those of upstream's Go code, which writes `%!w(<nil>)` for a missing cause. In calls of `readPath`,
// `isTerse` shortens the error of a missing path, as upstream does for some operations.
const operations: Record<string, (act: OperationRun) => void> = {
  add: (act) => {
    const path = readPath(act, "path", /* isTerse */ true);
    const place = findPlace(act, path, `doc is missing path: "${path}"`);
    withContext(`error in add for path: '${path}': `, () => insertMember(place, getOperand(act)));
  },

  remove: (act) => {
    const path = readPath(act, "path", /* isTerse */ true);
    const place = findPlace(act, path, `doc is missing path: "${path}"`);
    withContext(`error in remove for path: '${path}': `, () => removeMember(place));
  },

  replace: (act) => {
    const path = readPath(act, "path");
    const value = getOperand(act);
    if (path === "") {
      if (typeof value !== "object" || value === null)
        throw new Error("replace operation value must be object or array: %!w(<nil>)");
      act.root.value = value;
      return;
    }
    const { parent, key } = findPlace(act, path, `doc is missing path: ${path}`);
    // For an invalid index, resolveIndex returns a message (a string). It isn't used: upstream has the error below.
    const keyOrIndex = Array.isArray(parent) ? resolveIndex(parent, key) : key;
    if (Array.isArray(parent) && typeof keyOrIndex === "string")
      throw new Error(`replace operation does not apply: doc is missing key: ${path}: ${missingValueText}`);
    setMember(parent, keyOrIndex, value);
  },

  move: (act) => {
    const from = readPath(act, "from");
    const source = findPlace(act, from, `doc is missing from path: ${from}`);
    const value = withContext(`error in move for path: '${source.key}': `, () => {
      const moved = getMember(source);
      removeMember(source);
      return moved;
    });
    const path = readPath(act, "path");
    const target = findPlace(act, path, `doc is missing destination path: ${path}`);
    withContext(`error in move for path: '${path}': `, () => insertMember(target, value ?? null));
  },

  copy: (act) => {
    const from = readPath(act, "from");
    const source = findPlace(act, from, `doc is missing from path: ${from}`);
    const value = withContext(`error in copy for from: '${from}': `, () => getMember(source));
    const path = readPath(act, "path", /* isTerse */ true);
    const target = findPlace(act, path, `doc is missing destination path: ${path}`);
    const written = exactJson.stringify(value ?? null);
    act.budget.copied += value == null ? 0 : Buffer.byteLength(escapeAsGo(written));
    if (act.budget.copied > maxCopiedBytes)
      throw new Error(
        `Unable to complete the copy, the accumulated size increase of copy is ${act.budget.copied}, exceeding the limit ${maxCopiedBytes}`,
      );
    withContext("error while adding value during copy: ", () => insertMember(target, exactJson.parse(written)));
  },

  test: (act) => {
    const path = readPath(act, "path");
    const place = path === "" ? undefined : findPlace(act, path, `is missing path: ${path}`);
    const present = place ? withContext(`error in test for path: '${path}': `, () => getMember(place)) : act.root.value;
    if (!isEqual(present ?? null, act.operation.value ?? null))
      throw new FailedPatchTest(`testing value ${path} failed: test failed`);
  },
};

/** The most bytes that the `copy` operations of one patch may add in total, as in kube-apiserver. */
const maxCopiedBytes = 3 * 1024 * 1024;

const getOperand = ({ operation }: OperationRun): unknown => toPlainValue(operation.value ?? null);

/**
 * Returns a patch operation's `path` or `from`; throws kube-apiserver's error if it is no text. `isTerse` leaves out
 * the reason, as upstream does for some operations.
 */
const readPath = ({ name, operation }: OperationRun, key: "path" | "from", isTerse = false): string => {
  const value = Object.hasOwn(operation, key) ? toPlainValue(operation[key]) : null;
  if (typeof value === "string") return value;
  const absent = `operation${key === "from" ? "," : ""} missing ${key} field: ${missingValueText}`;
  const reason = value == null ? absent : `json: cannot unmarshal ${getTypeName(value)} into Go value of type string`;
  throw new Error(`${name} operation failed to decode ${key}: ${isTerse ? missingValueText : reason}`);
};

/** Calls `act`; puts `prefix` before the message of an error that it throws. */
const withContext = <T>(prefix: string, act: () => T): T => {
  try {
    return act();
  } catch (error) {
    throw new Error(`${prefix}${getErrorMessage(error)}`);
  }
};

/**
 * Compares a document's value (`present`) with that of the patch operation `test`, as texts of JSON. Upstream writes
 * the former with `<` escaped, but takes the latter as the patch has it (`source`): with a plain `<`, they differ.
 */
const isEqual = (present: unknown, value: unknown): boolean => {
  if (value instanceof JsonScalar)
    return typeof present !== "object" && escapeAsGo(exactJson.stringify(present)) === value.source;
  if (present === null || value === null) return present === value;
  if (Array.isArray(present) || Array.isArray(value))
    return (
      Array.isArray(present) &&
      Array.isArray(value) &&
      present.length === value.length &&
      present.every((element, index) => isEqual(element, value[index]))
    );
  if (!isMap(present) || !isMap(value)) return false;
  const keys = Object.keys(present);
  return (
    keys.length === Object.keys(value).length &&
    keys.every((key) => Object.hasOwn(value, key) && isEqual(present[key], value[key]))
  );
};

/** Escapes `<`, `>`, `&` and line separators in JSON text, as Go's JSON encoder does. */
export const escapeAsGo = (json: string): string =>
  json.replace(/[<>&\u2028\u2029]/g, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`);

interface PatchState {
  root: { value: unknown };
  /** The objects that the patch has copied and may change; all others are shared. */
  owned: WeakSet<object>;
}

/** The ends of kube-apiserver's error texts. */
const missingValueText = "missing value";
const invalidIndexText = "invalid index referenced";

/** The position to which a JSON pointer leads: the parent map or list, which may be changed, and the key in it. */
interface Place {
  parent: JsonMap | unknown[];
  key: string;
}

/** Finds the object or list that a path's last step is in. Copies those on the path that are not copied yet. */
const findPlace = ({ root, owned, name }: OperationRun, path: string, fault: string): Place => {
  const createFault = () => new Error(`${name} operation does not apply: ${fault}: ${missingValueText}`);
  const steps = parsePointer(path);
  const key = steps.pop();
  if (key === undefined) throw createFault();
  let parent = copyOnce(root.value, owned);
  root.value = parent;
  for (const step of steps) {
    const index = Array.isArray(parent) ? resolveIndex(parent, step) : step;
    if (Array.isArray(parent) && typeof index === "string") throw createFault();
    const next: unknown = Object.hasOwn(parent ?? {}, index) ? Reflect.get(parent ?? {}, index) : undefined;
    if (!isObject(next)) throw createFault();
    const nextCopy = copyOnce(next, owned);
    setMember(parent as JsonMap, index, nextCopy);
    parent = nextCopy;
  }
  return { parent: parent as Place["parent"], key };
};

const copyOnce = (value: unknown, owned: WeakSet<object>): unknown => {
  if (!isObject(value) || owned.has(value)) return value;
  const copy: object = Array.isArray(value) ? [...value] : { ...value };
  owned.add(copy);
  return copy;
};

/** Parses an index as Go's strconv.Atoi does; returns the error text for an invalid one. */
const parseIndex = (key: string): number | string => {
  if (!/^[-+]?\d+$/.test(key)) return `strconv.Atoi: parsing ${JSON.stringify(key)}: invalid syntax`;
  const number = Number(key);
  return Number.isSafeInteger(number) ? number : `strconv.Atoi: parsing ${JSON.stringify(key)}: value out of range`;
};

/**
 * Returns the index to which a key leads; returns the error text if it is invalid, or not less than `size`. `size` is
 * larger than the list if an element may be added at the end. A negative index counts from the end.
 */
const resolveIndex = (list: readonly unknown[], key: string, size = list.length): number | string => {
  const number = parseIndex(key);
  if (typeof number === "string") return number;
  const isValid = number < size && number >= -size;
  if (!isValid) return `Unable to access invalid index: ${number}: ${invalidIndexText}`;
  return number < 0 ? number + size : number;
};

const getMember = ({ parent, key }: Place): unknown => {
  if (!Array.isArray(parent)) return Object.hasOwn(parent, key) ? parent[key] : undefined;
  const index = resolveIndex(parent, key);
  if (typeof index === "string") throw new Error(index);
  return parent[index];
};

/** Sets a map's member, or inserts a list's element before the index `key`; "-" means the end. */
const insertMember = ({ parent, key }: Place, value: unknown): void => {
  if (!Array.isArray(parent)) {
    setMember(parent, key, value);
    return;
  }
  if (key === "-") {
    parent.push(value);
    return;
  }
  const number = parseIndex(key);
  if (typeof number === "string") throw new Error(`value was not a proper array index: '${key}': ${number}`);
  const index = resolveIndex(parent, key, parent.length + 1);
  if (typeof index === "string") throw new Error(index);
  parent.splice(index, 0, value);
};

/** Deletes a member of a map, or an element of a list. A missing one is an error. */
const removeMember = ({ parent, key }: Place): void => {
  if (Array.isArray(parent)) {
    const index = resolveIndex(parent, key);
    if (typeof index === "string") throw new Error(index);
    parent.splice(index, 1);
    return;
  }
  if (!Object.hasOwn(parent, key)) throw new Error(`Unable to remove nonexistent key: ${key}: ${missingValueText}`);
  Reflect.deleteProperty(parent, key);
};
