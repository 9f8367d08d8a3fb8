import { parseArgs } from "node:util";
import { optionalMacros, sortByMacro, standardMacros, twoVariableMacros } from "../../lib/cel/parser/macros.ts";
import { parse } from "../../lib/cel/parser/parser.ts";
import { newestMinor } from "../control-plane/binaries.ts";
import { generateTasks, generateTexts, type Task, writeValue } from "./generate.ts";
import { type Difference, findKnownReason, type Kind, kinds } from "./known-differences.ts";
import { evaluateTask } from "./postern.ts";
import { type Answer, startEvaluator, type UpstreamEvaluator } from "./upstream.ts";

// Compares lib/cel with the packages of kube-apiserver on generated expressions and objects:
//
//   node infra/node.js test/cel/compare.ts --pairs 300000 --seed 1
//   node infra/node.js test/cel/compare.ts --minor 1.36
//   node infra/node.js test/cel/compare.ts --expression "1 + 1"
//   node infra/node.js test/cel/compare.ts --texts 1000000 --seed 1
//
// The last command only parses random texts, and reports the slowest text.
//
// The expression of a difference is shortened before it is reported. Differences with the same cause are reported as a
// group. Of syntax errors, only the positions are compared, because upstream's texts come from a parser generator.

const macros = [...standardMacros, ...optionalMacros, ...twoVariableMacros, ...sortByMacro];

/** The result of a comparison: the numbers of tasks by outcome, and the unknown differences. */
export interface Comparison {
  /** The number of all tasks. A task is the evaluation of one expression with one object. */
  taskCount: number;
  /** The numbers of tasks in which upstream doesn't compile the expression, returns an error, and returns a value. */
  refused: number;
  errors: number;
  values: number;
  /** The number of tasks in which upstream panics. They are not compared. */
  panics: number;
  /** The number of tasks for which upstream has several answers, and one of them is Postern's answer. */
  undecided: number;
  /** The number of each known difference, by its reason. */
  known: Map<string, number>;
  differences: Difference[];
}

export const print = (value: unknown): string => JSON.stringify(sort(value)) ?? "undefined";

/** Sorts the keys of objects, and the entries of CEL's maps. */
const sort = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(sort);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).map(([key, member]): [string, unknown] => [
    key,
    key === "map" && Array.isArray(member)
      ? member.map(sort).sort((left, right) => (JSON.stringify(left) < JSON.stringify(right) ? -1 : 1))
      : sort(member),
  ]);
  return Object.fromEntries(entries.sort(([left], [right]) => (left < right ? -1 : 1)));
};

/** Returns the position of the first syntax error in issues, such as `1:5`. */
const findSyntaxError = (issues: string) => /^ERROR: <input>:(\d+:\d+): Syntax error: /m.exec(issues)?.[1];

/**
 * Replaces the text of a syntax error, which begins with `ERROR: <input>`, by the position of the error. In the error
 * of a policy's variable, other words stand before that text; they are kept.
 */
const toComparable = (error: string | undefined) => {
  const position = error === undefined ? undefined : findSyntaxError(error.replace(/.*?(?=ERROR: <input>)/s, ""));
  return position === undefined ? error : `${error?.replace(/ERROR: <input>.*/s, "")}${position}`;
};

/** Returns the kind of difference between two answers, if any. `issues` are the errors of an invalid expression. */
export const findDifferenceKind = (upstream: Answer, postern: Answer): Kind | undefined => {
  if (postern.error?.startsWith("failure: ")) return "failure";
  if (upstream.issues !== postern.issues) {
    if (upstream.issues === undefined || postern.issues === undefined) return "issues";
    const position = findSyntaxError(upstream.issues);
    // After the first syntax error, further errors depend on the parser.
    return position !== undefined && position === findSyntaxError(postern.issues) ? undefined : "issues";
  }
  // `creation` is the error if a valid expression can't be compiled; `printed` is its type as some errors print it.
  if (upstream.creation !== postern.creation) return "creation";
  if (upstream.type !== postern.type || upstream.printed !== postern.printed) return "type";
  if (toComparable(upstream.error) !== toComparable(postern.error)) return "error";
  if (print(upstream.value) !== print(postern.value)) return "value";
  return upstream.cost === postern.cost ? undefined : "cost";
};

