import { globSync } from "node:fs";
import { basename, extname, join, relative, resolve, sep } from "node:path";
import { run } from "node:test";
import { pathToFileURL } from "node:url";
import { stripVTControlCharacters } from "node:util";
import { toMap } from "#lib/json.ts";
import { readCaseLineNumbers, readCases } from "../catalogue/cases.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import type { EndedTest } from "../catalogue/rule-loops-worker.ts";
import { formatRuleMistake } from "../catalogue/rule-source.ts";
import { projectSourceName, type RuleFolder } from "../catalogue/sources.ts";
import { writeNote } from "../cli/command.ts";
import { configVariable, getConfigFile, getProjectRoot, hasConfig, moduleExtension } from "../cli/roots.ts";
import type { ProjectRules } from "../project/project-rules.ts";
import { findRuleMistakes, readConfigManifests } from "../project/rule-mistakes.ts";
import type { TestResult } from "./results.ts";

/** The file with the tests that all rules share. */
const sharedTests = join(import.meta.dirname, `rule-tests${moduleExtension}`);

/**
 * Runs the cases of rules, the tests that all rules share, and the test files of rules. Each file runs in a separate
 * process. Without names, runs the tests of the project's rules.
 */
export async function* runTests(
  { catalogue, broken }: ProjectRules,
  names: readonly string[],
): AsyncGenerator<TestResult> {
  const isChosen = ({ name, source }: RuleFolder) =>
    names.length === 0 ? source === projectSourceName : names.includes(name);
  const chosen = catalogue.filter(isChosen);
  const brokenRules = broken.filter(isChosen);
  if (chosen.length + brokenRules.length === 0) return;
  const testFiles = chosen.flatMap(({ folder, file }) =>
    globSync(`**/*.test${extname(file)}`, { cwd: folder }).map((found) => join(folder, found)),
  );
  const casePlaces = new Map(
    await Promise.all(
      chosen.map(async (listed) => [listed.name, await readCasePlaces(listed).catch(() => [])] as const),
    ),
  );
  const { checks, wrongMatches } = await checkRules([...chosen, ...brokenRules.flatMap(({ listed }) => listed ?? [])]);
  const removeChecks = (rule = "") => {
    const results = checks.get(rule) ?? [];
    checks.delete(rule);
    return results;
  };
  process.env.POSTERN_RULES = [...chosen, ...brokenRules].map(({ name }) => name).join(",");
  if (hasConfig()) process.env[configVariable] = resolve(getConfigFile());
  // Node.js sets this variable in tests. With it, `run` would run nothing.
  delete process.env.NODE_TEST_CONTEXT;
  const files = [sharedTests, ...testFiles];
  const open = new Map<string, string[]>();
  let errorOutput = "";
  for await (const { type, data } of run({ files, cwd: getProjectRoot(), concurrency: true })) {
    // The last line may be an EndedTest.
    if (type === "test:stderr" && isSharedFile(data.file)) errorOutput = (errorOutput + data.message).slice(-4000);
    if (type !== "test:start" && type !== "test:pass" && type !== "test:fail") continue;
    const { file = "", line, nesting, name } = data;
    // If code of a rule ends the process of the shared tests, Node.js reports a failure of the file, not of the test.
    const isShared = isSharedFile(file);
    const ended = type === "test:fail" && nesting === 0 && isShared ? parseEndedTest(errorOutput) : undefined;
    const path = ended?.path ?? [...(open.get(file) ?? []).slice(0, nesting), name];
    open.set(file, [...path]);
    if (type === "test:start") continue;
    const failure = type === "test:fail" ? data.details.error : undefined;
    const isSuite = data.details.type === "suite";
    if (isSuite && (failure === undefined || toMap(failure).failureType === "subtestsFailed")) continue;

    const isOfFile = ({ name, folder }: RuleFolder) =>
      isShared && path.length > 1 ? name === path[0] : file.startsWith(join(folder, sep));
    const testName = path.at(-1);
    const brokenRule = brokenRules.find(isOfFile);
    const ruleFolder = brokenRule ?? chosen.find(isOfFile);
    const rule = ruleFolder?.name;
    const title = (isShared && rule !== undefined ? path.slice(1) : path).join(": ");
    const cases = isShared && rule !== undefined && path.length === 2 ? (casePlaces.get(rule) ?? []) : [];
    const index = cases.findIndex((testCase) => testCase.name === testName);
    const [found] = index < 0 ? [] : cases.splice(index, 1);
    // A failure of a shared test is a fault of the rule, so its place is in the rule's folder.
    let place: { file: string; line?: number } = { file: relative(getProjectRoot(), file).split(sep).join("/") };
    if (found) place = { file: `${ruleFolder?.place}/cases.yaml`, line: found.line };
    else if (ruleFolder && (isShared || brokenRule))
      place = { file: `${ruleFolder.place}/${testedFiles[name] ?? ruleFolder.file}` };
    else if (line !== undefined) place.line = line;
    yield* removeChecks(rule);
    // The checks have already reported the faults in the rule's members. With a wrong match, cases get no request.
    if (brokenRule?.listed || wrongMatches.has(rule)) continue;
    const skipReason = typeof data.skip === "string" ? [data.skip] : [];
    const failedResult = brokenRule ? "not evaluated" : "failed";
    yield {
      ...(rule !== undefined && { rule }),
      ...place,
      name: title,
      result: failure === undefined ? toResult(data.skip) : failedResult,
      because: ended
        ? [ended.sentence, "the tests after it did not run"]
        : failure === undefined
          ? skipReason
          : describeFailure(failure, [place.file, place.line].join(":"), ruleFolder),
    };
  }
  for (const rule of checks.keys()) yield* removeChecks(rule);
}

