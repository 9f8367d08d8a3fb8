import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { KubernetesObject } from "#lib/review.ts";
import {
  benchPolicyCases,
  buildPolicyCaseRequest,
  createPolicyCaseCapabilities,
  normalizeObjectForComparison,
} from "../../../test/bench/inputs/example-policies.ts";
import { countTermsPerAffinityList } from "../checks/pod-fields.ts";
import { applyPolicies } from "../override.ts";
import { applyPolicyPatch } from "../overriders/plaintext.ts";
import { resolveReference } from "../references/references.ts";
import { findScriptFault } from "../scripts.ts";
import type { OverrideTemplate, PolicyCapabilities, PolicyCondition, PolicyRequest, ValueReference } from "../types.ts";
import { evaluateValidatePolicies } from "../validate.ts";
import { type PathStep, parseReferencePath } from "../values/paths.ts";
import { renderConditionAsCue } from "./conditions.ts";
import { renderTemplateAsCue } from "./templates.ts";

const runCount = 200;
const apiVersion = "policy.kcloudlabs.io/v1alpha1";

/** Returns the result as a value, or as an error with its message. */
const getOutcome = async (result: Promise<unknown>) =>
  result.then(
    (value) => ({ value: normalizeObjectForComparison(value) }),
    (error: Error) => ({ error: true, message: error.message }),
  );

/** Asserts that both results have the same value, or that both are errors. The messages of errors may differ. */
const assertSame = (left: Awaited<ReturnType<typeof getOutcome>>, right: typeof left, what: string) => {
  if ("message" in left && "message" in right) return;
  assert.deepEqual(right, left, what);
};

/** Wraps a value in maps and lists, so that the value is at a path. */
const plantValue = ([step, ...rest]: PathStep[], value: unknown): unknown => {
  if (step === undefined) return value;
  return typeof step === "number"
    ? [...Array(step).fill(null), plantValue(rest, value)]
    : { [step]: plantValue(rest, value) };
};

/** The ends of the names in `extraParams`, by the field that has the reference. */
const nameSuffixes = { dataRef: "_d", valueRef: "" };

/** Resolves a reference for a rendering: returns `extraParams` with the value at the reference's path in an object. */
const fetchParameters = async (
  reference: ValueReference | undefined,
  field: keyof typeof nameSuffixes,
  request: PolicyRequest,
  capabilities: PolicyCapabilities,
) => {
  // A rendering gets the request's object and old object without extraParams.
  if (reference === undefined || reference.from === "current" || reference.from === "old") return {};
  const found = await resolveReference(reference, request, capabilities);
  const steps = parseReferencePath(reference.path);
  const suffix = nameSuffixes[field];
  if (reference.from !== "http") return { [`otherObject${suffix}`]: found ? plantValue(steps, found.value) : {} };
  // A path that doesn't begin with a part of the HTTP response is a path in the body.
  const namesResponsePart = ["body", "header", "trailer"].includes(String(steps[0]));
  const fullPath = namesResponsePart ? steps : ["body", ...steps];
  return { [`http${suffix}`]: found ? plantValue(fullPath, found.value) : {} };
};

/** Evaluates a rendering with the data that the rule would give it. */
const evaluateRendering = async (rendering: string, data: object, capabilities: PolicyCapabilities) =>
  JSON.parse(await capabilities.evaluateCue(`${rendering}\ndata: ${JSON.stringify(data)}\n`));

const applyTemplate = async (template: OverrideTemplate, request: PolicyRequest, capabilities: PolicyCapabilities) => {
  const policies = [
    {
      apiVersion,
      kind: "ClusterOverridePolicy" as const,
      metadata: { name: "p" },
      spec: { overrideRules: [{ overriders: { template } }] },
    },
  ];
  return (await applyPolicies({ ...request, policies, capabilities })).object;
};

const applyRendering = async (template: OverrideTemplate, request: PolicyRequest, capabilities: PolicyCapabilities) => {
  const extraParams = await fetchParameters(template.valueRef, "valueRef", request, capabilities);
  const data = { object: request.object, oldObject: request.oldObject ?? {}, extraParams };
  const { patches } = await evaluateRendering(renderTemplateAsCue(template), data, capabilities);
  const object = structuredClone(request.object);
  applyPolicyPatch(object, patches);
  return object;
};

