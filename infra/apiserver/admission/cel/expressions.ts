import { RE2JS } from "re2js";
import type { CelValueSizes } from "./values.ts";

export interface CelNode {
  op: string;
  args: unknown;
}

const variables = new Set(["object", "oldObject", "request", "namespaceObject", "optional"]);
const loops = new Set(["all", "exists", "exists_one", "map", "filter"]);
const functions = new Set(["has", "size", "string", "int", "dyn"]);
/**
 * The CEL methods that can be evaluated here. Methods that take or return positions in a text are left out:
 * positions count UTF-16 units here, code points in the
 * API server.
 */
const methods = new Set([
  ...loops,
  ..."size startsWith endsWith contains matches split join orValue or value hasValue of none".split(" "),
]);
const operators = new Set(
  "value id . .? [] [?] call rcall list map ?: || && !_ -_ != == in + - * / % < <= > >=".split(" "),
);

const patterns = new Map<string, RE2JS | undefined>();

/** Compiles a regular expression as Go does, which the API server uses; undefined for one that Go refuses. */
export const compilePattern = (source: string): RE2JS | undefined => {
  if (patterns.has(source)) return patterns.get(source);
  let compiled: RE2JS | undefined;
  try {
    compiled = RE2JS.compile(source);
  } catch {
    // `compiled` stays undefined: the regular expression is invalid, or larger than Go allows.
  }
  patterns.set(source, compiled);
  return compiled;
};

export const explainUnsupportedCel = (root: CelNode): string | undefined =>
  asksAuthorizer(root)
    ? "only the cluster's authorizer knows the rights of users"
    : findUnsupportedNode(root, variables);

const asksAuthorizer = (node: CelNode): boolean =>
  (node.op === "id" && node.args === "authorizer") || listChildren(node).some(asksAuthorizer);

const findUnsupportedNode = (node: CelNode, known: ReadonlySet<string>): string | undefined => {
  const { op, args } = node;
  if (!operators.has(op)) return `the operator ${op} isn't known here`;
  if (op === "id") {
    if (known.has(String(args))) return undefined;
    return `${String(args)} isn't known here`;
  }
  if (op === "value") return isPlainLiteral(args) ? undefined : "a literal in it isn't known here";
  let inner = known;
  if (op === "call" || op === "rcall") {
    const [name] = args as [string];
    if (!(op === "call" ? functions : methods).has(name)) return `the function ${name} isn't known here`;
    if (op === "rcall" && name === "matches") {
      const [, , [pattern]] = args as [string, CelNode, CelNode[]];
      if (pattern?.op !== "value" || typeof pattern.args !== "string" || compilePattern(pattern.args) === undefined)
        return "a regular expression in it is invalid or isn't a literal";
    }
    const [variable] = loops.has(name) ? (args as [string, CelNode, CelNode[]])[2] : [];
    if (variable?.op === "id") inner = new Set([...known, String(variable.args)]);
  }
  for (const child of listChildren(node)) {
    const found = findUnsupportedNode(child, inner);
    if (found !== undefined) return found;
  }
  return undefined;
};

const isPlainLiteral = (value: unknown): boolean =>
  value === null || ["string", "boolean", "bigint"].includes(typeof value) || Number.isFinite(value);

const isNode = (value: unknown): value is CelNode =>
  typeof value === "object" && value !== null && "op" in value && "args" in value;

export const renameMethod = (node: CelNode, from: string, to: string): void => {
  const { op, args } = node;
  if (op === "rcall" && Array.isArray(args) && args[0] === from) args[0] = to;
  for (const child of listChildren(node)) renameMethod(child, from, to);
};

const listChildren = ({ args }: CelNode): CelNode[] => [args].flat(3).filter(isNode);

/** The CEL methods whose evaluation cost grows with the length of a text. */
const perText = new Set(["contains", "matches", "split", "join", "startsWith", "endsWith"]);

