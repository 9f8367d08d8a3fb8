import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { buildPodRequest } from "../../test/requests.ts";
import { type Capabilities, list } from "../needs.ts";
import { createRecordedCapabilities } from "../recording/recorded-answers.ts";
import type { AdmissionRequest, KubernetesObject, ReviewOutcome } from "../review.ts";
import { rule, type Verdict } from "../rule.ts";
import { createUnconnectedCapabilities } from "./capabilities.ts";
import type { EnforcementMode, RuleDecision, RuleEvaluationContext } from "./evaluation.ts";
import { evaluateRule } from "./evaluation.ts";

const request = (changes?: Partial<AdmissionRequest>) =>
  buildPodRequest({ object: { metadata: { name: "a", labels: {} } }, oldObject: null, ...changes });
const rangesNeeds = { ranges: list("limitranges") };
const buildContext = (mode: EnforcementMode = "enforce"): RuleEvaluationContext => ({
  name: "sample",
  mode,
  settings: { a: 1 },
  variant: "v",
  now: new Date(0),
  capabilities: createUnconnectedCapabilities(""),
});

const addLabel = (object: KubernetesObject) => {
  object.metadata = { ...object.metadata, labels: { seen: "yes" } };
};
const buildMutator = (verdict?: Verdict) =>
  rule({
    summary: "Labels.",
    match: [],
    mutate: (object) => {
      addLabel(object);
      return verdict;
    },
  });
const buildValidatingRule = (verdict: Verdict) => rule({ summary: "Validates.", match: [], validate: () => verdict });

const patch = [{ op: "add" as const, path: "/metadata/labels/seen", value: "yes" }];
const status = { code: 403, reason: "Forbidden", message: "no" };
const invalid = { code: 422, reason: "Invalid", message: "wrong", details: { kind: "Pod" } };
const warningAndAudit = { warnings: ["w"], audit: { k: "v" } };
const noWarningOrAudit = { warnings: [], audit: {} };

const expectAdmitted = (outcome: ReviewOutcome): RuleDecision => ({ outcome, refused: false, operations: 0 });

