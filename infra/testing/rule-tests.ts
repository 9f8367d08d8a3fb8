import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, describe, it as nodeIt } from "node:test";
import { setImmediate } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { hasSchemas } from "#lib/admission-policies/merge/schemas.ts";
import { createUnconnectedCapabilities } from "#lib/core/capabilities.ts";
import { rejectWhenLate } from "#lib/core/deadline.ts";
import { createEndpoint } from "#lib/core/endpoint.ts";
import type { RuleDecision } from "#lib/core/evaluation.ts";
import { freezeDeep, isMap, toMap } from "#lib/json.ts";
import type { Capabilities, ReadOptions } from "#lib/needs.ts";
import { createRecordedCapabilities, type RecordedCapabilityAnswers } from "#lib/recording/recorded-answers.ts";
import type { Case } from "#lib/recording/recording.ts";
import type { AdmissionReview, KubernetesObject } from "#lib/review.ts";
import { type Rule, selectPhase } from "#lib/rule.ts";
import { findSettingsMistakes, mergeWithDefaults } from "#lib/settings.ts";
import { applyOutcomePatch, formatCaseDiff } from "../catalogue/case-differences.ts";
import {
  applyCaseSettingsAndVariant,
  buildCaseReview,
  buildReview,
  evaluateCase,
  getCaseOperation,
  getCasePhase,
  readCaseLineNumbers,
  readCases,
} from "../catalogue/cases.ts";
import { type CatalogueRule, describeUseOfDefaultOnPlugin } from "../catalogue/registry.ts";
import { watchForLoops } from "../catalogue/rule-loops.ts";
import type { EndedTest } from "../catalogue/rule-loops-worker.ts";
import { type FixSuggestion, suggestFix } from "../check/evaluation/suggestions.ts";
import { parseYamlDocument, unlimitedAliases } from "../cli/yaml-document.ts";
import { readAllRules } from "../project/project-rules.ts";
import { buildOddCases, generateCases } from "./case-generators.ts";
import { evaluateMatchCondition } from "./cel-condition.ts";
import { createRandom } from "./random.ts";
import { replaceAt, type WrongType, watchReads } from "./wrong-types.ts";

// Tests the cases of every rule, and properties that all rules must have. POSTERN_RULES can name the rules to test.
const chosenNames = process.env.POSTERN_RULES?.split(",").filter(Boolean) ?? [];
const { catalogue: rules, broken } = await readAllRules();
const isChosen = ({ name }: { name: string }) => chosenNames.length === 0 || chosenNames.includes(name);
const catalogue = rules.filter(isChosen);

/** The seed of generated cases. A failed test prints it, and the environment variable POSTERN_SEED repeats it. */
const seed = Number(process.env.POSTERN_SEED || randomInt(1_000_000_000));

/** The number of reviews with a wrong type for each rule. If there are fewer, all are used. */
const maxWrongTypes = Number(process.env.POSTERN_RUNS || 200);

const secret = "a secret value";
/** Rules that may fill in values from cached reads. Each has a reason, which is also in the rule's README. */
const fillingFromCache: Record<string, string> = {
  "pod-topology-labels": "a node that has its zone and region keeps them",
  "policy-override": "without the cache, it would list every policy for every write",
};
type CaseReview = ReturnType<typeof buildCaseReview>;

/** The outcome of a rule that does nothing. */
const idle: RuleDecision["outcome"] = { allowed: true, warnings: [], audit: {} };

/** The time limit of one evaluation, in milliseconds: that of a function, and as much again for a slow machine. */
const evaluationLimit = 20_000;

/** The rules of which an evaluation was late. They are not evaluated again, so that the tests end soon. */
const lateRules = new Set<string | undefined>();

const loopWatchdog = watchForLoops(catalogue);
let running: readonly string[] = [];
let isFinished = false;
after(() => {
  isFinished = true;
  loopWatchdog.stop();
});
process.on("exit", () => {
  if (isFinished) return;
  const ended: EndedTest = { path: running, sentence: "code of the rule ended the process, as process.exit does" };
  process.stderr.write(`${JSON.stringify(ended)}\n`);
  process.exitCode = 1;
});