const evaluateCondition = async (
  condition: PolicyCondition,
  request: PolicyRequest,
  capabilities: PolicyCapabilities,
) => {
  const policies = [
    {
      apiVersion,
      kind: "ClusterValidatePolicy" as const,
      metadata: { name: "p" },
      spec: { validateRules: [{ template: { type: "condition" as const, condition } }] },
    },
  ];
  const { denied } = await evaluateValidatePolicies(policies, request, capabilities);
  return { valid: denied === undefined, reason: denied?.reason ?? "" };
};

const evaluateRenderedCondition = async (
  condition: PolicyCondition,
  request: PolicyRequest,
  capabilities: PolicyCapabilities,
) => {
  const { dataRef, valueRef } = condition;
  const compared = ["Exist", "NotExist"].includes(condition.cond) ? undefined : valueRef;
  const extraParams = {
    ...(await fetchParameters(dataRef, "dataRef", request, capabilities)),
    ...(await fetchParameters(compared, "valueRef", request, capabilities)),
  };
  const data = { object: request.object, oldObject: request.oldObject ?? null, extraParams };
  const { valid, reason = "" } = (await evaluateRendering(renderConditionAsCue(condition), data, capabilities))
    .validate;
  return { valid, reason };
};

describe("CUE rendered from the templates of example policies", () => {
  for (const policyCase of benchPolicyCases) {
    if (policyCase.expect.policy === "rejected") continue;
    const request = buildPolicyCaseRequest(policyCase);
    const capabilities = createPolicyCaseCapabilities(policyCase);
    for (const policy of policyCase.policies) {
      if (policy.kind === "ClusterValidatePolicy") {
        for (const [index, { template }] of policy.spec.validateRules.entries())
          if (template)
            it(`decides like validateRules[${index}] of ${policyCase.id}`, async () => {
              const { condition } = template;
              const expected = await getOutcome(evaluateCondition(condition, request, capabilities));
              assert.equal(await findScriptFault(renderConditionAsCue(condition), capabilities.evaluateCue), undefined);
              assertSame(
                expected,
                await getOutcome(evaluateRenderedCondition(condition, request, capabilities)),
                renderConditionAsCue(condition),
              );
            });
      } else if (policyCase.operation !== "DELETE")
        for (const [index, { overriders }] of policy.spec.overrideRules.entries()) {
          const { template } = overriders;
          if (template)
            it(`changes an object like overrideRules[${index}] of ${policyCase.id}`, async () => {
              const expected = await getOutcome(applyTemplate(template, request, capabilities));
              assert.equal(await findScriptFault(renderTemplateAsCue(template), capabilities.evaluateCue), undefined);
              assertSame(
                expected,
                await getOutcome(applyRendering(template, request, capabilities)),
                renderTemplateAsCue(template),
              );
            });
        }
    }
  }
});

const pickFrom = <T>(values: readonly T[]) => fc.constantFrom(...values);
const makeOptional = <T>(of: fc.Arbitrary<T>) => fc.option(of, { nil: undefined });
const listOf = <T>(of: fc.Arbitrary<T>) => fc.array(of, { minLength: 1, maxLength: 3 });

/** Returns an object without its undefined members. */
const toJson = <T>(value: T): T => JSON.parse(JSON.stringify(value));

const required = "requiredDuringSchedulingIgnoredDuringExecution";
const preferred = "preferredDuringSchedulingIgnoredDuringExecution";
const keys = ["a", "b.c/d", "x~1y", "__proto__", "_h", "if", '"\\(object)\n'] as const;
const texts = ["v", "", "5", "1Gi", 'a"\\(b)\n\u2028', "ä\uD83D\uDE00", "true"] as const;
const amounts = ["0", "1", "500m", "1.5", "1Gi", "333Mi", "2k", "1e3", "12345678901", ".5", "0.001", 3] as const;
const map = fc.dictionary(pickFrom(keys), pickFrom(texts), { maxKeys: 3 });
const quantities = fc.dictionary(
  pickFrom(["cpu", "memory", "ephemeral-storage", "x.io/gpu", "y.io~1gpu", 'x~"\\(kind)']),
  pickFrom(amounts),
  {
    maxKeys: 3,
  },
);
const toleration = fc.record(
  {
    key: pickFrom(["a", "b"]),
    operator: pickFrom(["Exists", "Equal", ""]),
    value: pickFrom(["1", "2"]),
    effect: pickFrom(["NoExecute", "NoSchedule"]),
    tolerationSeconds: pickFrom([0, 300]),
  },
  { requiredKeys: [] },
);
// The template only adds and removes whole terms, so any map serves as a term.
const term = fc.record({
  weight: pickFrom([1, 2]),
  term: makeOptional(fc.record({ keys: fc.array(pickFrom(["a", "b"]), { maxLength: 2 }) })),
});
const affinity = fc.record(
  {
    nodeAffinity: fc.record(
      { [required]: fc.record({ nodeSelectorTerms: fc.array(term, { maxLength: 3 }) }), [preferred]: listOf(term) },
      { requiredKeys: [] },
    ),
    podAffinity: fc.record({ [required]: listOf(term), [preferred]: listOf(term) }, { requiredKeys: [] }),
    podAntiAffinity: fc.record({ [required]: listOf(term), [preferred]: listOf(term) }, { requiredKeys: [] }),
  },
  { requiredKeys: [] },
);