describe("a decision", () => {
  const expectRefused = (outcome: ReviewOutcome, message = "no"): RuleDecision => {
    return { outcome, refused: true, operations: 0, message };
  };
  const expectChanged = (outcome: ReviewOutcome): RuleDecision => ({ outcome, refused: false, operations: 1 });
  const admitted = { allowed: true, ...noWarningOrAudit };
  const denied = { allowed: false, status, ...noWarningOrAudit };
  const invalidAlso = { refuse: invalid, ...warningAndAudit };
  const wouldDeny = { "would-deny": "no" };
  const wouldChange = "sample would change: /metadata/labels/seen";
  const validations: [name: string, mode: EnforcementMode, verdict: Verdict, decision: RuleDecision][] = [
    ["admits in mode enforce", "enforce", undefined, expectAdmitted(admitted)],
    [
      "keeps warnings and audit annotations of an admission",
      "enforce",
      warningAndAudit,
      { ...expectAdmitted({ allowed: true, ...warningAndAudit }), message: "w" },
    ],
    [
      "joins several warnings in its message",
      "audit",
      { warnings: ["one", "two"] },
      { ...expectAdmitted({ allowed: true, warnings: ["one", "two"], audit: {} }), message: "one; two" },
    ],
    ["refuses in mode enforce", "enforce", "no", expectRefused(denied)],
    [
      "keeps the Status of a refusal",
      "enforce",
      invalidAlso,
      expectRefused({ allowed: false, status: invalid, ...warningAndAudit }, "wrong"),
    ],
    [
      "refuses with reason Forbidden for a sentence beside warnings",
      "enforce",
      { refuse: "no", ...warningAndAudit },
      expectRefused({ allowed: false, status, ...warningAndAudit }),
    ],
    [
      "admits with a warning for a refusal in mode warn",
      "warn",
      "no",
      expectRefused({ ...admitted, warnings: ["sample would deny: no"] }),
    ],
    [
      "keeps warnings and audit annotations of a refusal in mode warn",
      "warn",
      invalidAlso,
      expectRefused({ allowed: true, warnings: ["sample would deny: wrong", "w"], audit: { k: "v" } }, "wrong"),
    ],
    [
      "admits with an audit annotation for a refusal in mode audit",
      "audit",
      "no",
      expectRefused({ ...admitted, audit: wouldDeny }),
    ],
    [
      "keeps warnings and audit annotations of a refusal in mode audit",
      "audit",
      invalidAlso,
      expectRefused({ allowed: true, warnings: ["w"], audit: { k: "v", "would-deny": "wrong" } }, "wrong"),
    ],
    ["admits without an evaluation in mode off", "off", "no", expectAdmitted({ allowed: true })],
  ];
  for (const [name, mode, verdict, decision] of validations)
    it(name, () =>
      assert.deepEqual(evaluateRule(buildValidatingRule(verdict), "validate", request(), buildContext(mode)), decision),
    );

  const mutations: [name: string, mode: EnforcementMode, verdict: Verdict, decision: RuleDecision][] = [
    ["patches in mode enforce", "enforce", undefined, expectChanged({ ...admitted, patch })],
    [
      "keeps warnings and audit annotations beside a patch",
      "enforce",
      warningAndAudit,
      { ...expectChanged({ allowed: true, patch, ...warningAndAudit }), message: "w" },
    ],
    [
      "warns instead of a patch in mode warn",
      "warn",
      undefined,
      { ...expectChanged({ ...admitted, warnings: [wouldChange] }), message: wouldChange },
    ],
    [
      "has an audit annotation instead of a patch in mode audit",
      "audit",
      undefined,
      expectChanged({ ...admitted, audit: { "would-change": "/metadata/labels/seen" } }),
    ],
    ["has no patch in mode off", "off", undefined, expectAdmitted({ allowed: true })],
    ["refuses without a patch if the rule edits and refuses", "enforce", "no", expectRefused(denied)],
    [
      "warns of the refusal in mode warn if the rule edits and refuses",
      "warn",
      "no",
      expectRefused({ ...admitted, warnings: ["sample would deny: no"] }),
    ],
  ];
  for (const [name, mode, verdict, decision] of mutations)
    it(name, () =>
      assert.deepEqual(evaluateRule(buildMutator(verdict), "mutate", request(), buildContext(mode)), decision),
    );

  it("a decision admits if the rule has no function for the phase", () =>
    assert.deepEqual(
      evaluateRule(buildValidatingRule("no"), "mutate", request(), buildContext()),
      expectAdmitted({ allowed: true }),
    ));

  for (const mode of ["enforce", "warn", "audit"] as const)
    it(`refuses if the sentence is empty, in mode ${mode}`, () => {
      const decision = evaluateRule(buildValidatingRule(""), "validate", request(), buildContext(mode));
      assert.ok(!(decision instanceof Promise) && decision.refused);
      assert.equal(decision.outcome.allowed, mode !== "enforce");
    });

  const wrongVerdicts: [verdict: unknown, shown: string][] = [
    [{ refused: "no" }, "{ refused }"],
    [{ code: 403, message: "no" }, "{ code,message }"],
    [{ refuse: ["no"] }, "{ refuse }"],
    [{ refuse: false }, "{ refuse }"],
    [["no"], "Array"],
    [[], "Array"],
    [1, "Number"],
    [false, "Boolean"],
  ];
  for (const mode of ["enforce", "warn", "audit"] as const)
    for (const [verdict, shown] of wrongVerdicts)
      it(`fails if the rule returns ${JSON.stringify(verdict)}, in mode ${mode}`, () => {
        assert.throws(
          () => evaluateRule(buildValidatingRule(verdict as Verdict), "validate", request(), buildContext(mode)),
          {
            code: 500,
            message: `the rule must return nothing, a sentence or { refuse, warnings, audit }, not ${shown}`,
          },
        );
      });

  it("a decision leaves the original object unchanged", () => {
    const original = request();
    const before = JSON.stringify(original);
    evaluateRule(buildMutator(), "mutate", original, buildContext());
    assert.equal(JSON.stringify(original), before);
  });

  it("a decision has no patch if the rule writes a value that is there already", () => {
    const original = request({ object: { metadata: { name: "a", labels: { seen: "yes" } } } });
    assert.deepEqual(
      evaluateRule(buildMutator(), "mutate", original, buildContext()),
      expectAdmitted({ allowed: true, ...noWarningOrAudit }),
    );
  });
});