const isPanic = ({ error }: Answer) => error?.startsWith("panic: ") === true;

/** How often upstream evaluates a task whose answer may depend on the order of a map. */
const repetitions = 40;

const batchSize = 256;

/** Compares upstream's and Postern's answers to the next `taskCount` tasks. */
export const compare = async (
  evaluator: UpstreamEvaluator,
  {
    taskCount,
    tasks,
    report,
  }: { taskCount: number; tasks: Iterator<Task>; report?: (done: number, differences: number) => void },
): Promise<Comparison> => {
  const takeBatch = (size: number) => Array.from({ length: size }, (): Task => tasks.next().value);
  const comparison: Comparison = {
    taskCount,
    refused: 0,
    errors: 0,
    values: 0,
    panics: 0,
    undecided: 0,
    known: new Map(),
    differences: [],
  };
  let batch = takeBatch(Math.min(batchSize, taskCount));
  let answers = evaluator.evaluate(batch);
  for (let done = 0; done < taskCount; ) {
    const postern = batch.map((task) => evaluateTask(task, evaluator.minor));
    const currentBatch = batch;
    const upstream = await answers;
    done += batch.length;
    // The Go program evaluates the next tasks while these answers are compared.
    batch = takeBatch(Math.min(batchSize, taskCount - done));
    answers = evaluator.evaluate(batch);
    const different = currentBatch.flatMap((task, index): Difference[] => {
      const [theirs, ours] = [upstream[index] as Answer, postern[index] as Answer];
      if (isPanic(theirs)) {
        comparison.panics++;
        return [];
      }
      // `creation` is the error if an expression without issues can't be compiled to a program.
      const isExpressionRefused = theirs.issues !== undefined || theirs.creation !== undefined;
      if (isExpressionRefused) comparison.refused++;
      else if (theirs.error === undefined) comparison.values++;
      else comparison.errors++;
      const kind = findDifferenceKind(theirs, ours);
      return kind ? [{ kind, minor: evaluator.minor, task, upstream: theirs, postern: ours }] : [];
    });
    // Upstream's answer may depend on the random order of a Go map. If upstream gives Postern's answer, too, when it
    // evaluates the task again, the difference is undecided.
    const decided = await dropUndecided(evaluator, different);
    comparison.undecided += different.length - decided.length;
    for (const difference of decided) {
      const reason = findKnownReason(difference, print);
      if (reason === undefined) comparison.differences.push(difference);
      else comparison.known.set(reason, (comparison.known.get(reason) ?? 0) + 1);
    }
    report?.(done, comparison.differences.length);
  }
  return comparison;
};

/**
 * Returns only the differences in which no answer of upstream is Postern's. Upstream's answer may depend on Go's random
 * order of map keys, so upstream answers each task several times.
 */
const dropUndecided = async (evaluator: UpstreamEvaluator, different: readonly Difference[]) => {
  const answers = await evaluator.evaluate(
    different.map(({ task }) => task),
    repetitions,
  );
  return different.filter(({ postern }, index) => {
    const { others: unlikeFirst = [], ...first } = answers[index] as Answer;
    const upstreamAnswers = [first, ...unlikeFirst];
    if (upstreamAnswers.some((answer) => !findDifferenceKind(answer, postern))) return false;
    // If upstream's answers vary, Postern's may differ from all of them in the order of lists, and have any cost
    // between their lowest and highest, because a large map has more orders of keys than the repetitions can show.
    const costs = upstreamAnswers.map(({ cost = 0 }) => cost);
    const isCostWithin = (postern.cost ?? 0) >= Math.min(...costs) && (postern.cost ?? 0) <= Math.max(...costs);
    const reduce = (answer: Answer) => ({ ...answer, cost: 0, value: sortLists(answer.value) });
    const isSimilar = (answer: Answer) => isCostWithin && !findDifferenceKind(reduce(answer), reduce(postern));
    return unlikeFirst.length === 0 || !upstreamAnswers.some(isSimilar);
  });
};