const podSpec = fc.record(
  {
    containers: fc.array(
      fc.record(
        {
          name: pickFrom(["c"]),
          resources: fc.record({ requests: quantities, limits: quantities }, { requiredKeys: [] }),
        },
        { requiredKeys: ["name"] },
      ),
      { maxLength: 2 },
    ),
    tolerations: fc.array(toleration, { maxLength: 4 }),
    affinity,
    priority: pickFrom([0, 10, 0.5, -3]),
    hugeOrTinyNumber: pickFrom([1e21, 1e-7, 1.5e300, Number.MAX_SAFE_INTEGER]),
    hostNetwork: fc.boolean(),
    nothing: fc.constant(null),
    words: fc.array(fc.oneof(pickFrom(texts), pickFrom(amounts)), { maxLength: 3 }),
  },
  { requiredKeys: ["containers"] },
);
/**
 * The functions that put a pod spec into the spec of an object, by the object's kind. A template finds the pod spec by
 * the kind alone, in any API group: also in the Pod of apps/v1, but not in the ConfigMap, although it has the same
 * fields as a Deployment.
 */
const specBuilders = {
  "v1/Pod": (spec: unknown) => spec,
  "apps/v1/Deployment": (spec: unknown) => ({ template: { spec } }),
  "batch/v1/CronJob": (spec: unknown) => ({ jobTemplate: { spec: { template: { spec } } } }),
  "apps/v1/Pod": (spec: unknown) => spec,
  "v1/ConfigMap": (spec: unknown) => ({ template: { spec } }),
};
const object: fc.Arbitrary<KubernetesObject> = fc
  .tuple(
    fc.oneof(
      pickFrom(Object.entries(specBuilders)),
      pickFrom(Object.entries(specBuilders).slice(0, 2)), // The first two kinds are generated more often.
    ),
    fc.record({ annotations: map, labels: map }, { requiredKeys: [] }),
    fc.option(podSpec, { nil: undefined, freq: 10 }),
  )
  .map(([[name, wrapSpec], metadata, spec]) => {
    const [, version = "", kind = ""] = /^(.*)\/(.*)$/.exec(name) ?? [];
    return toJson({ apiVersion: version, kind, metadata: { name: "o", ...metadata }, spec: wrapSpec(spec) });
  });