/**
 * Returns the results of the checks that need no cases, by rule name, and the names of rules with mistakes in `match`.
 * Prints warnings to standard error.
 */
const checkRules = async (rules: CatalogueRule[]) => {
  const wrongMatches = new Set<string | undefined>();
  const manifests = hasConfig() ? await readConfigManifests(getConfigFile()) : [];
  const resultsByRule = [...(await findRuleMistakes(rules, manifests))].map(
    ([{ name: rule, place, file }, allMistakes]) => {
      for (const warning of allMistakes.filter(({ isWarning }) => isWarning)) writeNote(formatRuleMistake(warning));
      const mistakes = allMistakes.filter(({ isWarning }) => !isWarning);
      const test = { rule, name: "has no mistakes, and uses only what it is given" };
      if (mistakes.some(({ member }) => member === "match")) wrongMatches.add(rule);
      const failed = mistakes.map(({ file, line, sentence }): TestResult => {
        return { ...test, file, line, result: "failed", because: [sentence] };
      });
      const passed: TestResult = { ...test, file: `${place}/${file}`, result: "passed", because: [] };
      return [rule, failed.length > 0 ? failed : [passed]] as const;
    },
  );
  return { checks: new Map<string, TestResult[]>(resultsByRule), wrongMatches };
};

/** The files of a rule that shared tests are about, by the name of the test. Other shared tests are about the rule. */
const testedFiles: Readonly<Record<string, string>> = {
  "has cases": "cases.yaml",
  "has a README in the common order": "README.md",
};

/** Reports whether a file has the shared tests. With Node's compile cache, its path may be one in another checkout. */
const isSharedFile = (file = ""): boolean => basename(file) === basename(sharedTests);

const parseEndedTest = (output: string): EndedTest | undefined => {
  const line = output.split("\n").findLast((text) => text.startsWith('{"path":['));
  return line === undefined ? undefined : JSON.parse(line);
};

const toResult = (skip: string | boolean | undefined) => (skip === undefined ? "passed" : "skipped");

const readCasePlaces = async (listed: CatalogueRule): Promise<{ name: string; line: number }[]> => {
  const [cases, lines] = await Promise.all([readCases(listed), readCaseLineNumbers(listed)]);
  return cases.map(({ name }, index) => ({ name, line: lines[index] ?? 1 }));
};

/** Returns a failure's message without its place. Adds the first line of the stack that is in the rule's folder. */
const describeFailure = (failure: unknown, place: string, ruleFolder: RuleFolder | undefined): string[] => {
  const { cause, failureType } = toMap(failure);
  const error = cause ?? failure;
  const what = failureType === "unhandledRejection" ? ["a promise that is not awaited was rejected:"] : [];
  const text = stripVTControlCharacters(String(toMap(error).message ?? error)).trimEnd();
  const allLines = text.split("\n");
  // The first line may be only the place, such as `functions/my-rule/rule.test.ts:12`.
  const lines = allLines[0] === place ? allLines.slice(1) : allLines;
  const frame = ruleFolder && findFrame(String(toMap(error).stack ?? ""), ruleFolder);
  return [...what, ...lines, ...(frame === undefined || frame === place ? [] : [`at ${frame}`])];
};

/** Returns the first place in a stack that is in a rule's folder, such as `functions/my-rule/rule.ts:12`. */
const findFrame = (stack: string, { folder, place }: RuleFolder): string | undefined => {
  const [, found] = new RegExp(`${RegExp.escape(pathToFileURL(folder).href)}/([^\\s:]+:\\d+)`).exec(stack) ?? [];
  return found && `${place}/${found}`;
};
