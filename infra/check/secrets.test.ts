import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import fc from "fast-check";
import { stringify } from "yaml";
import { createTestFolder } from "../../test/folders.ts";
import { startSharedKubernetes } from "../../test/kubernetes.ts";
import { readCatalogue } from "../catalogue/registry.ts";
import { chooseCluster } from "../config/config.ts";
import { formatManifestFault } from "../manifests/manifests.ts";
import { parseConfig } from "../project/project.ts";
import { prepareManifestCheck } from "./check.ts";
import { noFindings, type ObjectEvaluation } from "./evaluation/object-evaluation.ts";
import { createSummary } from "./reports/format.ts";
import { checkReportFormats, createCheckReport } from "./reports/forms.ts";
import { hideSecretsInEvaluation } from "./reports/hidden-values.ts";
import { toUnread } from "./subjects.ts";

const folder = await createTestFolder();
const catalogue = await readCatalogue();
const lastAppliedAnnotation = "kubectl.kubernetes.io/last-applied-configuration";

// Policies whose messages, warnings, annotations and changes show as much of a Secret as they can.
const apiVersion = "admissionregistration.k8s.io/v1";
const anything = { resourceRules: [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*"], operations: ["*"] }] };
const buildPolicy = (name: string, spec: object, kind = "ValidatingAdmissionPolicy", actions: object = {}) => [
  { apiVersion, kind, metadata: { name }, spec: { matchConstraints: anything, ...spec } },
  { apiVersion, kind: `${kind}Binding`, metadata: { name }, spec: { policyName: name, ...actions } },
];
const shownExpressions = [
  `object.data.map(k, k + object.data[k]).join(" ")`,
  `object.data.map(k, object.data[k].lowerAscii()).join(" ")`,
  `object.data.map(k, object.data[k].substring(0, 16)).join(" ")`,
  `object.metadata.annotations.map(k, object.metadata.annotations[k]).join(" ")`,
  `oldObject.data.map(k, oldObject.data[k]).join(" ")`,
  `params.data.map(k, params.data[k]).join(" ")`,
];
const validations = [
  ...shownExpressions.map((expression) => ({ expression: "false", messageExpression: `"shows " + ${expression}` })),
  { expression: "object.data.all(k, int(object.data[k]) > 0)" },
  { expression: `object.data.all(k, duration(object.data[k]) > duration("1s"))` },
];
const auditAnnotations = shownExpressions.map((valueExpression, index) => ({ key: `shown-${index}`, valueExpression }));
const paramKind = { apiVersion: "v1", kind: "Secret" };
const paramRef = { name: "parameters", namespace: "shop", parameterNotFoundAction: "Allow" };
/** Builds the part of a policy's spec that changes objects by an expression. */
const change = (expression: string) => ({
  reinvocationPolicy: "Never",
  failurePolicy: "Ignore",
  mutations: [{ patchType: "JSONPatch", jsonPatch: { expression } }],
});
const changes = [
  '[JSONPatch{op: "add", path: "/metadata/labels", value: {"changed": "yes"}}]',
  '[JSONPatch{op: "add", path: "/data/added", value: object.data[object.data.map(k, k)[0]]}]',
  'has(object.metadata.annotations) ? [JSONPatch{op: "add", path: "/metadata/annotations/a", value: "b"}] : []',
];
const buildChanging = (name: string) =>
  changes.flatMap((expression, index) =>
    buildPolicy(`${name}-${index}`, change(expression), "MutatingAdmissionPolicy"),
  );
const copyExpression = '[JSONPatch{op: "add", path: "/data/copied", value: params.data[params.data.map(k, k)[0]]}]';
/** Policies of the cluster, which no rule evaluates. */
const clusterPolicies = [
  ...buildChanging("standing"),
  ...buildPolicy("copying", { paramKind, ...change(copyExpression) }, "MutatingAdmissionPolicy", { paramRef }),
  ...buildPolicy(
    "writing",
    { paramKind, validations: [{ expression: "false" }], auditAnnotations, failurePolicy: "Ignore" },
    undefined,
    { validationActions: ["Audit"], paramRef },
  ),
];
const policies = join(folder, "policies.yaml");
const documents = clusterPolicies.map((object) => stringify(object, { aliasDuplicateObjects: false }));
await writeFile(policies, documents.join("---\n"));
const script = {
  apiVersion: "policy.kcloudlabs.io/v1alpha1",
  kind: "ClusterValidatePolicy",
  metadata: { name: "script" },
  spec: {
    validateRules: [
      {
        targetOperations: ["CREATE", "UPDATE"],
        cue: `import "encoding/json"
import "encoding/base64"
object: _ @tag(object)
validate: {valid: false, reason: "shows \\([for k, v in object.data {base64.Decode(null, v)}][0]) \\(json.Marshal(object))"}`,
      },
    ],
  },
};
const rules = (validationActions: string[]) => ({
  "validating-admission-policy": {
    settings: {
      policies: buildPolicy(
        "showing",
        { paramKind, validations, auditAnnotations, failurePolicy: "Ignore" },
        undefined,
        { validationActions, paramRef },
      ),
    },
  },
  "mutating-admission-policy": { settings: { policies: buildChanging("changing") } },
  "policy-validate": { mode: "warn", settings: { policies: [script] } },
});
const parseCluster = (actions: string[]) =>
  chooseCluster(
    parseConfig(stringify({ rules: rules(actions) }, { aliasDuplicateObjects: false }), catalogue),
    undefined,
  );
const clusters = [parseCluster(["Deny", "Audit"]), parseCluster(["Warn", "Audit"])];

const mark = fc.string({ unit: fc.constantFrom(..."QXZJ0123456789"), minLength: 10, maxLength: 14 });
const around = fc.constantFrom("", '"', "'", "\\", "\n", "{", ": ", " #", "é", "*", "!", "|", "%", "\t");
/** Generates a secret value with a mark in it. The printed reports are searched for the mark. */
const markedText = fc.tuple(around, mark, around).map(([before, text, after]) => before + text + after);
const number = fc.integer({ min: 100_000_000, max: 999_999_999 });
/** A value in the data of a Secret, in base64 or of a wrong type. */
const value = fc.oneof(
  { weight: 4, arbitrary: markedText.map((text) => Buffer.from(text).toString("base64")) },
  { weight: 2, arbitrary: markedText },
  number,
  number.map((integer) => integer / 8),
  number.map((integer) => BigInt(integer) * 10_000_000_000n),
  fc.array(markedText, { minLength: 1, maxLength: 2 }),
  fc.dictionary(mark, markedText, { minKeys: 1, maxKeys: 2 }),
  fc.constantFrom(true, false, null, ""),
);
const key = fc.constantFrom("password", "tls.key", "a", "data", "must be", "config.json");
const values = fc.oneof(
  { weight: 8, arbitrary: fc.dictionary(key, value, { minKeys: 1, maxKeys: 3 }) },
  fc.array(markedText, { minLength: 1, maxLength: 2 }),
  markedText,
  number,
);
/** Generates a valid or invalid value of kubectl's last-applied annotation, which has a copy of the Secret. */
const lastAppliedCopy = fc.oneof(
  fc
    .dictionary(key, markedText, { minKeys: 1 })
    .map((data) => JSON.stringify({ kind: "Secret", data, metadata: { name: "one" } })),
  fc
    .dictionary(key, markedText, { minKeys: 1 })
    .map((data) => JSON.stringify({ stringData: data, more: { list: [data] } }, null, 2)),
  markedText,
  fc.dictionary(mark, markedText, { minKeys: 1 }),
  fc.array(markedText, { minLength: 1 }),
  number,
);
const metadata = fc.record(
  {
    name: fc.constantFrom("one", "parameters", "password"),
    namespace: fc.constantFrom("shop", "default"),
    annotations: fc.oneof(
      lastAppliedCopy.map((text) => ({ [lastAppliedAnnotation]: text, other: "kept" })),
      fc.constant({ other: "kept" }),
    ),
    labels: fc.constantFrom({ a: "b" }, { a: 1 }, "text"),
    finalizers: fc.constantFrom([], "text", [1]),
  },
  { requiredKeys: ["name", "namespace"] },
);
const secret = fc.record(
  {
    apiVersion: fc.oneof(
      { weight: 5, arbitrary: fc.constant("v1") },
      fc.constantFrom("v2", "core/v1", "V1", "example.com/v1", ""),
    ),
    kind: fc.oneof({ weight: 5, arbitrary: fc.constant("Secret") }, fc.constantFrom("secret", "SECRET", "Secrets")),
    metadata,
    data: values,
    stringData: values,
    type: fc.constantFrom("Opaque", "kubernetes.io/tls", 5),
    immutable: fc.constantFrom(true, "yes"),
    more: fc.constantFrom("x", {}),
  },
  { requiredKeys: ["apiVersion", "kind", "metadata"] },
);
/** No Secret. Its only secret is the copy of a Secret in its annotation last-applied-configuration. */
const other = fc
  .tuple(metadata, lastAppliedCopy, fc.constantFrom("ConfigMap", "Pod", "Deployment", "Unknown"))
  .map(([found, text, kind]) => ({
    apiVersion: kind === "Deployment" ? "apps/v1" : "v1",
    kind,
    metadata: { ...found, annotations: { [lastAppliedAnnotation]: text } },
    ...(kind === "ConfigMap" && { data: { key: "dmFsdWU=" } }),
  }));
/** A Secret: alone, in a list, or in a review. */
const secretOrWrapper = fc
  .tuple(fc.constantFrom("", "List", "SecretList", "Lists", "review", "no kind"), secret, other)
  .map(([wrapper, one, two]) => {
    if (wrapper === "List") return { apiVersion: "v1", kind: "List", items: [one, two] };
    if (wrapper === "SecretList")
      return { apiVersion: "v1", kind: "SecretList", items: [one, { ...one, kind: undefined }] };
    if (wrapper === "Lists")
      return { apiVersion: "v1", kind: "List", items: [{ apiVersion: "v1", kind: "List", items: [one] }] };
    if (wrapper !== "review" && wrapper !== "no kind") return one;
    const object = wrapper === "review" ? one : { ...one, kind: undefined };
    const request = {
      uid: "u",
      name: "one",
      namespace: "shop",
      operation: "UPDATE",
      userInfo: {},
      object,
      oldObject: one,
      kind: { group: "", version: "v1", kind: "Secret" },
      resource: { group: "", version: "v1", resource: "secrets" },
    };
    return { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", request };
  });

type Break = (text: string, at: number) => string;
/** Changes of a YAML text at a place. The changed text is unreadable, or means something else. */
const breaks: Break[] = [
  (text, at) => text.slice(0, at),
  (text, at) => `${text.slice(0, at)}\t${text.slice(at)}`,
  (text, at) => `${text.slice(0, at)}"${text.slice(at)}`,
  (text, at) => `${text.slice(0, at)}'${text.slice(at)}`,
  (text, at) => `${text.slice(0, at)}\n${text.slice(at)}`,
  (text, at) => `${text.slice(0, at)}{{ .Values.a }}${text.slice(at)}`,
  ...[": *", ": !", ": !!", ": |", ": >", ": &", ": @", ": %", ": [", ": {", ": !<", ': "\\', ": - ", ": ? "].map(
    (token): Break =>
      (text, at) => {
        const colon = text.indexOf(": ", at);
        return colon < 0 ? text : text.slice(0, colon) + token + text.slice(colon + 2);
      },
  ),
  // The first line of a map twice, the whole text twice, and a value with an anchor and an alias.
  (text) => text.replace(/^( *)(\w+: .*)$/m, "$1$2\n$1$2"),
  (text) => `${text}\n${text}`,
  (text) => text.replace(/(\w+): (?=[^\n{[])/, "$1: &x ").concat("\nsame: *x\n"),
];
/** One of `breaks`, or none, and the place of the change in the text: from 0 (beginning) to 1 (end). */
const damage = fc.tuple(fc.option(fc.constantFrom(...breaks), { freq: 3 }), fc.double({ min: 0, max: 1, noNaN: true }));

/** Runs a check as the command does, and returns all that it prints in all forms. */
const printCheck = async (
  files: Record<"paths" | "reviews" | "state" | "old", string>,
  { policiesDeny }: { policiesDeny: boolean },
): Promise<string> => {
  const write = async (name: keyof typeof files) => {
    const file = join(folder, `${name}.yaml`);
    await writeFile(file, files[name]);
    return files[name] === "" ? [] : [file];
  };
  const all = {
    paths: [...(await write("paths")), policies],
    reviews: await write("reviews"),
    state: await write("state"),
    old: await write("old"),
    isStrict: false,
    validate: "warn" as const,
  };
  try {
    const check = await prepareManifestCheck({
      catalogue,
      cluster: clusters[policiesDeny ? 0 : 1] as (typeof clusters)[0],
      harden: false,
      ...all,
      webhooks: [],
      hosts: [],
      plugins: [],
      operation: undefined,
      namespace: "default",
      alsoPods: true,
      startKubernetes: startSharedKubernetes,
      user: { username: "jane" },
    });
    const context = { isLive: false, listsAll: true, catalogue, reportVersion: undefined };
    const reports = await Promise.all(
      checkReportFormats.map((form) => createCheckReport({ form, file: "x" }, context)),
    );
    let printed = "";
    for await (const evaluation of check.evaluations) {
      const hidden = hideSecretsInEvaluation(evaluation, check.secretsRead);
      for (const report of reports) printed += report.add(hidden);
    }
    const unreadableInputs = check.faults.map(toUnread);
    const closing = { summary: createSummary(), unreadableInputs, notes: [...check.notes], wasInterrupted: false };
    for (const report of reports) printed += [...report.end(closing)].join("");
    return [printed, ...check.notes, ...check.faults.map(formatManifestFault)].join("\n");
  } catch (error) {
    // What isn't a manifest at all ends the command with a sentence.
    return String(error);
  }
};

/** Returns the first 9 characters of the generated marks (QXZJ012345) and numbers that a text has, also in base64. */
const listSecretMarks = (text: string): Set<string> => {
  const found = new Set<string>();
  const search = (part: string) => {
    for (const [mark] of part.matchAll(/[QXZJ0-9]{9,}/gi)) found.add(mark.slice(0, 9).toUpperCase());
  };
  search(text);
  for (const [token] of text.matchAll(/[\w+/]{12,}={0,2}/g))
    for (let shift = 0; shift < 4; shift++) search(Buffer.from(token.slice(shift), "base64").toString());
  return found;
};

describe("check", () => {
  it("check prints no value of a Secret or of the copy that kubectl adds, even if the text is broken", async () => {
    const files = fc.record({
      paths: fc.array(fc.oneof(secretOrWrapper, other), { minLength: 1, maxLength: 3 }),
      state: fc.option(secretOrWrapper, { freq: 2 }),
      old: fc.option(secret, { freq: 2 }),
      reviews: fc.option(secretOrWrapper, { freq: 4 }),
    });
    let runsWithMessages = 0;
    const { seed = 0 } = fc.readConfigureGlobal();
    const numRuns = Number(process.env.POSTERN_SECRETS ?? 150);
    const property = fc.asyncProperty(
      files,
      damage,
      fc.boolean(),
      fc.boolean(),
      async (given, [spoil, place], isJson, policiesDeny) => {
        const format = (object: unknown) =>
          isJson
            ? JSON.stringify(object, (_, value) => (typeof value === "bigint" ? Number(value) : value), 2)
            : stringify(object, { version: "1.1", aliasDuplicateObjects: false, lineWidth: 0 });
        const text = given.paths.map(format).join(isJson ? "\n" : "---\n");
        const printed = await printCheck(
          {
            paths: spoil ? spoil(text, Math.floor(place * text.length)) : text,
            state: given.state ? format(given.state) : "",
            old: given.old ? format(given.old) : "",
            reviews: given.reviews ? format(given.reviews) : "",
          },
          { policiesDeny },
        );
        const hidden = listSecretMarks(
          Object.values(given)
            .flat()
            .map((object) => JSON.stringify(object, (_, value) => (typeof value === "bigint" ? String(value) : value)))
            .join("\n"),
        );
        // The test's policies deny objects or warn with the word "shows" and, after it, values of a Secret.
        if (printed.includes("shows")) runsWithMessages++;
        // The values of the generated Secrets have marks: a printed mark is part of a value.
        for (const mark of listSecretMarks(printed)) assert.ok(!hidden.has(mark), `${mark} is in\n${printed}`);
      },
    );
    // A policy shows something only in few runs, so there are up to ten rounds of runs.
    for (let round = 0; round === 0 || (runsWithMessages === 0 && round < 10); round++)
      await fc.assert(property, { numRuns, seed: seed + round });
    assert.ok(runsWithMessages > 0, "no policy has shown anything");
  });

  it("check masks the values that a policy copies from a Secret or writes to the audit log", async () => {
    const metadata = { name: "parameters", namespace: "shop" };
    const namespace = { apiVersion: "v1", kind: "Namespace", metadata: { name: "shop" } };
    const data = { a: Buffer.from("QXZJ0123456789").toString("base64") };
    const state = [namespace, { apiVersion: "v1", kind: "Secret", metadata, data }].map((object) => stringify(object));
    const paths = stringify({ apiVersion: "v1", kind: "ConfigMap", metadata, data: { b: "c" } });
    const files = { paths, reviews: "", state: state.join("---\n"), old: "" };
    const printed = await printCheck(files, { policiesDeny: false });
    assert.match(printed, /changed by .*MutatingAdmissionPolicy copying/);
    assert.match(printed, /\+ +copied: "\*\*\*"/);
    // The policy named writing puts the Secret's data into its audit annotation shown-5.
    assert.match(printed, /"writing\/shown-5": "\*\*\*"/);
    assert.ok(!listSecretMarks(printed).has("QXZJ01234"), "the Secret's value is printed: its first 9 characters");
  });

  it("check hides the copy of a Secret that a patch adds and removes again", () => {
    const object = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "c" } };
    const copy = JSON.stringify({ kind: "Secret", data: { password: "QXZJ0123456789" } });
    const path = "/metadata/annotations";
    const patch = [
      { op: "add", path, value: { [lastAppliedAnnotation]: copy } },
      { op: "remove", path },
    ];
    const checked = { ...noFindings, changes: [{ rule: "copying", patch }] };
    const evaluation = {
      subject: { manifest: { object } },
      checked,
      audit: {},
      steps: [],
      before: object,
      after: object,
    };
    const hidden = hideSecretsInEvaluation(evaluation as unknown as ObjectEvaluation);
    assert.doesNotMatch(JSON.stringify(hidden), /QXZJ/);
  });
});