for (const { name, sentence } of broken.filter(isChosen)) describe(name, () => it("loads", () => fail(sentence)));

for (const listed of catalogue) {
  const cases = await readCases(listed).catch((error: Error) => error);
  if (cases instanceof Error) {
    describe(listed.name, () => it("has cases", () => fail(cases.message)));
    continue;
  }
  const settingsCases = await readSettingsCases(listed);
  describe(listed.name, () => {
    for (const [index, ruleCase] of cases.entries()) {
      it(ruleCase.name, async () => {
        const lines = formatCaseDiff(ruleCase, await evaluateFrozen(listed, ruleCase));
        if (lines.length > 0)
          fail(`${listed.place}/cases.yaml:${(await readCaseLineNumbers(listed))[index]}`, ...lines);
      });
    }
    describe("has the properties of every rule: it", () => testCommonProperties(listed, cases));
    for (const { settings, refused } of settingsCases)
      it(`${refused === undefined ? "accepts" : "refuses"} the settings ${JSON.stringify(settings)}`, () =>
        assert.equal(findSettingsFault(listed.rule, settings), refused));
  });
}

/** Returns what is wrong with settings, with the same checks as for postern.yaml. */
function findSettingsFault(rule: Rule, settings: object) {
  const [mistake] = findSettingsMistakes(rule, settings);
  return mistake
    ? `${mistake.path.join(".")} ${mistake.sentence}`
    : rule.checkSettings?.(mergeWithDefaults(rule.settings ?? {}, settings));
}

/** Reads the optional file settings.yaml. It lists settings; `refused` is the sentence with which they are refused. */
async function readSettingsCases({ folder, place }: CatalogueRule): Promise<{ settings: object; refused?: string }[]> {
  const file = join(folder, "settings.yaml");
  if (!existsSync(file)) return [];
  const options = { ...unlimitedAliases, merge: true };
  const document = parseYamlDocument(await readFile(file, "utf8"), `${place}/settings.yaml`, options);
  const { value = [] } = document;
  if (!Array.isArray(value) || !value.every((entry) => isMap(entry) && isMap(entry.settings)))
    document.complain([{ path: [], sentence: "must be a list of maps with settings" }]);
  return value as { settings: object; refused?: string }[];
}

/** Declares a test. A rejected promise that the rule doesn't await makes it fail, too. */
function it(name: string, run: () => unknown): void {
  nodeIt(name, async ({ fullName }) => {
    // The name of a case may contain the separator.
    running = [...fullName.slice(0, -` > ${name}`.length).split(" > "), name];
    loopWatchdog.setRunning(running);
    try {
      await run();
      // Node.js reports unhandled rejections before it runs immediates.
      await setImmediate();
    } finally {
      loopWatchdog.setRunning([]);
    }
  });
}

/** Fails if an evaluation of a rule takes too long, or if an earlier one of the same rule did. */
async function limitTime<T>(evaluate: () => Promise<T>): Promise<T> {
  const [rule] = running;
  if (lateRules.has(rule)) fail("the rule is not called again, because it did not answer an earlier test");
  loopWatchdog.noteProgress();
  return rejectWhenLate(evaluate(), evaluationLimit, () => {
    lateRules.add(rule);
    return createPlainError(`the rule did not answer within ${evaluationLimit / 1000} seconds`);
  });
}

/** Fails with these lines. */
function fail(...lines: string[]): never {
  throw createPlainError(lines.join("\n"));
}

/** Returns an error without a stack, because a stack would show only this file. */
function createPlainError(message: string): Error {
  const error = new Error(message);
  error.stack = error.message;
  return error;
}

