import { globSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { run } from "node:test";
import { pathToFileURL } from "node:url";
import { stripVTControlCharacters } from "node:util";
import { readCaseLineNumbers, readCases } from "../catalogue/cases.ts";
import type { BrokenRule, CatalogueRule } from "../catalogue/registry.ts";
import { moduleExtension, projectRoot } from "../cli/roots.ts";
import type { TestResult } from "./results.ts";

const root = projectRoot;
const shared = join(import.meta.dirname, `catalogue.test${moduleExtension}`);

/** The rules to test: the rules of these names, or all rules if there are no names. */
interface RuleSelection {
  catalogue: readonly CatalogueRule[];
  broken: readonly BrokenRule[];
  names: readonly string[];
}

/** Runs the cases of rules, the tests common to all rules and the rules' own tests, each file in its own process. */
export async function* runTests({ catalogue, broken, names }: RuleSelection): AsyncGenerator<TestResult> {
  const chosen = catalogue.filter(({ name }) => names.length === 0 || names.includes(name));
  const own = chosen.flatMap(({ name }) => globSync(`functions/${name}/**/*.test.ts`, { cwd: root }));
  const places = new Map(
    await Promise.all(
      chosen.map(async (listed) => [listed.name, await readCasePlaces(listed).catch(() => [])] as const),
    ),
  );
  process.env.POSTERN_RULES = names.join(",");
  // With this variable, which Node sets in tests, Node would run nothing.
  delete process.env.NODE_TEST_CONTEXT;
  const files = [shared, ...own.map((file) => join(root, file))];
  const isBroken = (rule: string | undefined) => broken.some(({ name }) => name === rule);
  const open = new Map<string, string[]>();
  for await (const { type, data } of run({ files, cwd: root, concurrency: true })) {
    if (type !== "test:start" && type !== "test:pass" && type !== "test:fail") continue;
    const { file = "", line, nesting, name } = data;
    const path = [...(open.get(file) ?? []).slice(0, nesting), name];
    open.set(file, path);
    if (type === "test:start") continue;
    const failure = type === "test:fail" ? data.details.error : undefined;
    const isSuite = data.details.type === "suite";
    if (isSuite && (failure === undefined || Object(failure).failureType === "subtestsFailed")) continue;

    const isShared = file === shared;
    const rule = isShared && path.length > 1 ? path[0] : findRuleName(file);
    const title = (isShared && rule !== undefined ? path.slice(1) : path).join(": ");
    const cases = isShared && rule !== undefined && path.length === 2 ? (places.get(rule) ?? []) : [];
    const index = cases.findIndex((testCase) => testCase.name === name);
    const [found] = index < 0 ? [] : cases.splice(index, 1);
    const place = isBroken(rule)
      ? { file: `functions/${rule}/rule.ts` }
      : found
        ? { file: `functions/${rule}/cases.yaml`, line: found.line }
        : { file: relative(root, file).split(sep).join("/"), ...(line !== undefined && { line }) };
    const reason = typeof data.skip === "string" ? [data.skip] : [];
    yield {
      ...(rule !== undefined && { rule }),
      ...place,
      name: title,
      result: failure === undefined ? toResult(data.skip) : isBroken(rule) ? "not evaluated" : "failed",
      because: failure === undefined ? reason : describeFailure(failure, [place.file, place.line].join(":")),
    };
  }
}

const toResult = (skip: string | boolean | undefined) => (skip === undefined ? "passed" : "skipped");

const findRuleName = (file: string): string | undefined =>
  /^functions\/([^/]+)\//.exec(relative(root, file).split(sep).join("/"))?.[1];

const readCasePlaces = async (listed: CatalogueRule): Promise<{ name: string; line: number }[]> => {
  const [cases, lines] = await Promise.all([readCases(listed), readCaseLineNumbers(listed)]);
  return cases.map(({ name }, index) => ({ name, line: lines[index] ?? 1 }));
};

/** Returns a failure's message without its place, and the first line of the stack that is in a rule's folder. */
const describeFailure = (failure: unknown, place: string): string[] => {
  const { cause } = Object(failure);
  const error = cause ?? failure;
  const text = stripVTControlCharacters(String(Object(error).message ?? error)).trimEnd();
  const lines = text.split("\n").filter((line, index) => index > 0 || line !== place);
  const frame = findFrame(String(Object(error).stack ?? ""));
  return [...lines, ...(frame === undefined || frame === place ? [] : [`at ${frame}`])];
};

const findFrame = (stack: string): string | undefined =>
  new RegExp(`${RegExp.escape(pathToFileURL(root).href)}(functions/[^\\s:]+:\\d+)`).exec(stack)?.[1];