const paths = [
  "/metadata/name",
  "/metadata/labels/a",
  'metadata.annotations["b.c/d"]',
  "/metadata/labels",
  "/spec/priority",
  "/spec/hostNetwork",
  "spec.nothing",
  "/spec/words",
  "/spec/words/0",
  "spec.containers[0].resources.limits.cpu",
  "/spec/containers/0/resources/requests/memory",
  "/spec/template/spec/priority",
  "/spec/tolerations",
  "/nowhere",
];
const from = pickFrom(["current", "old"] as const);
const reference: fc.Arbitrary<ValueReference> = fc.record({ from, path: pickFrom(paths) });
const constant = fc.oneof(
  fc.record({ string: pickFrom(texts) }),
  fc.record({ integer: pickFrom([0, 5, -3, 10]) }),
  fc.record({ float: pickFrom(["0.5", "5.0", "1e3", "-0.25"]) }),
  fc.record({ boolean: fc.boolean() }),
);
const operation = pickFrom(["add", "replace", "remove"] as const);
const factor = makeOptional(pickFrom(["0.5", "0.333", ".1", "0.99999"]));
const template: fc.Arbitrary<OverrideTemplate> = fc
  .oneof(
    fc.record({ type: pickFrom(["annotations", "labels"]), path: pickFrom(keys), value: constant }),
    fc.record({
      type: pickFrom(["annotations", "labels"]),
      path: pickFrom(keys),
      valueRef: fc.record({ from, path: pickFrom([...paths, "/spec/hugeOrTinyNumber"]) }), // Written as text only here.
    }),
    fc.record({
      type: fc.constant("annotations"),
      path: fc.constant("a"),
      value: fc.record({ stringMap: map.filter((value) => Object.keys(value).length > 0) }),
    }),
    fc.record({ type: fc.constant("resources"), resources: fc.record({ requests: quantities, limits: quantities }) }),
    fc.record({
      type: fc.constant("resourcesOversell"),
      resourcesOversell: fc
        .record({ cpuFactor: factor, memoryFactor: factor, diskFactor: factor })
        .filter((factors) => Object.keys(toJson(factors)).length > 0),
    }),
    fc.record({ type: fc.constant("tolerations"), tolerations: listOf(toleration) }),
    fc.record({
      type: fc.constant("affinity"),
      // An affinity has at least one list of terms, which may be empty. The lists' names end in DuringExecution.
      affinity: affinity.filter((candidate) => JSON.stringify(candidate).includes("DuringExecution")),
    }),
  )
  .chain((sample) => operation.map((chosen) => toJson({ ...sample, operation: chosen }) as OverrideTemplate))
  // Only `remove` may have an affinity whose lists are all empty; the checks of policies refuse other such templates.
  .filter(
    ({ operation, affinity }) =>
      !affinity || operation === "remove" || countTermsPerAffinityList(affinity).some(Boolean),
  );

const ordering = pickFrom(["Gt", "Gte", "Lt", "Lte"] as const);
const list = fc.oneof(
  fc.record({ stringSlice: listOf(pickFrom(texts)) }),
  fc.record({ integerSlice: listOf(pickFrom([0, 5, 10])) }),
  fc.record({ floatSlice: listOf(pickFrom(["0.5", "10.0"])) }),
);
const processing = fc.record({
  operation: pickFrom(["+", "-", "*", "/"]),
  operationWith: pickFrom([2, 3, -7, "50%", "0.3", "-1.5"]),
});
const condition: fc.Arbitrary<PolicyCondition> = fc
  .tuple(
    fc.oneof(
      fc.record({ cond: pickFrom(["Exist", "NotExist"]) }),
      fc.record({
        cond: pickFrom(["Equal", "NotEqual"]),
        value: fc.oneof(constant, list, fc.record({ stringMap: fc.constant({ a: "5" }) })),
      }),
      fc.record({ cond: pickFrom(["Equal", "NotEqual", "In", "NotIn"]), valueRef: reference }),
      fc.record({ cond: pickFrom(["In", "NotIn"]), value: list }),
      fc.record({ cond: ordering, value: constant }),
      fc.record({ cond: ordering, valueRef: reference }),
      fc.record({
        cond: fc.oneof(ordering, pickFrom(["Equal", "NotEqual"])),
        valueRef: reference,
        valueProcess: processing,
      }),
      fc.record({
        cond: fc.oneof(ordering, pickFrom(["Equal", "NotEqual"])),
        value: constant,
        valueProcess: processing,
      }),
    ),
    fc.record({ dataRef: reference, affectMode: pickFrom(["reject", "allow", ""]), message: pickFrom(texts) }),
  )
  .map(([left, right]) => toJson({ ...left, ...right }) as PolicyCondition);

/** Fields that are generated with values of wrong types. */
const places = [
  "/metadata/annotations",
  "/metadata/labels",
  "/spec",
  "/spec/containers",
  "/spec/containers/0",
  "/spec/containers/0/resources",
  "/spec/containers/0/resources/requests",
  "/spec/containers/0/resources/limits",
  "/spec/containers/0/resources/limits/cpu",
  "/spec/containers/0/resources/requests/cpu",
  "/spec/tolerations",
  "/spec/tolerations/0",
  "/spec/affinity",
  "/spec/affinity/nodeAffinity",
  "/spec/affinity/podAffinity",
  `/spec/affinity/nodeAffinity/${required}`,
  `/spec/affinity/podAffinity/${required}`,
];
const podWithWrongType = fc
  .tuple(
    object.filter(({ apiVersion, kind }) => apiVersion === "v1" && kind === "Pod"),
    pickFrom(places),
    pickFrom([null, "x", [], ["x"], {}, 5, false]),
  )
  .map(([object, path, value]) => {
    const changed = structuredClone(object);
    try {
      applyPolicyPatch(changed, [{ op: "replace", path, value }]);
      return changed;
    } catch {
      return object;
    }
  });