/** Tests the properties that every rule must have. */
function testCommonProperties(listed: CatalogueRule, cases: Case[]) {
  const mutations = cases.filter(
    (ruleCase) => ruleCase.mutate && ruleCase.refused === undefined && getCaseOperation(ruleCase) !== "DELETE",
  );

  if (mutations.length > 0)
    it("changes nothing when it runs again", async () => {
      for (const ruleCase of mutations) {
        const { outcome } = await evaluateFrozen(listed, ruleCase);
        const changed = {
          ...ruleCase,
          mutate: applyOutcomePatch(ruleCase.mutate, outcome) as NonNullable<Case["mutate"]>,
        };
        assert.deepEqual((await evaluateFrozen(listed, changed)).outcome.patch, undefined, ruleCase.name);
      }
    });

  if (mutations.length > 0)
    it("keeps fields it does not know", async () => {
      for (const ruleCase of mutations) {
        const extended = addUnknownFields(ruleCase.mutate);
        const { outcome } = await evaluateFrozen(listed, {
          ...ruleCase,
          mutate: extended as NonNullable<Case["mutate"]>,
        });
        assert.deepEqual(
          addUnknownFields(applyOutcomePatch(extended, outcome)),
          addUnknownFields(ruleCase.becomes ?? ruleCase.mutate),
          ruleCase.name,
        );
      }
    });

  /** Reports whether a rule reads objects in a case and changes the case's object. */
  const readsAndMutates = ({ mutate, becomes, needs }: Case) =>
    mutate !== undefined &&
    becomes !== undefined &&
    needs?.objects !== undefined &&
    !isDeepStrictEqual(mutate, becomes);
  if (cases.some(readsAndMutates) && !(listed.name in fillingFromCache))
    it("fills in no values from cached reads", async () => {
      for (const ruleCase of cases.filter(({ mutate, needs }) => mutate && needs?.objects)) {
        const { objects = [], ...needs } = ruleCase.needs ?? {};
        const decided = await evaluateFrozen(listed, ruleCase);
        for (const before of [[], objects.map(toBare), objects.map(toOther)]) {
          const capabilities = buildChangedCapabilities(ruleCase.needs ?? {}, { ...needs, objects: before });
          const review = freezeReview(buildReview(listed, structuredClone(ruleCase)));
          assert.deepEqual(await evaluateInTime(listed, ruleCase, review, capabilities), decided, ruleCase.name);
        }
      }
    });

  if (listed.rule.sideEffects === "NoneOnDryRun")
    it("writes nothing in a dry run", async () => {
      for (const ruleCase of cases) {
        const review = buildReview(listed, { ...ruleCase, dryRun: true });
        const write = () => assert.fail(`${ruleCase.name}: it writes something`);
        const capabilities = createRecordedCapabilities(ruleCase.needs ?? {});
        const ledger: typeof capabilities.ledger = (...of) => {
          const { change } = capabilities.ledger(...of);
          return {
            change: (keys, decide, ...rest) =>
              change(
                keys,
                (kept) => {
                  const decided = decide(kept);
                  assert.deepEqual(decided, kept, `${ruleCase.name}: it changes the ledger`);
                  return decided;
                },
                ...rest,
              ),
          };
        };
        await evaluateInTime(listed, ruleCase, review, { ...capabilities, ledger, create: write, updateStatus: write });
      }
    });
  else
    it("gives the same answer to a dry run", async () => {
      for (const ruleCase of cases)
        assert.deepEqual(
          await evaluateFrozen(listed, { ...ruleCase, dryRun: !ruleCase.dryRun }),
          await evaluateFrozen(listed, ruleCase),
          ruleCase.name,
        );
    });

  it("answers if any field is missing or empty", async () => {
    for (const ruleCase of cases)
      for (const odd of buildOddCases(ruleCase)) {
        const review = buildReview(listed, odd);
        const { outcome } = await evaluateInTime(listed, odd, review).catch((error: Error) => {
          // A policy may be written so that a missing field is an error.
          const isOfPolicy = listed.name.startsWith("policy-") && !(error instanceof TypeError);
          if (!isOfPolicy && !isUnanswered(error)) throw new Error(`${odd.name}: ${error.message}`, { cause: error });
          return { outcome: idle };
        });
        const [badText] = /undefined|NaN|\[object/.exec(JSON.stringify(outcome)) ?? [];
        assert.ok(badText === undefined, `${odd.name}: the answer has "${badText}": ${JSON.stringify(outcome)}`);
      }
  });

  it("answers a review with a wrong type with 200 or 400", async () => {
    const { evaluateReview } = createEndpoint(
      listed.rule,
      { rule: listed.name, clusters: {} },
      { publicKeys: "", openCapabilities: createUnconnectedCapabilities, writeLogLine: () => {} },
    );
    const evaluate = (event: CaseReview, request: unknown) =>
      limitTime(() => evaluateReview({ ...event, review: { ...event.review, request } }));
    const forged: (WrongType & { ruleCase: Case; event: CaseReview })[] = [];
    for (const ruleCase of cases) {
      // In a custom resource, only the types of metadata are known.
      const { group, version } = buildReview(listed, ruleCase).request.resource;
      const built = buildCaseReview(listed, ruleCase);
      const event: CaseReview = { ...built, review: freezeDeep(structuredClone(built.review)) };
      const { request } = event.review;
      const { view, listWrongTypes } = watchReads(request);
      await evaluate(event, view);
      for (const { path, value } of listWrongTypes())
        if (hasSchemas(group, version) || path[1] === "metadata" || !["object", "oldObject"].includes(String(path[0])))
          forged.push({ ruleCase, event, path, value });
    }
    const { pick } = createRandom(seed);
    const chosen = maxWrongTypes < forged.length ? Array.from({ length: maxWrongTypes }, () => pick(forged)) : forged;
    for (const { ruleCase, event, path, value } of chosen) {
      const request = replaceAt(event.review.request, path, value);
      const { code = 200, message = "" } = (await evaluate(event, request)).status ?? {};
      // A policy may be written so that a value of a wrong type is an error.
      const isExpected =
        /^no answer is recorded/.test(message) || (listed.name.startsWith("policy-") && /^\w+Policy /.test(message));
      assert.ok(
        [200, 400].includes(code) || isExpected,
        `${ruleCase.name}, where ${path.join(".")} is ${JSON.stringify(value)}: ${code} ${message}\nwith POSTERN_SEED=${seed}`,
      );
    }
  });

  if (cases.some(({ needs }) => needs?.objects))
    it("reveals nothing of the objects that it reads, except the fields that it uses", async () => {
      for (const ruleCase of cases) {
        const objects = ruleCase.needs?.objects?.map(withSecrets);
        if (!objects) continue;
        const filled = { ...ruleCase, needs: { ...ruleCase.needs, objects } };
        const { outcome, refused } = await evaluateFrozen(listed, filled);
        const advice = refused ? await findSuggestion(listed, filled) : undefined;
        assert.ok(!JSON.stringify([outcome, advice]).includes(secret), ruleCase.name);
      }
    });

  if (listed.rule.suggest) {
    const refusals = cases.filter(({ refused }) => refused !== undefined);
    it("has a suggestion for a refused case, and admits the object with its edits", async () => {
      const all = await Promise.all(refusals.map((ruleCase) => findSuggestion(listed, ruleCase)));
      assert.ok(all.some((advice) => advice !== undefined));
      for (const [index, ruleCase] of refusals.entries()) {
        assert.ok(!all[index]?.isStillRefused, `${ruleCase.name}: "${all[index]?.text}" is refused, too`);
        await assertSuggestionHelps(listed, ruleCase, all[index]);
      }
    });
    it("admits the edits of its suggestions for generated objects, too", async () => {
      await assertForGenerated(refusals, 100, async (ruleCase) => {
        const isRefused = await evaluateFrozen(listed, ruleCase).then(({ refused }) => refused, ignoreUnanswered);
        if (isRefused)
          await assertSuggestionHelps(listed, ruleCase, await findSuggestion(listed, ruleCase).catch(ignoreUnanswered));
      });
    });
  }

  for (const phase of listed.phases) {
    const phaseCases = cases.filter((ruleCase) => getCasePhase(ruleCase) === phase);
    it(`has a case to ${phase}`, () => assert.ok(phaseCases.length > 0));
    const getConditions = (ruleCase: Case) => {
      const { rule, settings } = applyCaseSettingsAndVariant(listed.rule, ruleCase);
      return selectPhase(rule.matchConditions, phase, settings);
    };
    if (phaseCases.every((ruleCase) => getConditions(ruleCase) === undefined)) continue;

    const isCalled = (ruleCase: Case, { request }: AdmissionReview) =>
      Object.values(getConditions(ruleCase) ?? {}).every((expression) => evaluateMatchCondition(expression, request));
    const assertIdleIfSkipped = async (ruleCase: Case) => {
      const review = buildReview(listed, ruleCase);
      if (isCalled(ruleCase, review)) return;
      const { outcome } = await evaluateInTime(listed, ruleCase, review);
      assert.deepEqual(
        { ...idle, ...outcome },
        idle,
        `skipped, though it would have acted: ${JSON.stringify(review.request)}`,
      );
    };

    it(`does nothing in cases that its conditions to ${phase} skip`, async () => {
      for (const ruleCase of phaseCases) await assertIdleIfSkipped(ruleCase);
    });
    it(`does nothing with generated objects that its conditions to ${phase} skip`, () =>
      assertForGenerated(phaseCases, 300, assertIdleIfSkipped));
  }

  it("has a README in the common order", async () => {
    const readme = await readFile(join(listed.folder, "README.md"), "utf8");
    const headings = [...readme.matchAll(/^##? .*$/gm)].map(([line]) => line);
    const usual = [`# ${listed.name}`, "## Why", "## Settings", "## Needs"];
    const upstream = "## Differences from upstream";
    assert.deepEqual(headings, headings.includes(upstream) ? [...usual, upstream] : usual);
    const beginning = `# ${listed.name}\n\n${listed.rule.summary}`;
    assert.ok(readme.startsWith(beginning), `must begin with the rule's name and summary:\n${beginning}`);
    const [intro = ""] = readme.split("\n## ");
    const worthwhile = describeUseOfDefaultOnPlugin(listed.rule) ?? "";
    assert.ok(intro.replaceAll("\n", " ").includes(worthwhile), "says what the rule does if its upstream plugin is on");
    for (const key of Object.keys(listed.rule.settings ?? {}))
      assert.match(readme, new RegExp(`^\\| \`${key}\``, "m"), `its table of settings has ${key}`);
  });
}

/** Runs a check for generated cases. If the check fails, adds the case and the seed to its error. */
async function assertForGenerated(
  cases: readonly Case[],
  count: number,
  check: (ruleCase: Case) => Promise<void>,
): Promise<void> {
  for (const ruleCase of generateCases(cases, count, seed))
    await check(ruleCase).catch((error: Error) => {
      const from = JSON.stringify({ ...ruleCase, name: undefined });
      throw new Error(`${error.message}\nwith POSTERN_SEED=${seed}: ${from}`, { cause: error });
    });
}

/** Returns the decision on a case. The input is frozen: a rule that changes its input throws an error. */
async function evaluateFrozen(listed: CatalogueRule, ruleCase: Case): Promise<RuleDecision> {
  return evaluateInTime(listed, ruleCase, freezeReview(buildReview(listed, structuredClone(ruleCase))));
}

function evaluateInTime(...call: Parameters<typeof evaluateCase>): Promise<RuleDecision> {
  return limitTime(() => evaluateCase(...call));
}

/** Returns the suggestion for a refused case. The input is frozen. A capability that writes or sends fails the test. */
async function findSuggestion(listed: CatalogueRule, ruleCase: Case): Promise<FixSuggestion | undefined> {
  const { rule, settings } = applyCaseSettingsAndVariant(listed.rule, ruleCase);
  const { request } = freezeReview(buildReview(listed, structuredClone(ruleCase)));
  const failOnAction = () => assert.fail(`${ruleCase.name}: it calls a capability that writes`);
  const capabilities = {
    ...createRecordedCapabilities(ruleCase.needs ?? {}),
    create: failOnAction,
    updateStatus: failOnAction,
    https: failOnAction,
    http: failOnAction,
    aws: failOnAction,
    ledger: failOnAction,
  };
  const now = new Date(ruleCase.now ?? "2026-01-01T00:00:00Z");
  const { kubernetes, variant } = ruleCase;
  const context = { name: listed.name, settings: freezeReview(settings), kubernetes, variant, now, capabilities };
  return limitTime(() => suggestFix(rule, getCasePhase(ruleCase), request, context));
}

/** Fails if a suggestion has several lines or a full stop, or if the rule refuses the edited object. */
async function assertSuggestionHelps(
  listed: CatalogueRule,
  ruleCase: Case,
  suggestion: FixSuggestion | undefined,
): Promise<void> {
  if (suggestion === undefined) return;
  const { text, object, isStillRefused } = suggestion;
  assert.match(text, /^[a-z].{1,288}[^.\s]$/u, ruleCase.name);
  assert.doesNotMatch(text, /\p{Cc}/u, ruleCase.name);
  // `postern check` doesn't show a suggestion whose object is still refused.
  if (object === undefined || isStillRefused) return;
  // A case has its object in a member with the name of its phase.
  const { refused, outcome } = await evaluateFrozen(listed, { ...ruleCase, [getCasePhase(ruleCase)]: object });
  assert.ok(!refused, `${ruleCase.name}: "${text}" is refused: ${outcome.status?.message}`);
}

/** Ignores the error that a case has no recorded answer to a read of the rule. Throws other errors. */
function ignoreUnanswered(error: Error): undefined {
  if (!isUnanswered(error)) throw error;
}

function isUnanswered({ message }: Error): boolean {
  return message.startsWith("no answer is recorded");
}

function freezeReview<T>(value: T): T {
  if (typeof value === "object" && value !== null)
    for (const inner of Object.values(Object.freeze(value))) freezeReview(inner);
  return value;
}

/** Returns a changed cluster's capabilities. Reads that may use a cache get `before`; `anew` has no cache. */
function buildChangedCapabilities(now: RecordedCapabilityAnswers, before: RecordedCapabilityAnswers): Capabilities {
  const [fresh, cached] = [createRecordedCapabilities(now), createRecordedCapabilities(before)];
  const chooseCapabilities = (freshness?: ReadOptions) => (freshness?.maxAge === 0 ? fresh : cached);
  return {
    ...fresh,
    get: (kind, name, namespace, freshness) => chooseCapabilities(freshness).get(kind, name, namespace, freshness),
    list: (kind, namespace, freshness) => chooseCapabilities(freshness).list(kind, namespace, freshness),
    anew: () => fresh,
  };
}

/** Returns an object with only its kind and name. */
function toBare({
  apiVersion,
  kind,
  metadata,
}: KubernetesObject): NonNullable<RecordedCapabilityAnswers["objects"]>[number] {
  const { name = "", namespace } = metadata ?? {};
  return { apiVersion: apiVersion ?? "", kind: kind ?? "", metadata: { name, ...(namespace && { namespace }) } };
}

/** Returns an object with the same kind and name, but with other values in all other fields. */
function toOther<T extends KubernetesObject>({ apiVersion, kind, metadata, ...rest }: T): T {
  const { name, namespace, ...others } = toMap(metadata);
  const change = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(change);
    if (typeof value === "object" && value !== null)
      return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, change(inner)]));
    if (typeof value === "boolean") return !value;
    return typeof value === "number" ? value + 1 : `1${value}`;
  };
  const identity = { apiVersion, kind, metadata: { ...toMap(change(others)), name, namespace } };
  return { ...toMap(change(rest)), ...identity } as T;
}