/** Returns a check whether a CEL expression's cost stays within a budget for any objects of the given sizes. */
export const createCostBudgetCheck = (
  root: CelNode,
  maximumCost: number,
): ((sizes: readonly CelValueSizes[]) => boolean) => {
  const computeCost = estimateCost(root);
  // The results for rounded-up sizes are cached. Exact lengths are used only if rounded-up ones exceed the limit.
  const rough = new Map<number, boolean>();
  return (sizes) => {
    const [longest, longestText] = [roundUp(sizes, "longest"), roundUp(sizes, "longestText")];
    const key = longest * 64 + longestText;
    let isWithin = rough.get(key);
    if (isWithin === undefined) {
      const length = 2 ** longest;
      isWithin = computeCost({ lengthOf: () => length, longest: length, longestText: 2 ** longestText }) <= maximumCost;
      rough.set(key, isWithin);
    }
    return isWithin || computeCost(combineSizes(sizes)) <= maximumCost;
  };
};

/** Returns the exponent of the power of two to which the largest of these sizes is rounded up; at least 3. */
const roundUp = (sizes: readonly CelValueSizes[], what: "longest" | "longestText"): number =>
  Math.ceil(Math.log2(sizes.reduce((most, size) => Math.max(most, size[what]), 8)));

type Sizes = Omit<CelValueSizes, "isExact">;

const combineSizes = (sizes: readonly CelValueSizes[]): Sizes => {
  const findMost = (getSize: (size: CelValueSizes) => number) =>
    sizes.reduce((most, size) => Math.max(most, getSize(size)), 0);
  return {
    longest: findMost(({ longest }) => longest),
    longestText: findMost(({ longestText }) => longestText),
    lengthOf: (name) => findMost(({ lengthOf }) => lengthOf(name)),
  };
};

type Cost = (sizes: Sizes) => number;

/**
 * Returns a function that computes an upper bound of a CEL syntax node's cost, as the API server counts cost, from
 * the sizes of the values.
 */
const estimateCost = (node: CelNode): Cost => {
  const { op, args } = node;
  if (op !== "rcall") {
    const own = op === "in" ? getRangeLength((args as CelNode[])[1] ?? node) : undefined;
    const fixed = op === "list" || op === "map" ? 30 : own ? 1 : 2;
    const inner = sumOf(listChildren(node).map(estimateCost));
    return own ? (sizes) => fixed + own(sizes) + inner(sizes) : (sizes) => fixed + inner(sizes);
  }
  const [name, receiver, rest] = args as [string, CelNode, CelNode[]];
  const [of, inner] = [estimateCost(receiver), sumOf(rest.map(estimateCost))];
  if (loops.has(name)) {
    const range = getRangeLength(receiver);
    return (sizes) => 2 + of(sizes) + (range(sizes) + 1) * (inner(sizes) + 12);
  }
  if (!perText.has(name)) return (sizes) => 2 + of(sizes) + inner(sizes);
  return (sizes) => 2 + of(sizes) + inner(sizes) + Math.max(sizes.longestText, 10) * 0.5 + 10;
};

const sumOf = (costs: readonly Cost[]): Cost => {
  const [first, second] = costs;
  if (first === undefined) return () => 0;
  if (second === undefined) return first;
  return (sizes) => costs.reduce((sum, cost) => sum + cost(sizes), 0);
};

/**
 * Returns a function that computes, from the sizes of the values, the most elements that a CEL loop or `in` goes
 * through.
 */
const getRangeLength = (node: CelNode): Cost => {
  const names = listMemberNames(node);
  const listed = countListElements(node);
  return names.length > 0
    ? ({ lengthOf }) => names.reduce((sum, name) => sum + lengthOf(name), listed)
    : ({ longest }) => listed + Math.max(longest, 10);
};

/** Returns all member names in a CEL expression; one of them names the list over which the expression loops. */
const listMemberNames = (node: CelNode): string[] => {
  const { op, args } = node;
  if (op === "value") return typeof args === "string" ? [args] : [];
  const own = op === "." || op === ".?" ? [String((args as unknown[])[1])] : [];
  return [...own, ...listChildren(node).flatMap(listMemberNames)];
};

const countListElements = (node: CelNode): number =>
  (node.op === "list" ? listChildren(node).length : 0) +
  listChildren(node).reduce((sum, child) => sum + countListElements(child), 0);