/** Matches CUE's message that it can't decide whether two lists or maps are equal. */
const undecidedEqualityMessage = /conflicting values true and false/;

const elsewhere: ValueReference = { from: "current", path: "other" };

const request: fc.Arbitrary<PolicyRequest> = fc.tuple(object, makeOptional(object)).map(([object, oldObject]) => {
  return oldObject ? { operation: "UPDATE", object, oldObject } : { operation: "CREATE", object };
});

describe("CUE rendered from any template", () => {
  const capabilities = createPolicyCaseCapabilities();

  it("CUE rendered from any template changes any object as the template does", async () => {
    const property = fc.asyncProperty(template, request, async (template, request) => {
      const expected = await getOutcome(applyTemplate(template, request, capabilities));
      assertSame(
        expected,
        await getOutcome(applyRendering(template, request, capabilities)),
        renderTemplateAsCue(template),
      );
    });
    await fc.assert(property, { numRuns: runCount });
  });

  it("rendered CUE fails for an object with wrong types, or changes the object as the template does", async () => {
    const property = fc.asyncProperty(template, podWithWrongType, async (template, object) => {
      const request: PolicyRequest = { operation: "CREATE", object };
      const result = await getOutcome(applyRendering(template, request, capabilities));
      if ("value" in result)
        assertSame(
          await getOutcome(applyTemplate(template, request, capabilities)),
          result,
          renderTemplateAsCue(template),
        );
    });
    await fc.assert(property, { numRuns: runCount });
  });

  it("CUE rendered from any condition decides as the condition does, unless it can't decide an equality", async () => {
    const property = fc.asyncProperty(condition, request, async (condition, request) => {
      const result = await getOutcome(evaluateRenderedCondition(condition, request, capabilities));
      if ("message" in result && undecidedEqualityMessage.test(result.message)) return;
      assertSame(
        await getOutcome(evaluateCondition(condition, request, capabilities)),
        result,
        renderConditionAsCue(condition),
      );
    });
    await fc.assert(property, { numRuns: runCount });
  });

  it("CUE rendered from any template or condition compiles as a script", async () => {
    const scripts = fc.oneof(template.map(renderTemplateAsCue), condition.map(renderConditionAsCue));
    const property = fc.asyncProperty(scripts, async (script) =>
      assert.equal(await findScriptFault(script, capabilities.evaluateCue), undefined),
    );
    await fc.assert(property, { numRuns: 200 });
  });

  const inexactInCue: Record<string, [data: unknown, condition: Partial<PolicyCondition>]> = {
    "a text of more digits than CUE reads": ["12345678901234567890", { cond: "Gt", value: { integer: 5 } }],
    "a text that is finer than a billionth": ["0.00000000001", { cond: "Gt", value: { integer: 5 } }],
    "a comparison with 1 / 0.7000000000000001, for which CUE multiplies, and would round the product": [
      123456789012345,
      { cond: "Gt", value: { integer: 1 }, valueProcess: { operation: "/", operationWith: "0.7000000000000001" } },
    ],
    "lists of which one has a number, and the other the same number as a text": [
      [5],
      { cond: "Equal", valueRef: elsewhere },
    ],
  };
  for (const [what, [data, fields]] of Object.entries(inexactInCue))
    it(`fails for ${what}, while the condition itself can be evaluated`, async () => {
      const object = { apiVersion: "v1", kind: "ConfigMap", data, other: ["5"] };
      const condition: PolicyCondition = { cond: "Equal", dataRef: { from: "current", path: "data" }, ...fields };
      await evaluateCondition(condition, { operation: "CREATE", object }, capabilities);
      await assert.rejects(evaluateRenderedCondition(condition, { operation: "CREATE", object }, capabilities));
    });
});