/** Sorts all lists in JSON. */
const sortLists = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(sortLists).sort((left, right) => (print(left) < print(right) ? -1 : 1));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, sortLists(member)]));
};

/** Returns the index of the bracket that closes the first bracket from `start` on; -1 if there is none. */
const findEnd = (text: string, start: number): number => {
  let depth = 0;
  for (let index = start; index < text.length; index++) {
    const character = text[index] ?? "";
    if (/["']/.test(character)) {
      index = text.indexOf(character, index + 1);
      if (index < 0) return -1;
    } else if (/[([{]/.test(character)) depth++;
    else if (/[)\]}]/.test(character) && --depth === 0) return index;
  }
  return -1;
};

/** Splits a text at its commas, but not at commas in brackets. */
const splitArguments = (text: string): string[] => {
  const parts: string[] = [];
  let start = 0;
  for (let index = 0; index < text.length; index++) {
    if (/[([{]/.test(text[index] ?? "")) {
      const end = findEnd(text, index);
      if (end > 0) index = end;
    } else if (text[index] === ",") {
      parts.push(text.slice(start, index).trim());
      start = index + 1;
    }
  }
  return [...parts, text.slice(start).trim()];
};

/** Lists expressions that are shorter than `text`, and may show the same difference. The shortest comes first. */
const listShorter = (text: string): string[] => {
  const found = new Set<string>();
  const simpleValues = ["1", "'a'", "true", "[]", "dyn(1)", "{}", "x"];
  for (let start = 0; start < text.length; start++) {
    if (!/[([{]/.test(text[start] ?? "")) continue;
    const end = findEnd(text, start);
    if (end < 0) continue;
    const inner = text.slice(start + 1, end);
    const parts = splitArguments(inner);
    const replaceParts = (newParts: string[]) => text.slice(0, start + 1) + newParts.join(", ") + text.slice(end);
    // What is in the brackets: all of it, and each of the parts between commas.
    for (const part of [inner, ...parts]) found.add(part);
    // The text up to the closing bracket, the text from the opening bracket on, and the text without the brackets.
    found.add(text.slice(0, end + 1));
    found.add(text.slice(start));
    found.add(text.slice(0, start) + text.slice(end + 1));
    // The call alone, and the text with a simple value instead of the call. A call is a name and its brackets.
    const callStart = start - (/[\w.]*$/.exec(text.slice(0, start))?.[0].length ?? 0);
    found.add(text.slice(callStart, end + 1));
    for (const value of simpleValues) found.add(text.slice(0, callStart) + value + text.slice(end + 1));
    // The text without an argument, or with a simpler one.
    for (const [index, part] of parts.entries()) {
      found.add(replaceParts(parts.toSpliced(index, 1)));
      for (const simpler of [...simpleValues, ...listInner(part)]) found.add(replaceParts(parts.with(index, simpler)));
    }
  }
  // What comes before and after an operator, or a member such as `.name`.
  for (const { index, 0: operator } of text.matchAll(/ (?:[-+*/%<>?:]|[=!<>]=|&&|\|\||in) |\.\w+/g)) {
    found.add(text.slice(0, index).trim());
    found.add(text.slice(index + operator.length).trim());
  }
  // The text with a shorter value instead of a text, a number or a path such as `object.spec`.
  for (const { index, 0: token } of text.matchAll(/'[^']*'|"[^"]*"|\d[\w.]*|object[.\w]+/g))
    for (const value of ["1", "'a'", "1.0", "x"])
      if (value.length < token.length) found.add(text.slice(0, index) + value + text.slice(index + token.length));
  return [...found]
    .filter((one) => one !== "" && one.length < text.length)
    .sort((one, other) => one.length - other.length);
};

/** Returns the arguments in the first brackets of a text. */
const listInner = (text: string): string[] => {
  const start = text.search(/[([{]/);
  const end = start < 0 ? -1 : findEnd(text, start);
  return end < 0 ? [] : splitArguments(text.slice(start + 1, end));
};

/** Finds a shorter expression with a difference of the same kind. Returns `difference` if there is none. */
const shrink = async (evaluator: UpstreamEvaluator, difference: Difference): Promise<Difference> => {
  let smallest = difference;
  for (let round = 0; round < 12; round++) {
    const tasks = listShorter(smallest.task.expression)
      .slice(0, 150)
      // Upstream has no limit for large ranges, and would need too much memory.
      .filter((expression) => !/range\(\d{5}/.test(expression))
      .map((expression) => ({ ...smallest.task, expression }));
    const answers = await evaluator.evaluate(tasks, /* repeat */ 3);
    const { kind, minor } = difference;
    const candidates = tasks.map((task, index): Difference => {
      return { kind, minor, task, upstream: answers[index] as Answer, postern: evaluateTask(task, minor) };
    });
    const shorter = candidates.find(
      (one) =>
        !isPanic(one.upstream) &&
        // Upstream gave the same answer each time.
        !one.upstream.others &&
        findDifferenceKind(one.upstream, one.postern) === kind &&
        findKnownReason(one, print) === undefined,
    );
    if (!shorter) return smallest;
    smallest = shorter;
  }
  return smallest;
};

/** Returns the start of an error without positions, quoted texts and numbers. */
const generalize = (text: string | undefined) =>
  text
    ?.split("\n")[0]
    ?.replace(/<input>:\d+:\d+/, "")
    .replace(/'[^']*'|"[^"]*"|\d+/g, "…")
    .slice(0, 120);

/** Describes which parts an answer has, with generalized errors. */
const describeShape = (answer: Answer) =>
  [
    generalize(answer.issues),
    generalize(answer.creation),
    generalize(answer.error),
    answer.value === undefined ? "" : "value",
  ].join("|");

/** Returns a text that is mostly the same for differences with the same cause. */
const describeCause = ({ kind, task, upstream, postern }: Difference): string => {
  if (kind === "value" || kind === "cost" || kind === "type")
    return `${kind}: ${[...new Set(task.expression.match(/\b\w+(?=\()|[-+*/%<>=!&|?]+|\bin\b/g))].sort().slice(0, 3).join(" ")}`;
  return `${kind}: ${describeShape(upstream)} / ${describeShape(postern)}`;
};

/** Groups differences by their cause, the largest group first. Each group has its shortest differences as examples. */
export const groupDifferences = async (
  evaluator: UpstreamEvaluator,
  differences: readonly Difference[],
): Promise<{ cause: string; count: number; examples: Difference[] }[]> => {
  const sortByLength = (list: readonly Difference[]) =>
    list.toSorted((one, other) => one.task.expression.length - other.task.expression.length);
  const groups = new Map<string, { cause: string; count: number; examples: Difference[] }>();
  for (const members of Map.groupBy(differences, describeCause).values()) {
    // The shortest expressions are shortened fastest.
    const examples: Difference[] = [];
    for (const one of sortByLength(members).slice(0, 3)) examples.push(await shrink(evaluator, one));
    const [shortest] = sortByLength(examples);
    if (!shortest) continue;
    // Shortened expressions of several groups may have the same cause. Then these groups are joined.
    const cause = describeCause(shortest);
    const group = groups.get(cause) ?? { cause, count: 0, examples: [] };
    group.count += members.length;
    group.examples.push(...examples);
    groups.set(cause, group);
  }
  return [...groups.values()].sort((one, other) => other.count - one.count);
};

/** Formats an answer for the report on a difference. `issues` are the errors of an invalid expression. */
const printAnswer = (answer: Answer) => {
  const { issues, creation: compileError, error, value, type, cost } = answer;
  const rest = [type, cost === undefined ? "" : `cost ${cost}`].filter(Boolean).join(", ");
  if (issues !== undefined)
    return issues
      .split("\n")
      .filter((line) => !line.startsWith(" |"))
      .join("\n            ");
  if (compileError !== undefined) return `compile error: ${compileError}`;
  return `${error === undefined ? print(value).slice(0, 300) : `error: ${error.slice(0, 700)}`} (${rest})`;
};

/** Formats a difference: the expression, the values that it uses, and both answers. */
const printDifference = ({ task, upstream, postern }: Difference): string => {
  const { expression, mode, policyVariables: declared, variables } = task;
  const used = Object.entries(variables).filter(
    ([name]) => new RegExp(`\\b${name}\\b`).test(expression) && name !== "request",
  );
  return [
    `  ${expression}${mode === "validation" ? "" : `    (${mode})`}`,
    ...declared.filter(({ name }) => expression.includes(name)).map((one) => `    ${one.name} = ${one.expression}`),
    ...used.map(([name, value]) => `    ${name}: ${writeValue(value).slice(0, 250)}`),
    `    upstream: ${printAnswer(upstream)}`,
    `    postern:  ${printAnswer(postern)}`,
  ].join("\n");
};

/** Parses random texts, and reports the slowest text. An invalid text must cause issues, never an exception. */
const parseTexts = (count: number, seed: number): string => {
  let [refused, longest, slowest] = [0, 0, ""];
  let done = 0;
  for (const text of generateTexts(seed)) {
    if (done++ === count) break;
    const start = performance.now();
    if (Array.isArray(parse(text, macros))) refused++;
    const duration = performance.now() - start;
    if (duration > longest) [longest, slowest] = [duration, text];
  }
  const memory = Math.round(process.resourceUsage().maxRSS / 1024);
  const example = slowest.length > 200 ? `${slowest.slice(0, 200)}… (${slowest.length} characters)` : slowest;
  return `${count} texts, ${refused} refused; at most ${memory} MiB; ${longest.toFixed(1)} ms for ${JSON.stringify(example)}`;
};

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      minor: { type: "string", default: newestMinor },
      // How many pairs of an expression and an object to compare.
      pairs: { type: "string", default: "20000" },
      // How many random texts to parse instead, to print which text takes longest.
      texts: { type: "string" },
      seed: { type: "string", default: "1" },
      expression: { type: "string" },
      mode: { type: "string", default: "validation" },
      examples: { type: "string", default: "2" },
      kinds: { type: "string", default: kinds.join() },
    },
  });
  if (values.texts !== undefined) {
    process.stdout.write(`${parseTexts(Number(values.texts), Number(values.seed))}\n`);
    process.exit();
  }
  const evaluator = await startEvaluator(values.minor);
  if (values.expression !== undefined) {
    const { value: task } = generateTasks(Number(values.seed)).next();
    const one = { ...task, expression: values.expression, mode: values.mode as Task["mode"], policyVariables: [] };
    const [upstream = {}] = await evaluator.evaluate([one]);
    const postern = evaluateTask(one, evaluator.minor);
    process.stdout.write(
      `${printDifference({ kind: "value", minor: evaluator.minor, task: one, upstream, postern })}\n`,
    );
    process.exitCode = findDifferenceKind(upstream, postern) ? 1 : 0;
  } else {
    const start = Date.now();
    const comparison = await compare(evaluator, {
      taskCount: Number(values.pairs),
      tasks: generateTasks(Number(values.seed)),
    });
    const seconds = (Date.now() - start) / 1000;
    const { differences, taskCount, refused, errors, values: found, panics, undecided, known } = comparison;
    const byKind = kinds.map((kind) => [kind, differences.filter((one) => one.kind === kind).length] as const);
    const shown = differences.filter(({ kind }) => values.kinds.split(",").includes(kind));
    for (const { cause, count, examples } of await groupDifferences(evaluator, shown))
      process.stdout.write(
        `${count} × ${cause}\n${examples.slice(0, Number(values.examples)).map(printDifference).join("\n")}\n`,
      );
    for (const [reason, count] of known) process.stdout.write(`${count} known: ${reason}\n`);
    process.stdout.write(
      `${taskCount} pairs in ${Math.round(seconds)} s: ${found} values, ${errors} errors, ${refused} ` +
        `refused expressions; ${undecided} with several answers of upstream, ${panics} panics of upstream; ` +
        `${differences.length} differences (${byKind.map(([kind, count]) => `${kind} ${count}`).join(", ")})\n`,
    );
    process.exitCode = differences.length > 0 ? 1 : 0;
  }
  await evaluator.stop();
}