describe("a deletion", () => {
  const deletion = request({ operation: "DELETE", object: null, oldObject: { metadata: { name: "old", labels: {} } } });
  it("a deletion passes the old object to the rule", () => {
    const naming = rule({
      summary: "Names.",
      match: [],
      mutate: ({ metadata }) => `it is ${metadata?.name}`,
      validate: ({ metadata }) => `it is ${metadata?.name}`,
    });
    for (const phase of ["mutate", "validate"] as const) {
      const decision = evaluateRule(naming, phase, deletion, buildContext());
      assert.ok(!(decision instanceof Promise));
      assert.equal(decision.outcome.status?.message, "it is old");
    }
  });
  for (const mode of ["enforce", "warn", "audit"] as const)
    it(`fails if the rule edits the object, in mode ${mode}`, () => {
      assert.throws(() => evaluateRule(buildMutator(), "mutate", deletion, buildContext(mode)), {
        code: 500,
        message: "the rule edited /metadata/labels/seen on DELETE",
      });
    });
  it("a deletion is refused if the rule edits the object and refuses", () => {
    const decision = evaluateRule(buildMutator("no"), "mutate", deletion, buildContext());
    assert.ok(!(decision instanceof Promise) && !decision.outcome.allowed);
  });
  it("a deletion is admitted without an evaluation in mode off", () => {
    const decision = evaluateRule(buildMutator(), "mutate", deletion, buildContext("off"));
    assert.deepEqual(decision, expectAdmitted({ allowed: true }));
  });
});

describe("a rule", () => {
  it("a rule gets its context, and itself as `this`", () => {
    const seen: unknown[] = [];
    const recordingRule = rule({
      summary: "Tells.",
      match: [],
      validate(...parameters) {
        seen.push(this, ...parameters);
      },
    });
    const original = request({ operation: "UPDATE", oldObject: { metadata: { name: "old" } } });
    evaluateRule(recordingRule, "validate", original, buildContext());
    assert.deepEqual(seen, [
      recordingRule,
      original.object,
      { request: original, oldObject: original.oldObject, settings: { a: 1 }, variant: "v", now: new Date(0) },
    ]);
  });

  const ranges = createRecordedCapabilities({
    objects: [{ apiVersion: "v1", kind: "LimitRange", metadata: { name: "small", namespace: "a" } }],
  });
  const rangesRule = rule<KubernetesObject, object, typeof rangesNeeds>({
    summary: "Asks.",
    match: [],
    needs: rangesNeeds,
    async mutate(object, context) {
      addLabel(object);
      const [first] = await context.ranges("a");
      return { warnings: [`there is ${first?.metadata?.name}`] };
    },
    async validate(_, context) {
      const found = await context.ranges("b");
      return found.length === 0 ? "there is none" : undefined;
    },
  });
  it("the decision of a rule with needs is a promise", async () => {
    const capabilities = { ...buildContext(), capabilities: ranges };
    const [changed, refused] = [
      evaluateRule(rangesRule, "mutate", request(), capabilities),
      evaluateRule(rangesRule, "validate", request(), capabilities),
    ];
    assert.ok(changed instanceof Promise && refused instanceof Promise);
    assert.deepEqual(await changed, {
      outcome: { allowed: true, patch, warnings: ["there is small"], audit: {} },
      refused: false,
      operations: 1,
      message: "there is small",
    });
    assert.deepEqual((await refused).outcome.status?.message, "there is none");
  });
  it("a rule is evaluated again with new answers if it refused by cached answers, but not if it admitted", async () => {
    const noRanges = createRecordedCapabilities({});
    const evaluateCached = async (cached: Capabilities, current: Capabilities) => {
      let repetitions = 0;
      const anew = () => {
        repetitions++;
        return current;
      };
      const context = { ...buildContext(), capabilities: { ...cached, anew } };
      const { outcome } = await evaluateRule(refusingWithoutRange, "validate", request(), context);
      return { allowed: outcome.allowed, repetitions };
    };
    const refusingWithoutRange = rule<KubernetesObject, object, typeof rangesNeeds>({
      summary: "Wants a range.",
      match: [],
      needs: rangesNeeds,
      validate: async (_, { ranges }) => ((await ranges("a")).length === 0 ? "there is none" : undefined),
    });
    assert.deepEqual(await evaluateCached(noRanges, ranges), { allowed: true, repetitions: 1 });
    assert.deepEqual(await evaluateCached(noRanges, noRanges), { allowed: false, repetitions: 1 });
    assert.deepEqual(await evaluateCached(ranges, noRanges), { allowed: true, repetitions: 0 });
  });
  it("a rule fails, and does not refuse, if it asks a cluster without a connection", async () => {
    await assert.rejects(async () => evaluateRule(rangesRule, "mutate", request(), buildContext()), { code: 503 });
  });
  it("a rule fails, and does not refuse, if its function throws", () => {
    const broken = rule({
      summary: "Breaks.",
      match: [],
      validate: () => {
        throw new RangeError("broken");
      },
    });
    for (const mode of ["enforce", "warn", "audit"] as const)
      assert.throws(() => evaluateRule(broken, "validate", request(), buildContext(mode)), RangeError);
  });
});