/** Adds a secret value to each map of an object, to find out whether a rule reveals fields that it doesn't use. */
function withSecrets<T extends KubernetesObject>(object: T): T {
  const secretMap = { [secret]: secret };
  const { metadata } = object;
  const filled = Object.entries(object).map(([key, value]) =>
    typeof value === "object" && value !== null && !Array.isArray(value) && key !== "metadata"
      ? [key, { ...value, "unknown-field": secretMap }]
      : [key, value],
  );
  const labels = { ...metadata?.labels, [secret]: secret };
  const annotations = { ...metadata?.annotations, [secret]: secret };
  return { ...Object.fromEntries(filled), "unknown-field": secretMap, metadata: { ...metadata, labels, annotations } };
}

/** Adds an unknown field to the object, to its spec, and to each element of the spec's lists that has a name. */
function addUnknownFields(object: unknown): unknown {
  const addField = (value: unknown, depth: number): unknown => {
    if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
    const inner = Object.entries(value).map(([key, member]) => {
      if (depth === 0 && key === "spec") return [key, addField(member, 1)];
      if (depth === 1 && Array.isArray(member)) return [key, member.map((element) => addField(element, 2))];
      return [key, member];
    });
    return { ...Object.fromEntries(inner), ...(depth === 2 && !("name" in value) ? {} : { unheardOf: { kept: [1] } }) };
  };
  return addField(object, 0);
}
